"""`ImageSet`: images in memory or mapped from disk, with labels and statistics; every reader returns one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from relatum.data.dataset import RGB, Dataset
from relatum.data.spill import take


@dataclass(frozen=True)
class Skipped:
    """A file that could not be read, and why (one line)."""

    path: str
    reason: str


@dataclass(frozen=True)
class ImageSet:
    """Images in one array, with their labels and statistics.

    Attributes:
        name: the dataset's name, or the folder's.
        split: `train`, `test`, `val` or `unlabeled`.
        images: (N, H, W, 3) uint8, an array or a read-only memory map, C-contiguous; or a `StreamedImages`, which
            decodes what is indexed.
        labels: (N,) int64, or None if the images are unlabelled.
        classes: class names, in the order of their labels; empty if the images are unlabelled.
        mean, std: per channel, of pixels scaled to [0, 1]; views are normalised with them.
        pad: zero padding of the padded-crop augmentation (side / 8 in the paper).
        files: the relative path of each image, or None if images are not files.
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

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        split: str,
        images: NDArray[np.uint8],
        labels: NDArray[np.int64] | None,
        classes: tuple[str, ...],
        *,
        files: Sequence[str] | None = None,
        skipped: tuple[Skipped, ...] = (),
    ) -> ImageSet:
        """Images of a dataset, with the name, the statistics and the padding that its facts give."""
        mean, std, pad = dataset.mean, dataset.std, dataset.pad
        return cls(dataset.name, split, images, labels, classes, mean, std, pad, files, skipped)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def side(self) -> int:
        """Height and width of an image in pixels."""
        return int(self.images.shape[1])

    @property
    def num_classes(self) -> int:
        """The number of classes; 0 without labels."""
        return len(self.classes)

    def subset(self, indices: NDArray[np.int64]) -> ImageSet:
        """The images at `indices`, in that order.

        Consecutive indices give a view without a copy. A large part of a memory map stays on disk (see `spill`).
        """
        images = take(self.images, np.asarray(indices, np.int64))
        return replace(
            self,
            images=images,
            labels=None if self.labels is None else self.labels[indices],
            files=_subset_files(self.files, images, indices),
        )


def _subset_files(
    files: Sequence[str] | None, images: NDArray[np.uint8], indices: NDArray[np.int64]
) -> Sequence[str] | None:
    """The files at `indices`; those of a stream are not listed."""
    if files is None or hasattr(images, "select"):
        return getattr(images, "files", None)
    return [files[int(i)] for i in indices]
