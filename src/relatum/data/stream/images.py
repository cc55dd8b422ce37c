"""`StreamedImages`: in the place of an array of images, it decodes the images that are asked for, in threads.

An image that cannot be decoded is replaced by the next one that can, which is a pure function of the data; it is named
once, and counted.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from relatum.data.decode import decode, reason
from relatum.data.imageset import Skipped
from relatum.data.stream.index import Names, ShardIndex
from relatum.data.stream.store import REQUESTS, Store
from relatum.errors import InputError, RelatumError
from relatum.system.progress import Display

_CHUNK = 16  # images per task
_NAMED = 20  # damaged images that are named as they appear
_PIECE = 1 << 16  # rows of the index that are hashed at a time


@dataclass
class _Source:
    """What all selections of one stream share."""

    index: ShardIndex
    store: Store
    side: int
    strict: bool
    pool: ThreadPoolExecutor
    places: list[int]  # the number in the store of each shard of the index
    damaged: dict[int, str] = field(default_factory=dict)


class StreamedImages:
    """Some images of shards, (N, side, side, 3) uint8, decoded when they are indexed.

    Args:
        index: all images.
        store: reads the shards.
        numbers: (N,) the images of the index that this one holds, in rising order.
        side: height and width in pixels.
        threads: that decode.
        strict: raise an error where an image cannot be decoded.
    """

    dtype, ndim = np.dtype(np.uint8), 4

    def __init__(
        self,
        index: ShardIndex,
        store: Store,
        numbers: NDArray[np.int64] | range,
        *,
        side: int,
        threads: int,
        strict: bool = False,
    ) -> None:
        warnings.filterwarnings("ignore", module=r"PIL\.")  # images that cannot be decoded are named
        pool = ThreadPoolExecutor(threads, thread_name_prefix="relatum-decode")
        self._source = _Source(index, store, side, strict, pool, index.places(store.names))
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """As of an array."""
        return len(self.numbers), self._source.side, self._source.side, 3

    @property
    def nbytes(self) -> int:
        """The bytes that all images would take decoded."""
        return len(self.numbers) * 3 * self._source.side**2

    @property
    def files(self) -> Sequence[str]:
        """The name of each image."""
        return Names(self._source.index, self.numbers)

    @property
    def damaged(self) -> list[Skipped]:
        """The images that could not be decoded so far."""
        return [Skipped(self._source.index.name(n), why) for n, why in sorted(self._source.damaged.items())]

    def select(self, indices: NDArray[np.int64]) -> StreamedImages:
        """Some of the images, in that order."""
        selected = object.__new__(StreamedImages)
        selected._source, selected.numbers = self._source, _at(self.numbers, np.asarray(indices, np.int64))
        return selected

    def shard_counts(self) -> NDArray[np.int64]:
        """How many of the images each shard holds, shards without any left out."""
        firsts = self._source.index.firsts
        if isinstance(self.numbers, range):
            ends = np.clip(firsts, self.numbers.start, self.numbers.stop)
        else:
            ends = np.searchsorted(self.numbers, firsts)
        counts = np.diff(ends)
        return counts[counts > 0]

    def window_fits(self, window: int, lanes: int) -> bool:
        """Whether the cache of shards at a URL holds a shuffle window; otherwise its blocks are fetched repeatedly."""
        index, store = self._source.index, self._source.store
        bytes_per_image = sum(index.sizes) / max(1, len(index))
        window = min(window, len(self))
        return store.keeps(lanes, int(bytes_per_image * window / lanes))

    def fingerprint(self) -> str:
        """A hash of the names, classes and sizes of the images. Pixels are not read."""
        index = self._source.index
        digest = hashlib.sha256(repr((self.shape, index.folders)).encode("utf-8", "surrogateescape"))
        for start in range(0, len(self), _PIECE):
            numbers = _at(self.numbers, np.arange(start, min(start + _PIECE, len(self))))
            rows = index.samples[numbers]
            digest.update(np.ascontiguousarray(numbers, "<i8").tobytes())
            for name in ("size", "number", "folder"):
                digest.update(np.ascontiguousarray(rows[name]).tobytes())
        for start in range(0, len(index.names), 1 << 24):
            digest.update(index.names[start : start + (1 << 24)].tobytes())
        return digest.hexdigest()[:32]

    def __getitem__(self, key: Any) -> NDArray[np.uint8]:
        if isinstance(key, slice):
            return self.rows(np.arange(*key.indices(len(self)), dtype=np.int64))[0]
        indices = np.asarray(key)
        if indices.ndim == 0:
            return self.rows(indices.reshape(1))[0][0]
        return self.rows(indices)[0]

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        for start in range(0, len(self), 256):
            yield from self[start : start + 256]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)

    def sample(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Single images from all over the shards: what lies around them is not fetched. Damaged ones are left out."""

        def work(index: np.int64) -> NDArray[np.uint8] | None:
            try:
                return decode(BytesIO(cast(bytes, self._read(int(self.numbers[index]), apart=True))), self._source.side)
            except (MemoryError, RelatumError):
                raise
            except Exception:  # it is named when training comes to it
                return None

        with ThreadPoolExecutor(REQUESTS) as pool:
            images = [image for image in pool.map(work, indices) if image is not None]
        if not images:
            raise InputError(f"{self._source.store.place} contains no readable image in a sample of {len(indices)}.")
        return np.stack(images)

    def rows(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The pixels at `indices`, and which images they are: others where one could not be decoded."""
        indices = np.asarray(indices, np.int64)
        if len(indices) and not (-len(self) <= indices.min() and indices.max() < len(self)):
            raise IndexError(f"indices must lie in [0, {len(self)})")
        indices = np.where(indices < 0, indices + len(self), indices)
        pixels = np.empty((len(indices), *self.shape[1:]), np.uint8)
        actual = indices.copy()
        order = np.argsort(indices, kind="stable")  # as the images lie in the shards

        def work(places: NDArray[np.int64]) -> None:
            for place in places:
                actual[place] = self._decode(int(indices[place]), pixels[place])

        tasks = [self._source.pool.submit(work, order[i : i + _CHUNK]) for i in range(0, len(order), _CHUNK)]
        for task in tasks:
            task.result()
        return pixels, actual

    def _decode(self, index: int, out: NDArray[np.uint8]) -> int:
        """Decode an image, or the next one that can be decoded; returns which one it was."""
        source = self._source
        for candidate in chain(range(index, len(self)), range(index)):
            number = int(self.numbers[candidate])
            if number in source.damaged:
                continue
            content = self._read(number)
            if isinstance(content, str):
                self._note(number, content)
                continue
            try:
                out[:] = decode(BytesIO(content), source.side)
                return candidate
            except MemoryError:
                raise
            except Exception as error:  # Pillow may raise any exception for a damaged file
                self._note(number, reason(error))
        raise InputError(f"{source.store.place} contains no readable image.")

    def _read(self, number: int, *, apart: bool = False) -> bytes | str:
        """The bytes of an image, or why they are not there."""
        index = self._source.index
        row = index.samples[number]
        shard = int(np.searchsorted(index.firsts, number, side="right")) - 1
        try:
            read = self._source.store.read_apart if apart else self._source.store.read
            content = read(self._source.places[shard], int(row["offset"]), int(row["size"]))
        except FileNotFoundError:
            return f"{index.shards[shard]} is missing"
        return content if len(content) == int(row["size"]) else f"{index.shards[shard]} ends in the middle of it"

    def _note(self, number: int, why: str) -> None:
        source = self._source
        name = source.index.name(number)
        if source.strict:
            raise InputError(f"{name} of {source.store.place} cannot be read, and --strict was given: {why}.")
        source.damaged[number] = why
        if len(source.damaged) <= _NAMED:
            last = " Further ones are only counted." * (len(source.damaged) == _NAMED)
            Display().warn(f"{name} cannot be read ({why}); another image takes its place.{last}")


def is_streamed(images: Any) -> TypeGuard[StreamedImages]:
    """Whether images are decoded when they are indexed."""
    return isinstance(images, StreamedImages)


def _at(numbers: NDArray[np.int64] | range, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    if isinstance(numbers, range):
        return numbers.start + indices
    return numbers[indices]
