"""STL-10 from `stl10_binary`: bytes on disk, 3 x 96 x 96 per image, column-major within a channel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relatum.data import cache
from relatum.data.imageset import ImageSet
from relatum.data.paths import locate
from relatum.errors import InputError
from relatum.registry import DATASETS
from relatum.system.progress import bar

_FOLDER, _SIDE = "stl10_binary", 96
_BYTES = 3 * _SIDE * _SIDE
_VERSION = 1
_CHUNK = 500  # images turned at a time: 14 MB


def load(name: str, split: str, root: Path) -> ImageSet:
    """Read `train`, `test` or `unlabeled`; the images are turned to rows once and kept in the cache."""
    row = DATASETS[name]
    place = locate(name, _FOLDER, root, (f"{split}_X.bin", "train_X.bin"))
    file = place / f"{split}_X.bin"
    count, rest = divmod(_size(file), _BYTES)
    if rest or not count:
        raise InputError(f"{file} is truncated: {_size(file)} bytes are not a whole number of {_BYTES}-byte images.")
    labels = None if split == "unlabeled" else _labels(place / f"{split}_y.bin", count, row.classes)
    classes = _names(place / "class_names.txt", row.classes) if labels is not None else ()
    return ImageSet(name, split, _turned(file, split, count), labels, classes, row.mean, row.std, row.pad)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None


def _turned(file: Path, split: str, count: int) -> NDArray[np.uint8]:
    """The images as (N, 96, 96, 3), from the cache."""
    status = file.stat()
    name = f"{split}-{status.st_size}-{status.st_mtime_ns}-{status.st_ino}-v{_VERSION}"
    entry = cache.entry(
        "stl10", name, lambda work: _turn(file, work, count), valid=lambda at: _valid(at, count), replaces=f"{split}-"
    )
    return np.load(entry / "images.npy", mmap_mode="r")


def _turn(file: Path, work: Path, count: int) -> None:
    source = np.memmap(file, np.uint8, "r", shape=(count, 3, _SIDE, _SIDE))
    out = np.lib.format.open_memmap(work / "images.npy", "w+", np.uint8, (count, _SIDE, _SIDE, 3))
    with bar(f"reading {file.name}", count) as advance:
        for start in range(0, count, _CHUNK):
            part = source[start : start + _CHUNK].transpose(0, 3, 2, 1)  # column-major: width comes before height
            out[start : start + len(part)] = part
            advance(len(part))
    out.flush()


def _valid(entry: Path, count: int) -> bool:
    try:
        return np.load(entry / "images.npy", mmap_mode="r").shape == (count, _SIDE, _SIDE, 3)
    except (OSError, ValueError):
        return False


def _labels(file: Path, count: int, classes: int) -> NDArray[np.int64]:
    if _size(file) != count:
        raise InputError(f"{file} must hold {count} labels, one byte each.")
    labels = np.fromfile(file, np.uint8).astype(np.int64) - 1  # 1 to 10 on disk
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"{file} must hold numbers from 1 to {classes}.")
    return labels


def _names(file: Path, classes: int) -> tuple[str, ...]:
    try:
        names = tuple(file.read_text("utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}.") from None
    if len(names) != classes:
        raise InputError(f"{file} must hold {classes} names.")
    return names
