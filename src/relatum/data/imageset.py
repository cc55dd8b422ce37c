"""`ImageSet`: what every data source gives and everything downstream takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from relatum.data.spill import take

RGB = tuple[float, float, float]


@dataclass(frozen=True)
class Skipped:
    """A file that could not be read, and why (one line)."""

    path: str
    reason: str


@dataclass(frozen=True)
class ImageSet:
    """Images in one array, with what is known about them.

    Attributes:
        name: the dataset's name, or the folder's.
        split: `train`, `test`, `val` or `unlabeled`.
        images: (N, H, W, 3) uint8, an array or a read-only memory map; C-contiguous.
        labels: (N,) int64, or None where there are none.
        classes: class names, in the order of their numbers; empty where there are no labels.
        mean, std: per channel, of pixels scaled to [0, 1]: what views are normalised with.
        pad: zero padding of the padded-crop chain (side / 8 in the paper).
        files: a name per image for people to read (folders), or None.
        skipped: files that could not be read.
    """

    name: str
    split: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64] | None
    classes: tuple[str, ...]
    mean: RGB
    std: RGB
    pad: int
    files: Sequence[str] | None = None
    skipped: tuple[Skipped, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.images)

    @property
    def side(self) -> int:
        """Pixels of an image's side."""
        return int(self.images.shape[1])

    @property
    def num_classes(self) -> int:
        """How many classes; 0 without labels."""
        return len(self.classes)

    def subset(self, indices: NDArray[np.int64]) -> ImageSet:
        """The images at `indices`, in that order.

        A run of neighbours is a view without a copy; a large part of a memory map stays on disk (see `spill`).
        """
        return replace(
            self,
            images=take(self.images, np.asarray(indices, np.int64)),
            labels=None if self.labels is None else self.labels[indices],
            files=None if self.files is None else [self.files[int(i)] for i in indices],
        )
