"""VICReg against loops over pairs, coordinates and images."""

from __future__ import annotations

import pytest
import torch
from small import EDGES, agree, projections, same, small_batch, small_objective

from relatum.objectives.vicreg import vicreg_terms


def moments(z_MP: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The hinge on standard deviations and the squared covariances of one view."""
    images, size = z_MP.shape
    means = [sum(z_MP[:, i]) / images for i in range(size)]
    hinge, off = z_MP.new_zeros(()), z_MP.new_zeros(())
    for i in range(size):
        for j in range(size):
            entry = sum((row[i] - means[i]) * (row[j] - means[j]) for row in z_MP) / (images - 1)
            if i == j:
                hinge = hinge + torch.relu(1 - torch.sqrt(entry + 1e-4)) / size
            else:
                off = off + entry**2 / size
    return hinge, off


def oracle(z_KMP: torch.Tensor, weights: tuple[float, float, float]) -> torch.Tensor:
    """The authors' loss of every ordered pair of views."""
    views, images, size = z_KMP.shape
    each = [moments(z) for z in z_KMP]
    losses = []
    for a in range(views):
        for b in range(views):
            if a != b:
                distance = sum((z_KMP[a, m, i] - z_KMP[b, m, i]) ** 2 for m in range(images) for i in range(size))
                invariance = distance / (images * size)
                variance = each[a][0] / 2 + each[b][0] / 2
                covariance = each[a][1] + each[b][1]
                losses.append(weights[0] * invariance + weights[1] * variance + weights[2] * covariance)
    return sum(losses) / len(losses)


@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("views", [2, 4])
def test_the_loss_and_its_gradient_equal_a_loop(kind: str, views: int) -> None:
    z, weights = projections(kind, views), (2.0, 3.0, 0.7)
    value = sum(w * term for w, term in zip(weights, vicreg_terms(z), strict=True))
    same(value, oracle(z, weights), z)


def test_the_method_computes_it_from_its_projections() -> None:
    objective = small_objective("vicreg", projection=6, layers=3)
    batch = small_batch(3, 4)
    z = objective.head(objective.backbone(batch.views.flatten(0, 1)))
    loss, metrics = objective(batch)
    agree(objective, loss, oracle(z.view(3, 4, 6), (25.0, 25.0, 1.0)))
    weights = {"invariance": 25, "variance": 25, "covariance": 1}
    assert sum(w * float(metrics[name]) for name, w in weights.items()) == pytest.approx(loss.item())
