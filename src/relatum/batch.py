"""`Batch`: what the engine hands to an objective.

Shape letters: K views per image, M images, C channels, H and W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from relatum.views.params import ViewParams


@dataclass
class Batch:
    """K views of M images, and where they came from.

    Attributes:
        views: (K, M, C, H, W) normalised views.
        params: the parameters that made them, K * M rows in the order of `views.flatten(0, 1)`; None for bare tensors.
        indices: (M,) sample numbers in the training set, or None.
        labels: (M,) or None. None unless the objective declares that it uses labels; -1 where a label is hidden.
        seed, epoch, step: what random draws made inside an objective are keyed by.
    """

    views: Tensor
    params: ViewParams | None = None
    indices: Tensor | None = None
    labels: Tensor | None = None
    seed: int = 0
    epoch: int = 0
    step: int = 0

    @classmethod
    def of(cls, views: Batch | Tensor) -> Batch:
        """A batch from what a user may pass: a batch, or a bare tensor of views."""
        if isinstance(views, Batch):
            return views
        if views.ndim != 5:
            raise ValueError(f"views must have shape (K, M, C, H, W), not {tuple(views.shape)}")
        return cls(views)
