"""`Batch`: the input of an objective.

Shape letters: K views per image, M images, C channels, H and W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from relatum.views.params import ViewParams


class Batch:
    """K views of M images, and where they came from.

    A plain class: Lightning Fabric walks into dataclasses to cast and copy what it finds there.

    Args:
        views: (K, M, C, H, W) normalised views.
        params: the parameters of the views, K · M rows in the order of `views.flatten(0, 1)`; None for bare tensors.
        indices: (M,) sample numbers in the training set, or None.
        labels: (M,) or None. None unless the objective declares that it uses labels; -1 where a label is hidden.
        seed, epoch, step: keys of the random draws inside an objective.
        num_images: M of the whole mini-batch, where several processes share it; by default that of `views`.
        small_views: (L, M, C, h, w) smaller views of the same images (multi-crop), or None.
    """

    def __init__(
        self,
        views: Tensor,
        params: ViewParams | None = None,
        indices: Tensor | None = None,
        labels: Tensor | None = None,
        seed: int = 0,
        epoch: int = 0,
        step: int = 0,
        num_images: int | None = None,
        small_views: Tensor | None = None,
    ) -> None:
        self.views, self.params, self.indices, self.labels = views, params, indices, labels
        self.seed, self.epoch, self.step = seed, epoch, step
        self.num_images = views.shape[1] if num_images is None else num_images
        self.small_views = small_views

    @property
    def all_views(self) -> int:
        """The number of views of an image, small ones included."""
        return len(self.views) + (0 if self.small_views is None else len(self.small_views))

    def replace(self, **changes: Any) -> Batch:
        """The same batch with some of its parts exchanged."""
        return Batch(**{**vars(self), **changes})

    @classmethod
    def of(cls, views: ViewsLike) -> Batch:
        """A batch from user input: a batch, a tensor (K, M, C, H, W), or K tensors (M, C, H, W)."""
        if isinstance(views, Batch):
            return views
        if not isinstance(views, Tensor):
            views = _stacked(views)
        if views.ndim != 5:
            raise ValueError(f"views must have shape (K, M, C, H, W), not {tuple(views.shape)}")
        return cls(views)


ViewsLike = Batch | Tensor | Sequence[Tensor]


def _stacked(views: Any) -> Tensor:
    """K tensors of the views of all images, as a DataLoader collates them, in one tensor."""
    shapes = [getattr(view, "shape", None) for view in views] if isinstance(views, Sequence) else []
    if not shapes or any(shape is None or len(shape) != 4 or shape != shapes[0] for shape in shapes):
        listed = ", ".join(str(None if shape is None else tuple(shape)) for shape in shapes[:4]) or type(views).__name__
        raise TypeError(
            f"views must be a tensor (K, M, C, H, W) or a list of K tensors (M, C, H, W) of one size, not {listed}."
        )
    return torch.stack(list(views))
