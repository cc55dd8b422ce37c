"""NT-Xent and the authors' variant, against loops over all pairs."""

from __future__ import annotations

import math

import pytest
import torch
from small import agree, small_batch, small_objective


def oracle(projections: torch.Tensor, views: int, temperature: float, loss: str) -> torch.Tensor:
    """One pair after the other, as the definition says."""
    rows = [row / row.norm() for row in projections]
    images = len(rows) // views
    chances = []
    for a in range(len(rows)):
        weights = [torch.exp(torch.dot(rows[a], row) / temperature) for row in rows]
        below = sum(weights[c] for c in range(len(rows)) if c != a)
        chances += [weights[b] / below for b in range(len(rows)) if b != a and b % images == a % images]
    assert len(chances) == images * views * (views - 1)
    if loss == "log-mean":
        return -torch.log(sum(chances) / len(chances))
    return sum(-torch.log(p) for p in chances) / len(chances)


@pytest.mark.parametrize("loss", ["nt-xent", "log-mean"])
@pytest.mark.parametrize("views", [2, 3, 5])
def test_the_loss_and_its_gradient_equal_a_loop_over_all_pairs(views: int, loss: str) -> None:
    objective = small_objective("simclr", loss=loss, temperature=0.3)
    batch = small_batch(views, 5)
    value, metrics = objective(batch)
    projections = objective.head(objective.backbone(batch.views.flatten(0, 1)))
    agree(objective, value, oracle(projections, views, 0.3, loss))
    assert 0 <= float(metrics["accuracy"]) <= 1


def test_with_two_views_it_is_the_usual_cross_entropy() -> None:
    objective = small_objective("simclr")
    batch = small_batch(2, 6)
    z = torch.nn.functional.normalize(objective.head(objective.encode(batch)), dim=1)
    logits = (z @ z.T / 0.5).masked_fill(torch.eye(12, dtype=torch.bool), -math.inf)
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(12).roll(6))
    torch.testing.assert_close(objective(batch)[0], expected, rtol=0, atol=1e-12)


def test_a_perfect_projection_is_recognised_and_a_bad_one_is_not() -> None:
    from relatum.objectives.simclr import log_probabilities

    one_hot = torch.eye(4, dtype=torch.float64)
    assert float(log_probabilities(one_hot.repeat(3, 1), 3, 0.5)[1]) == 1.0
    turned = torch.cat([one_hot, one_hot.roll(1, 0)])
    assert float(log_probabilities(turned, 2, 0.5)[1]) == 0.0


def test_similarities_stay_in_single_precision_under_autocast() -> None:
    objective = small_objective("simclr", dtype=torch.float32)
    batch = small_batch(2, 6, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = objective(batch)
        projections = objective.head(objective.encode(batch))
    assert projections.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    expected = oracle(projections.double(), 2, 0.5, "nt-xent")
    # bf16 similarities are off by up to 2^-8 / 0.5 each; single precision leaves the rounding of the loss alone.
    assert abs(loss.item() - expected.item()) < 1e-5


def test_head_sizes_and_defaults_are_the_papers() -> None:
    head = small_objective("simclr").head
    assert [tuple(p.shape) for p in head.parameters()] == [(256, 64), (256,), (256,), (256,), (64, 256), (64,)]
    assert head.relu.negative_slope == 0.01
    assert small_objective("simclr").temperature == 0.5


def test_what_it_cannot_use_is_refused() -> None:
    objective = small_objective("simclr")
    with pytest.raises(ValueError, match="at least 2 of each"):
        objective(small_batch(1, 4))
    with pytest.raises(ValueError, match="at least 2 images"):
        objective(small_batch(2, 1))
