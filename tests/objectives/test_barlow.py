"""Barlow Twins against loops over coordinates and images."""

from __future__ import annotations

import pytest
import torch
from small import EDGES, agree, projections, same, small_batch, small_objective

from relatum.objectives.barlow import barlow_loss


def oracle(z_KMP: torch.Tensor, redundancy: float) -> torch.Tensor:
    """Every entry of every cross-correlation by itself."""
    views, images, size = z_KMP.shape
    columns = {}
    for k in range(views):
        for i in range(size):
            column = z_KMP[k, :, i]
            mean = sum(column) / images
            variance = sum((x - mean) ** 2 for x in column) / images
            columns[k, i] = [(x - mean) / torch.sqrt(variance + 1e-5) for x in column]
    losses = []
    for a in range(views):
        for b in range(views):
            if a == b:
                continue
            loss = z_KMP.new_zeros(())
            for i in range(size):
                for j in range(size):
                    c = sum(x * y for x, y in zip(columns[a, i], columns[b, j], strict=True)) / images
                    loss = loss + ((1 - c) ** 2 if i == j else redundancy * c**2)
            losses.append(loss)
    return sum(losses) / len(losses)


@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("views", [2, 4])
def test_the_loss_and_its_gradient_equal_a_loop(kind: str, views: int) -> None:
    z = projections(kind, views)
    same(barlow_loss(z, 0.3)[0], oracle(z, 0.3), z)


def test_the_method_computes_it_from_its_projections() -> None:
    objective = small_objective("barlow", projection=6, redundancy=0.1)
    batch = small_batch(3, 4)
    z = objective.head(objective.backbone(batch.views.flatten(0, 1)))
    agree(objective, objective(batch)[0], oracle(z.view(3, 4, 6), 0.1))


def test_equal_views_without_redundancy_have_no_loss() -> None:
    z = torch.linalg.qr(torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0]
    z = torch.linalg.qr(z - z.mean(0))[0] * 100  # uncorrelated, centred coordinates
    loss, agreement = barlow_loss(torch.stack([z, z]), 0.5)
    assert loss.item() < 1e-9
    assert agreement.item() == pytest.approx(1, abs=1e-6)
