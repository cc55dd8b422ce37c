"""Decodes image files into one memory-mapped array in the cache; later calls on the same files reuse it.

An entry contains `images.npy` (N, side, side, 3) and `meta.json` (mean, std, and the skipped files with reasons).
Files are decoded in threads: Pillow releases the interpreter lock while it decodes and resizes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.data import cache
from relatum.data.arrays import Damaged, open_array, write_header
from relatum.data.dataset import RGB
from relatum.data.decode import Source, decode, formats, reason, useful_threads
from relatum.data.imageset import Skipped
from relatum.errors import RelatumError
from relatum.system.progress import bar
from relatum.system.untrusted import read_json_bounded

_VERSION = 2  # increase when the same file gives different pixels
_PROBE = 4  # files that are timed first
_CHUNK = 16  # files per task: long enough to hide a thread's hand-over, short enough for an even load
_MACHINE = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT)
# Reasons for which a good file may be skipped: the machine had no memory, no file descriptors, or no connection to the
# disk. Such a file is tried again.
PASSING = frozenset({reason(MemoryError()), *(reason(OSError(n, os.strerror(n))) for n in _MACHINE)})
_CHUNK_BYTES = 4 << 20  # decoded, per task: four tasks per thread wait to be written

Read = Callable[[str], Source]
Stamp = tuple[int, int, int]  # size, mtime and ctime: they change when a file does


@dataclass(frozen=True)
class Decoded:
    """Decoded images in one array.

    Attributes:
        images: (N, side, side, 3) uint8, a read-only memory map.
        kept: indices of the files that were decoded, in order.
        skipped: the files that could not be decoded.
        mean, std: per channel, of pixels scaled to [0, 1].
    """

    images: NDArray[np.uint8]
    kept: list[int]
    skipped: tuple[Skipped, ...]
    mean: RGB
    std: RGB


def decode_files(
    root: Path, files: Sequence[str], side: int, stamps: Sequence[Stamp], read: Read | None = None
) -> Decoded:
    """Decode files, or load the result of an earlier call from the cache.

    Args:
        root: the folder that `files` are relative to.
        files: relative paths, in order.
        side: height and width of the decoded images in pixels.
        stamps: size, mtime and ctime of each file.
        read: returns the path or the bytes of a file; by default its path under `root`.
    """
    place = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
    digest = hashlib.sha256()
    for file, (size, mtime, ctime) in zip(files, stamps, strict=True):
        digest.update(os.fsencode(file) + b"\0%d %d %d\0" % (size, mtime, ctime))
    prefix = f"{place}-{side}-v{_VERSION}-"
    for attempts_left in (2, 1, 0):
        entry = cache.entry(
            "folders",
            prefix + digest.hexdigest()[:24],
            lambda work: _build(work, root.name or str(root), read or root.joinpath, files, side),
            valid=lambda entry: _open(entry, files, side, try_again=True) is not None,
            replaces=prefix,
        )
        try:
            return _open(entry, files, side)
        except (Damaged, FileNotFoundError):  # another process found more or fewer files in the folder, and replaced it
            if not attempts_left:
                raise RelatumError(f"{entry} is repeatedly removed by other processes: {root} changes.") from None
    raise AssertionError


def _open(entry: Path, files: Sequence[str], side: int, *, try_again: bool = False) -> Decoded:
    """The images of an entry; with `try_again`, one is not used if a skipped file may be readable now."""
    try:
        meta = read_json_bounded(entry / "meta.json")
        skipped = {int(number): str(why) for number, why in meta["skipped"]}
        mean, std = (_triple(np.array(meta[name])) for name in ("mean", "std"))
        passing = bool(meta.get("again")) or (bool(skipped) and meta.get("formats") != list(formats()))
    except (ValueError, KeyError, TypeError):
        raise Damaged("meta.json is not readable") from None
    if passing and try_again:
        raise Damaged  # without a message
    if not all(0 <= number < len(files) for number in skipped):
        raise Damaged("its content does not fit")
    return Decoded(
        images=open_array(entry / "images.npy", (len(files) - len(skipped), side, side, 3)),
        kept=[number for number in range(len(files)) if number not in skipped],
        skipped=tuple(Skipped(files[number], why) for number, why in skipped.items()),
        mean=mean,
        std=std,
    )


def _build(work: Path, name: str, read: Read, files: Sequence[str], side: int) -> None:
    skipped: list[tuple[int, str]] = []
    again = False
    count, sums = 0, np.zeros((2, 3), np.float64)
    with (work / "images.npy").open("wb") as out, bar(f"decoding {name}", len(files)) as advance:
        start = write_header(out, (len(files), side, side, 3))
        for images, failed in _chunks(read, files, side):
            out.write(images.data)
            sums += channel_sums(images.reshape(-1, 3 * side))
            count += len(images)
            skipped += [(number, reason(error)) for number, error in failed]
            again |= any(reason(error) in PASSING for _, error in failed)
            advance(len(images) + len(failed))
        out.seek(0)
        if write_header(out, (count, side, side, 3)) != start:
            raise AssertionError("the header of a .npy file has grown")  # numpy pads it for any first dimension
    cache.sync(work / "images.npy")
    mean, std = moments(count * side * side, *sums)
    meta = {"mean": mean, "std": std, "skipped": skipped, "again": again, "formats": formats()}
    (work / "meta.json").write_text(json.dumps(meta))
    cache.sync(work / "meta.json")


def channel_sums(rows: NDArray[np.uint8]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Sums per channel of bytes and of their squares, as integers, so the result does not depend on the order.

    Args:
        rows: (N, 3 · n), the channels of a pixel one after the other.
    """
    columns = (values.sum(0, dtype=np.uint64) for values in (rows, np.square(rows, dtype=np.uint16)))
    total, squares = (sums.reshape(-1, 3).sum(0, dtype=np.uint64) for sums in columns)
    return total, squares


def moments(pixels: int, total: NDArray[Any], squares: NDArray[Any]) -> tuple[RGB, RGB]:
    """Mean and standard deviation per channel of pixels scaled to [0, 1], from sums over bytes.

    The standard deviation is at least 1/255, which avoids a division by zero for images of a single colour.
    """
    mean = total / max(pixels, 1) / 255
    std = np.sqrt(np.maximum(squares / max(pixels, 1) / 255**2 - mean**2, 1 / 255**2))
    return _triple(mean), _triple(std)


def _triple(values: NDArray[np.float64]) -> RGB:
    r, g, b = (round(float(v), 6) for v in values)
    return r, g, b


def _decode_chunk(
    read: Read, files: Sequence[str], first: int, side: int
) -> tuple[NDArray[np.uint8], list[tuple[int, Exception]]]:
    images, failed = [], []
    for number, file in enumerate(files, first):
        try:
            images.append(decode(read(file), side))
        except Exception as error:  # Pillow may raise any exception for a damaged file
            failed.append((number, error))
    return np.stack(images) if images else np.empty((0, side, side, 3), np.uint8), failed


def _chunks(
    read: Read, files: Sequence[str], side: int
) -> Iterator[tuple[NDArray[np.uint8], list[tuple[int, Exception]]]]:
    """Chunks of decoded files in order; only a few are decoded ahead, so memory use stays small."""
    ahead: deque[Future[Any]] = deque()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's warnings; unreadable files are listed as skipped
        began = time.perf_counter()
        yield _decode_chunk(read, files[:_PROBE], 0, side)
        workers = useful_threads((time.perf_counter() - began) / len(files[:_PROBE]))
        chunk = max(1, min(_CHUNK, _CHUNK_BYTES // (3 * side * side)))
        pool = ThreadPoolExecutor(workers)
        try:
            for first in range(_PROBE, len(files), chunk):
                ahead.append(pool.submit(_decode_chunk, read, files[first : first + chunk], first, side))
                if len(ahead) > 4 * workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
