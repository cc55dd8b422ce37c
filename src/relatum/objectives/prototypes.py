"""Prototypes: similarities of projections to learned vectors of unit length (DINO, SwAV)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relatum.objectives.base import single


class Prototypes(nn.Module):
    """Cosine similarities of (N, P) projections to C prototypes, (N, C).

    Args:
        size: P.
        number: C.
    """

    def __init__(self, size: int, number: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(number, size), dim=1))

    def forward(self, projections: Tensor, *, frozen: bool = False) -> Tensor:
        """The similarities, in single precision at least; `frozen` gives the prototypes no gradient."""
        with torch.autocast(projections.device.type, enabled=False):
            weight = single(self.weight.detach() if frozen else self.weight)
            return F.normalize(single(projections), dim=1) @ F.normalize(weight, dim=1).T
