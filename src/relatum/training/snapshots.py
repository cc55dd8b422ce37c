"""Artifacts that training saves for the report: views, and the pairs that the relation head is most sure of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relatum.objectives import Objective
from relatum.runs import artifacts
from relatum.training.batches import BatchMaker

_IMAGES, _VIEWS = 8, 12  # of the sheet of views
_PAIR_VIEWS = 4  # views per image among which pairs are scored


def _pictures(views_NCHW: Tensor, mean: Tensor, std: Tensor) -> NDArray[np.uint8]:
    """Undo the normalisation of views: (N, H, W, 3) uint8."""
    shown = views_NCHW.cpu().float() * std.view(3, 1, 1) + mean.view(3, 1, 1)
    return (shown.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()


def save_views(run: Path, maker: BatchMaker) -> None:
    """A sheet of the first step's views of a few images."""
    if not maker.steps_per_epoch:
        return
    batch = maker.make(0)
    assert batch.indices is not None
    images, number = min(_IMAGES, batch.views.shape[1]), min(_VIEWS, batch.views.shape[0])
    mean, std = (torch.tensor(values) for values in (maker.mean, maker.std))
    shown = _pictures(batch.views[:number, :images].flatten(0, 1), mean, std)
    shown = shown.reshape(number, images, *shown.shape[1:]).swapaxes(0, 1)
    indices = batch.indices[:images].cpu().numpy()
    artifacts.save_views(run, shown, maker.images.images[indices], maker.names(indices))


def save_pairs(run: Path, objective: Objective, maker: BatchMaker) -> None:
    """Pairs of views with the scores of the trained relation head: the surest and the most confusing."""
    score = getattr(objective, "score", None)
    if score is None or not maker.steps_per_epoch:
        return
    batch = maker.make(0)
    assert batch.indices is not None
    number, images = min(_PAIR_VIEWS, batch.views.shape[0]), batch.views.shape[1]
    if number < 2 or images < 2:
        return
    flat = batch.views[:number].flatten(0, 1)
    objective.eval()
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        z = objective.backbone(flat)
        pairs = objective.pairs(batch.replace(views=batch.views[:number], num_images=images))  # type: ignore[operator]
        left, right, targets = pairs.tensors(z.device)
        scores = score(z[left], z[right]).cpu().numpy()
    mean, std = (torch.tensor(values) for values in (maker.mean, maker.std))
    shown = _pictures(flat, mean, std)
    names = maker.names(batch.indices.cpu().numpy())
    named = [names[i % images] for i in range(len(flat))] if names else None
    sides = ([named[i] for i in pairs.left], [named[i] for i in pairs.right]) if named else None
    artifacts.save_pairs(run, shown[pairs.left], shown[pairs.right], scores, targets.cpu().numpy(), sides)
