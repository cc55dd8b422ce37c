"""RotationNet: its targets are the turns that made the views."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small import agree, small_batch, small_objective

from relatum import views
from relatum.objectives.batch import Batch
from relatum.objectives.rotation import rotation_targets


def test_the_loss_and_its_gradient_equal_a_loop_over_views() -> None:
    objective = small_objective("rotation")
    batch = small_batch(4, 5)
    loss, metrics = objective(batch)
    logits = objective.classifier(objective.backbone(batch.views.flatten(0, 1)))
    turns = batch.params.turns
    chances = [torch.exp(row) / torch.exp(row).sum() for row in logits]
    oracle = -sum(torch.log(p[int(t)]) for p, t in zip(chances, turns, strict=True)) / len(turns)
    agree(objective, loss, oracle)
    right = sum(int(row.argmax()) == int(t) for row, t in zip(logits, turns, strict=True))
    assert float(metrics["accuracy"]) == pytest.approx(right / len(turns))


@pytest.mark.parametrize(("policy", "number"), [("rotation", 4), ("rotation-study", 6)])
def test_targets_are_the_turns_of_the_pixels(policy: str, number: int) -> None:
    """An image lit from one side: the edge that is bright in a view tells how far it was turned."""
    image = np.zeros((2, 16, 16, 3), np.uint8)
    image[:, :6] = 200  # bright on top
    plain = views.POLICIES[policy]
    chain = type(plain)(turn=plain.turn, shared=plain.shared)  # the turns of the policy and nothing else
    params = views.sample(
        chain, seed=1, epoch=0, indices=np.array([4, 9]), views=number, height=16, width=16, pad=0, side=16
    )
    zero, one = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    source = np.tile([0, 1], number)
    built = views.make_views(image, source, params, side=16, mean=zero, std=one, backend="reference")
    batch = Batch(torch.as_tensor(built).unflatten(0, (number, 2)), params)
    edges = (
        built[:, :, :3].mean((1, 2, 3)),
        built[..., :3].mean((1, 2, 3)),
        built[:, :, -3:].mean((1, 2, 3)),
        built[..., -3:].mean((1, 2, 3)),
    )
    seen = torch.stack(edges).argmax(0)  # top, left, bottom, right: counter-clockwise
    targets = rotation_targets(batch)
    assert targets.dtype == torch.int64
    assert torch.equal(targets, seen)
    if policy == "rotation":  # every image in all four rotations
        assert torch.equal(targets.view(4, 2), torch.arange(4)[:, None].expand(4, 2))


def test_what_it_cannot_use_is_refused() -> None:
    objective = small_objective("rotation")
    batch = small_batch(4, 3)
    with pytest.raises(ValueError, match="parameters of the views"):
        objective(batch.views)
    short = Batch(batch.views, SimpleNamespace(turns=batch.params.turns[:-1]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="11 turns"):
        objective(short)
