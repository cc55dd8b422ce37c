"""BYOL against a loop over pairs of views, and its target network against a plain moving average."""

from __future__ import annotations

import math

import pytest
import torch
from small import agree, small_batch, small_objective, unsettle


def oracle(predictions: torch.Tensor, targets: torch.Tensor, views: int) -> torch.Tensor:
    """One ordered pair of views of one image after the other."""
    images, terms = len(predictions) // views, []
    for a in range(views):
        for b in range(views):
            for m in range(images):
                if a != b:
                    q, t = predictions[a * images + m], targets[b * images + m]
                    terms.append(2 - 2 * torch.dot(q, t) / (q.norm() * t.norm()))
    return sum(terms) / len(terms)


@pytest.mark.parametrize(("views", "images"), [(2, 6), (4, 5), (3, 2)])
def test_the_loss_and_its_gradient_equal_a_loop(views: int, images: int) -> None:
    objective = small_objective("byol")
    unsettle(objective.target_backbone)
    unsettle(objective.target_head)
    batch = small_batch(views, images)
    loss, metrics = objective(batch)
    x = batch.views.flatten(0, 1)
    predictions = objective.predictor(objective.head(objective.backbone(x)))
    targets = objective.target_head(objective.target_backbone(x)).detach()
    agree(objective, loss, oracle(predictions, targets, views))
    assert float(metrics["similarity"]) == pytest.approx(1 - loss.item() / 2)


def test_equal_images_give_a_finite_loss() -> None:
    objective = small_objective("byol")
    batch = small_batch(2, 4)
    loss, _ = objective(batch.replace(views=batch.views[:1, :1].expand_as(batch.views)))
    loss.backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in objective.parameters() if p.grad is not None)


def test_the_target_is_a_moving_average_with_a_rising_momentum() -> None:
    objective = small_objective("byol", momentum=0.9)
    unsettle(objective.target_backbone)
    unsettle(objective.target_head)
    for step in (0, 4, 9):
        momentum = 1 - 0.1 * (math.cos(math.pi * step / 10) + 1) / 2
        pairs = [(objective.target_backbone, objective.backbone), (objective.target_head, objective.head)]
        wanted = [
            momentum * slow.detach() + (1 - momentum) * fast.detach()
            for target, online in pairs
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True)
        ]
        objective.after_step(step, 10)
        parameters = [p for target, _ in pairs for p in target.parameters()]
        for got, want in zip(parameters, wanted, strict=True):
            torch.testing.assert_close(got.detach(), want, rtol=0, atol=1e-12)


def test_the_target_starts_as_a_copy_and_is_not_trained() -> None:
    objective = small_objective("byol")
    assert all(not p.requires_grad for p in objective.target_backbone.parameters())
    for one, two in zip(objective.backbone.parameters(), objective.target_backbone.parameters(), strict=True):
        assert torch.equal(one, two)
        assert one is not two
