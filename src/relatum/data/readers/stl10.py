"""Reads `stl10_binary`: bytes on disk, 3 × 96 × 96 per image, column-major within a channel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relatum.data import cache
from relatum.data.arrays import open_array, write_array
from relatum.data.dataset import Dataset
from relatum.data.imageset import ImageSet
from relatum.data.paths import Absent, locate
from relatum.errors import InputError
from relatum.system.progress import bar

_VERSION = 1  # increase when the same file gives different pixels
_CHUNK = 500  # images transposed at a time: 14 MB


def read(dataset: Dataset, split: str, root: Path) -> ImageSet:
    """Read `train`, `test` or `unlabeled`. The images are transposed once and kept in the cache."""
    folder = locate(dataset, root, (f"{split}_X.bin", "train_X.bin"))
    file = folder / f"{split}_X.bin"
    if not file.exists():
        raise Absent(f"{file} cannot be read: No such file or directory.")
    image_bytes = 3 * dataset.side**2
    count, rest = divmod(_size(file), image_bytes)
    if rest or not count:
        raise InputError(
            f"{file} is truncated: {_size(file)} bytes are not a whole number of {image_bytes}-byte images."
        )
    labels = None if split == "unlabeled" else _labels(folder / f"{split}_y.bin", count, dataset.classes)
    names = _class_names(folder / "class_names.txt", dataset.classes) if labels is not None else ()
    return ImageSet.of(dataset, split, _images(dataset, split, file, count), labels, names)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None


def _images(dataset: Dataset, split: str, file: Path, count: int) -> NDArray[np.uint8]:
    """The images as (N, side, side, 3), from the cache."""
    status = file.stat()
    shape = (count, dataset.side, dataset.side, 3)
    entry = cache.entry(
        dataset.name,
        f"{split}-{status.st_size}-{status.st_mtime_ns}-{status.st_ino}-v{_VERSION}",
        lambda folder: _transpose(file, folder, shape),
        valid=lambda folder: _valid(folder, shape),
        replaces=f"{split}-",
    )
    return open_array(entry / "images.npy", shape)


def _transpose(file: Path, folder: Path, shape: tuple[int, ...]) -> None:
    count, height, width, channels = shape
    try:
        source = np.memmap(file, np.uint8, "r", shape=(count, channels, width, height))  # column-major
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.") from None

    def chunks() -> Iterator[NDArray[np.uint8]]:
        with bar(f"reading {file.name}", count) as advance:
            for start in range(0, count, _CHUNK):
                chunk = source[start : start + _CHUNK].transpose(0, 3, 2, 1)
                yield chunk
                advance(len(chunk))

    write_array(folder / "images.npy", shape, chunks())
    cache.sync(folder / "images.npy")


def _valid(folder: Path, shape: tuple[int, ...]) -> bool:
    open_array(folder / "images.npy", shape)  # raises where it does not fit
    return True


def _labels(file: Path, count: int, classes: int) -> NDArray[np.int64]:
    if _size(file) != count:
        raise InputError(f"{file} must hold {count} labels, one byte each.")
    labels = np.fromfile(file, np.uint8).astype(np.int64) - 1  # 1 to 10 on disk
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"{file} must hold numbers from 1 to {classes}.")
    return labels


def _class_names(file: Path, classes: int) -> tuple[str, ...]:
    try:
        names = tuple(file.read_text("utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}.") from None
    if len(names) != classes:
        raise InputError(f"{file} must hold {classes} names.")
    return names
