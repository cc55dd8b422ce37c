"""SimSiam against a loop over pairs of views."""

from __future__ import annotations

import pytest
import torch
from small import EDGES, agree, projections, same, small_batch, small_objective

from relatum.objectives.agreement import mean_cosine


def oracle(x_KMP: torch.Tensor, y_KMP: torch.Tensor) -> torch.Tensor:
    """The mean cosine over images and ordered pairs of views, one by one."""
    views, images = x_KMP.shape[:2]
    terms = [
        torch.dot(x_KMP[a, m], y_KMP[b, m]) / (x_KMP[a, m].norm() * y_KMP[b, m].norm())
        for a in range(views)
        for b in range(views)
        for m in range(images)
        if a != b
    ]
    return sum(terms) / len(terms)


@pytest.mark.parametrize(("views", "images"), [(2, 6), (4, 5)])
def test_the_loss_and_its_gradient_equal_a_loop(views: int, images: int) -> None:
    objective = small_objective("simsiam")
    batch = small_batch(views, images)
    loss, _ = objective(batch)
    z = objective.head(objective.backbone(batch.views.flatten(0, 1)))
    predictions = objective.predictor(z).view(views, images, -1)
    agree(objective, loss, -oracle(predictions, z.detach().view(views, images, -1)))


@pytest.mark.parametrize("kind", EDGES)
def test_the_mean_cosine_equals_a_loop_at_the_edges(kind: str) -> None:
    x, y = projections(kind), projections(kind, seed=1)
    same(mean_cosine(x, y), oracle(x, y), x, y)


def test_no_gradient_flows_through_what_is_predicted() -> None:
    objective = small_objective("simsiam")
    batch = small_batch(2, 4)
    objective.predictor.requires_grad_(False)
    torch.nn.init.zeros_(objective.predictor.linear1.weight)  # then predictions do not depend on the backbone
    objective(batch)[0].backward()
    assert all(float(p.grad.abs().max()) == 0 for p in objective.backbone.parameters() if p.grad is not None)
