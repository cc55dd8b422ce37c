"""Reads the original Python archives of CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.data import pickles
from relatum.data.dataset import Dataset
from relatum.data.imageset import ImageSet
from relatum.data.paths import Absent, locate
from relatum.errors import InputError


def read_cifar10(dataset: Dataset, split: str, root: Path) -> ImageSet:
    """Read `train` (five files) or `test` of CIFAR-10."""
    files = [f"data_batch_{number}" for number in range(1, 6)] if split == "train" else ["test_batch"]
    return _read(dataset, split, root, files, "batches.meta", "labels", "label_names")


def read_cifar100(dataset: Dataset, split: str, root: Path) -> ImageSet:
    """Read `train` or `test` of CIFAR-100 with its 100 fine labels."""
    return _read(dataset, split, root, [split], "meta", "fine_labels", "fine_label_names")


def read_cifar100_coarse(dataset: Dataset, split: str, root: Path) -> ImageSet:
    """Read `train` or `test` of CIFAR-100 with its 20 coarse labels."""
    return _read(dataset, split, root, [split], "meta", "coarse_labels", "coarse_label_names")


def _read(
    dataset: Dataset, split: str, root: Path, files: list[str], meta: str, labels_key: str, names_key: str
) -> ImageSet:
    """Read batches.

    Args:
        dataset: facts.
        split: `train` or `test`.
        root: the data root.
        files: the split's batches, in order.
        meta: the file with the class names.
        labels_key: key of the labels in a batch.
        names_key: key of the class names in `meta`.
    """
    folder = locate(dataset, root, (files[0], meta))
    if not any((folder / file).exists() for file in files):
        raise Absent(f"{folder / files[0]} is missing.")
    batches = [_batch(folder / file, dataset, labels_key) for file in files]
    side = dataset.side
    images = np.empty((sum(len(pixels) for pixels, _ in batches), side, side, 3), np.uint8)
    start = 0
    for pixels, _ in batches:
        images[start : start + len(pixels)] = pixels.reshape(-1, 3, side, side).transpose(0, 2, 3, 1)
        start += len(pixels)
    labels = np.concatenate([labels for _, labels in batches])
    names = _class_names(folder / meta, names_key, dataset.classes)
    return ImageSet.of(dataset, split, images, labels, names)


def _batch(path: Path, dataset: Dataset, labels_key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        content = pickles.read(path)
    except Absent as error:  # other batches of the split are there
        raise InputError(str(error)) from None
    pixels, labels = content.get("data"), content.get(labels_key)
    row = 3 * dataset.side**2
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != row:
        raise InputError(f"{path} is not a CIFAR file: 'data' must be rows of {row} bytes.")
    if (
        not isinstance(labels, list)
        or len(labels) != len(pixels)
        or not all(type(label) is int and 0 <= label < dataset.classes for label in labels)
    ):
        raise InputError(
            f"{path} is not a CIFAR file: '{labels_key}' must be {len(pixels)} numbers below {dataset.classes}."
        )
    return pixels, np.array(labels, np.int64).reshape(-1)


def _class_names(path: Path, key: str, classes: int) -> tuple[str, ...]:
    names: Any = pickles.read(path).get(key)
    if not isinstance(names, list) or len(names) != classes or not all(isinstance(n, bytes | str) for n in names):
        raise InputError(f"{path} is not a CIFAR file: '{key}' must be {classes} names.")
    return tuple(n.decode("utf-8", "replace") if isinstance(n, bytes) else n for n in names)
