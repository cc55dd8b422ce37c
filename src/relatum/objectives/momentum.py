"""Momentum encoders: copies of trained modules that follow them slowly.

A copy is a sub-module whose parameters need no gradient, so it is in every checkpoint and not in the optimiser. A
method lists its copy of the backbone in `encoders`, calls `follow` in `after_step`, and runs it without gradients.
"""

from __future__ import annotations

import copy
import math
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def frozen_copy(module: M) -> M:
    """A copy with the same weights that the optimiser does not train."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, momentum: float) -> None:
    """Move the target's parameters: ξ ← m·ξ + (1 − m)·θ. Batch-norm statistics are the target's, from its batches."""
    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
        slow.lerp_(fast, 1 - momentum)


def cosine_momentum(base: float, step: int, total_steps: int) -> float:
    """BYOL's schedule: from `base` at the first step to 1 at the end of the run, along a cosine."""
    return 1 - (1 - base) * (math.cos(math.pi * step / max(1, total_steps)) + 1) / 2
