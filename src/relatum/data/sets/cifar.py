"""CIFAR-10 and CIFAR-100 from their original python archives; `cifar100-20` is CIFAR-100 with its coarse labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.data import pickles
from relatum.data.imageset import ImageSet
from relatum.data.paths import locate
from relatum.errors import InputError
from relatum.registry import DATASETS

# name: (folder, file of names, key of the names, key of the labels)
_LAYOUT = {
    "cifar10": ("cifar-10-batches-py", "batches.meta", "label_names", "labels"),
    "cifar100": ("cifar-100-python", "meta", "fine_label_names", "fine_labels"),
    "cifar100-20": ("cifar-100-python", "meta", "coarse_label_names", "coarse_labels"),
}


def _files(name: str, split: str) -> list[str]:
    if name != "cifar10":
        return [split]
    return [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]


def load(name: str, split: str, root: Path) -> ImageSet:
    """Read a split (`train` or `test`) of `cifar10`, `cifar100` or `cifar100-20` under a data root."""
    row = DATASETS[name]
    folder, meta, names_key, labels_key = _LAYOUT[name]
    place = locate(name, folder, root, (_files(name, split)[0], meta))
    batches = [_batch(place / file, labels_key, row.classes) for file in _files(name, split)]
    images = np.empty((sum(len(data) for data, _ in batches), 32, 32, 3), np.uint8)
    start = 0
    for data, _ in batches:
        images[start : start + len(data)] = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        start += len(data)
    labels = np.concatenate([labels for _, labels in batches])
    classes = _names(place / meta, names_key, row.classes)
    return ImageSet(name, split, images, labels, classes, row.mean, row.std, row.pad)


def _batch(path: Path, labels_key: str, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = pickles.read(path)
    data, labels = content.get("data"), content.get(labels_key)
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != 3072:
        raise InputError(f"{path} is not a CIFAR file: 'data' must be rows of 3072 bytes.")
    if (
        not isinstance(labels, list)
        or len(labels) != len(data)
        or not all(type(v) is int and 0 <= v < classes for v in labels)
    ):
        raise InputError(f"{path} is not a CIFAR file: '{labels_key}' must be {len(data)} numbers below {classes}.")
    return data, np.array(labels, np.int64).reshape(-1)


def _names(path: Path, key: str, classes: int) -> tuple[str, ...]:
    names: Any = pickles.read(path).get(key)
    if not isinstance(names, list) or len(names) != classes or not all(isinstance(n, bytes | str) for n in names):
        raise InputError(f"{path} is not a CIFAR file: '{key}' must be {classes} names.")
    return tuple(n.decode("utf-8", "replace") if isinstance(n, bytes) else n for n in names)
