"""EMP-SSL against determinants and cosines, one by one."""

from __future__ import annotations

import pytest
import torch
from small import EDGES, agree, projections, same, small_batch, small_objective

from relatum.objectives.emp import coding_rate


def rate(z_MP: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Half the log-determinant, through the M x M matrix, which has the same one, by its eigenvalues."""
    images, size = z_MP.shape
    gram = torch.stack([torch.stack([torch.dot(a, b) for b in z_MP]) for a in z_MP])
    matrix = torch.eye(images, dtype=z_MP.dtype) + size / (images * epsilon) * gram
    return torch.log(torch.linalg.det(matrix)) / 2


@pytest.mark.parametrize("kind", EDGES)
def test_the_coding_rate_and_its_gradient_equal_a_determinant(kind: str) -> None:
    z = projections(kind)
    same(coding_rate(z, 0.2).sum(), sum(rate(view, 0.2) for view in z), z)


@pytest.mark.parametrize(("views", "images"), [(2, 5), (4, 2), (7, 3)])
def test_the_loss_and_its_gradient_equal_a_loop(views: int, images: int) -> None:
    objective = small_objective("emp", projection=6)
    batch = small_batch(views, images)
    rows = [r / r.norm() for r in objective.head(objective.backbone(batch.views.flatten(0, 1)))]
    z = torch.stack(rows).view(views, images, 6)
    total = 0
    for k in range(views):
        total = total + rate(z[k], 0.2)
        for m in range(images):
            mean = sum(z[j, m] for j in range(views)) / views
            total = total + 200 * torch.dot(z[k, m], mean) / (z[k, m].norm() * mean.norm()) / images
    loss, metrics = objective(batch)
    agree(objective, loss, -total / views)
    assert float(metrics["coding_rate"] + 200 * metrics["similarity"]) == pytest.approx(-loss.item())


def test_projections_that_are_not_finite_give_a_loss_that_is_not() -> None:
    """The training loop then explains it; a factorisation that fails would be an unexpected error."""
    batch = small_batch(2, 4)
    batch.views[0, 0] = torch.nan
    assert bool(torch.isnan(small_objective("emp")(batch)[0]))
