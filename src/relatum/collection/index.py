"""`Index`: representations, thumbnails and file facts of a collection, and the file in which a run stores them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.collection.signatures import SIDE
from relatum.data import sets
from relatum.data.decoded import Stamp
from relatum.data.imageset import Skipped
from relatum.runs.artifacts import read_arrays
from relatum.runs.folder import RunFolder
from relatum.system.files import expand_user, file_safe, write_atomically

_VERSION = 8  # increase when the same file gives different arrays
_LOSSLESS = (".png", ".bmp")  # GIF has few colours; TIFF and WebP may be either
_YEARS = (-62_135_596_800, 253_402_300_800)  # the years 1 to 9999, in seconds since 1970
Source = str | os.PathLike[str]


@dataclass(frozen=True)
class Index:
    """Representations, thumbnails and file facts of a collection, sorted by file name.

    Attributes:
        features: (N, d) representations.
        signatures: (N, 48, 48, 3) thumbnails.
        statistics: (N, s) statistics of colour and texture.
        sizes: (N, 2) width and height in pixels.
        stamps: (N, 3) bytes, modification and change time of the files in nanoseconds; zeros for a dataset.
        times: (N,) when the photograph was taken (EXIF), else the modification time, in seconds since 1970.
        digests: hashes of the files' content.
        files: paths relative to the folder, or image numbers of a dataset.
        key: a hash of the weights and the normalisation that the representations depend on.
        skipped: files that could not be read.
        failed: stamps of those that look like images; they are read again only if they change,
        formats: or if other formats can be read than these.
    """

    features: NDArray[np.float32]
    signatures: NDArray[np.uint8]
    statistics: NDArray[np.float32]
    sizes: NDArray[np.int64]
    stamps: NDArray[np.int64]
    times: NDArray[np.int64]
    digests: NDArray[np.str_]
    files: NDArray[np.str_]
    key: str = ""
    skipped: tuple[Skipped, ...] = ()
    failed: Mapping[str, Stamp] = field(default_factory=dict)
    formats: str = ""

    def __len__(self) -> int:
        return len(self.files)

    @property
    def lossless(self) -> list[tuple[int, int] | None]:
        """Width and height of each file whose format keeps every pixel, None for the others."""
        kept = [str(file).lower().endswith(_LOSSLESS) for file in self.files]
        return [(int(w), int(h)) if exact else None for exact, (w, h) in zip(kept, self.sizes, strict=True)]

    @property
    def pixels_and_bytes(self) -> list[tuple[int, int]]:
        """The number of pixels and of bytes of each file."""
        return list(zip(self.sizes.prod(1).tolist(), self.stamps[:, 0].tolist(), strict=True))

    def rows(self, numbers: Sequence[int]) -> Index:
        """The rows with these numbers."""
        return replace(self, **{name: getattr(self, name)[list(numbers)] for name in _ARRAYS})


_FORMS = (
    *(("features", "f", 2), ("signatures", "u", 4), ("statistics", "f", 2), ("sizes", "i", 2), ("stamps", "i", 2)),
    *(("times", "i", 1), ("digests", "U", 1), ("files", "U", 1)),
)
_ARRAYS = tuple(item.name for item in fields(Index) if item.name not in ("key", "skipped", "failed", "formats"))


def merged(parts: Sequence[Index], key: str) -> Index:
    """The rows of all parts, sorted by file."""
    parts = [part for part in parts if len(part)]
    if not parts:
        empty: dict[str, Any] = {name: np.empty(0) for name in _ARRAYS}
        return Index(**empty, key=key)
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
    index = Index(**joined, key=key)
    order = sorted(range(len(index)), key=lambda i: str(index.files[i]))
    return index.rows(order)


def index_file(run: Path, data: Source, split: str) -> Path:
    """Where a run keeps the index of a folder or dataset."""
    name = os.fspath(data)
    where = split if sets.is_dataset(data) else str(expand_user(name).resolve())
    digest = hashlib.sha256(os.fsencode(where)).hexdigest()[:8]
    return RunFolder(run).index / f"{file_safe(name)}-{digest}.npz"


def read_index(path: Path) -> Index | None:
    """An index from its file, or None if there is none that can be used."""
    try:
        file = read_arrays(path, 2 * path.stat().st_size)  # it is not compressed
        if int(file["version"]) != _VERSION:
            return None
        arrays: dict[str, Any] = {name: file[name] for name in _ARRAYS}
        skipped = tuple(Skipped(str(p), str(r)) for p, r in file["skipped"].reshape(-1, 2))
        failed = {str(p): (int(b), int(m), int(c)) for p, b, m, c in file["failed"].reshape(-1, 4)}
        arrays |= {name: str(file[name]) for name in ("key", "formats")}
        index = Index(**arrays, skipped=skipped, failed=failed)
        _check_shapes(index)
        return index
    except Exception:  # a missing or damaged file is written anew; a damaged zip raises many kinds of errors
        return None


def _check_shapes(index: Index) -> None:
    """Check an index from an untrusted file: wrong shapes would fail later, in the middle of a command."""
    n = len(index.files)
    for name, kind, ndim in _FORMS:
        array = getattr(index, name)
        if array.dtype.kind not in kind or array.ndim != ndim or len(array) != n:
            raise ValueError(f"{name} has shape {array.shape}")
    if index.signatures.shape[1:] != (SIDE, SIDE, 3) or index.sizes.shape[1:] != (2,) or index.stamps.shape[1:] != (3,):
        raise ValueError("signatures, sizes or stamps have another shape")
    in_range = (index.times >= _YEARS[0]) & (index.times < _YEARS[1])
    if not index.features.size or not index.statistics.size or not in_range.all():
        raise ValueError("features, statistics or times are out of range")
    if not np.isfinite(index.features).all() or not np.isfinite(index.statistics).all():
        raise ValueError("features are not finite")


def write_index(path: Path, index: Index) -> None:
    """Write an index, atomically."""
    arrays: dict[str, Any] = {name: getattr(index, name) for name in _ARRAYS}
    skipped = np.array([(item.path, item.reason) for item in index.skipped], np.str_).reshape(-1, 2)
    failed = np.array([(path, *map(str, stamp)) for path, stamp in index.failed.items()], np.str_).reshape(-1, 4)
    arrays |= {"key": np.str_(index.key), "formats": np.str_(index.formats), "version": np.int64(_VERSION)}

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **arrays, skipped=skipped, failed=failed)

    write_atomically(path, save)
