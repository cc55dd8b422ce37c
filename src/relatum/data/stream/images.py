"""`StreamedImages`: used like an array of images, it decodes images when they are indexed, in threads.

An image that cannot be decoded is replaced by the next one that can, which is a pure function of the data; it is
reported once, and counted.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from typing import Any, TypeGuard, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from relatum.data.decode import decode, reason, useful_threads
from relatum.data.imageset import Skipped
from relatum.data.stream.index import Names, Numbers, ShardIndex
from relatum.data.stream.png import filtered_rows, undo_filters
from relatum.data.stream.store import REQUESTS, Store
from relatum.errors import InputError, RelatumError
from relatum.system.cpus import available_cpus
from relatum.system.progress import Display

T = TypeVar("T")
_CHUNK = 16  # images per task
_PROBE = 4  # images that are timed first
_NAMED = 20  # damaged images that are named as they appear
_PIECE = 1 << 16  # rows of the index that are hashed at a time


@dataclass
class _Source:
    """The state that all selections of one stream share."""

    index: ShardIndex
    store: Store
    side: int
    strict: bool
    pool: ThreadPoolExecutor
    shard_numbers: list[int]  # the number in the store of each shard of the index
    damaged: dict[int, str] = field(default_factory=dict)
    single: bool | None = None  # whether one thread decodes; None until the first images were timed


class StreamedImages:
    """Some images of shards, (N, side, side, 3) uint8, decoded when they are indexed.

    Args:
        index: all images.
        store: reads the shards.
        numbers: (N,) the images of the index that this one holds, in rising order.
        side: height and width in pixels.
        threads: that decode, at most; by default one per core. A single one decodes where images take little time.
        strict: raise an error where an image cannot be decoded.
    """

    dtype, ndim = np.dtype(np.uint8), 4

    def __init__(
        self,
        index: ShardIndex,
        store: Store,
        numbers: Numbers,
        *,
        side: int,
        threads: int | None = None,
        strict: bool = False,
    ) -> None:
        warnings.filterwarnings("ignore", module=r"PIL\.")  # images that cannot be decoded are named
        pool = ThreadPoolExecutor(threads or available_cpus(), thread_name_prefix="relatum-decode")
        self._source = _Source(index, store, side, strict, pool, index.shard_numbers(store.names))
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape, as of an array."""
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
        return self.with_numbers(_at(self.numbers, np.asarray(indices, np.int64)))

    def with_numbers(self, numbers: Numbers) -> StreamedImages:
        """Other images of the index, which share the threads and the list of damaged images."""
        selected = object.__new__(StreamedImages)
        selected._source, selected.numbers = self._source, numbers
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
        """Single images from all shards, without fetching their neighbours. Damaged ones are left out."""

        def work(index: np.int64) -> NDArray[np.uint8] | None:
            try:
                where = self._source.index.place(int(self.numbers[index]))
                return decode(BytesIO(cast(bytes, self._read(*where, apart=True))), self._source.side)
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
        numbers = _at(self.numbers, indices)
        samples = self._source.index.samples[numbers]
        shards = self._source.index.shard_of(numbers)
        lists = zip(*(x[order].tolist() for x in (numbers, shards, samples["offset"], samples["size"])), strict=True)
        tasks = list(zip(order.tolist(), lists, strict=True))

        def work(part: list[tuple[int, tuple[int, int, int, int]]]) -> None:
            plain: dict[int, bytes] = {}
            for place, (number, *where) in part:
                content = self._content(number, where)
                rows = None if content is None else filtered_rows(content, self._source.side)
                if rows is not None:
                    plain[place] = rows
                elif content is None or not self._decode(number, content, pixels[place]):
                    actual[place] = self._replace(int(indices[place]), pixels[place])
            for place in undo_filters(list(plain.values()), list(plain), pixels):
                self._note(int(numbers[place]), "unknown filter in a PNG file")
                actual[place] = self._replace(int(indices[place]), pixels[place])

        first = _PROBE if self._source.single is None else 0
        if first and tasks:
            seconds = min(_thread_seconds(work, [task]) for task in tasks[:first])  # most reads fetch nothing
            self._source.single = useful_threads(seconds) == 1
        if self._source.single:
            work(tasks[first:])
            return pixels, actual
        parts = [tasks[i : i + _CHUNK] for i in range(first, len(tasks), _CHUNK)]
        for task in [self._source.pool.submit(work, part) for part in parts]:
            task.result()
        return pixels, actual

    def _content(self, number: int, where: Sequence[int]) -> bytes | None:
        """The bytes of an image of the index, at a shard, offset and size; None and a note if they are not there."""
        if number in self._source.damaged:
            return None
        content = self._read(*where)
        if isinstance(content, str):
            self._note(number, content)
            return None
        return content

    def _decode(self, number: int, content: bytes, out: NDArray[np.uint8]) -> bool:
        """Decode an image of the index by Pillow; False and a note if that cannot be done."""
        try:
            out[:] = decode(BytesIO(content), self._source.side)
        except MemoryError:
            raise
        except Exception as error:  # Pillow may raise any exception for a damaged file
            self._note(number, reason(error))
            return False
        return True

    def _replace(self, index: int, out: NDArray[np.uint8]) -> int:
        """Decode the next image that can be decoded in place of a damaged one; returns which one it is."""
        for candidate in chain(range(index + 1, len(self)), range(index)):
            number = int(self.numbers[candidate])
            content = self._content(number, self._source.index.place(number))
            if content is not None and self._decode(number, content, out):
                return candidate
        raise InputError(f"{self._source.store.place} contains no readable image.")

    def _read(self, shard: int, offset: int, size: int, *, apart: bool = False) -> bytes | str:
        """The bytes of an image, or why they are not there."""
        store, name = self._source.store, self._source.index.shards[shard]
        try:
            content = (store.read_apart if apart else store.read)(self._source.shard_numbers[shard], offset, size)
        except FileNotFoundError:
            return f"{name} is missing"
        return content if len(content) == size else f"{name} ends in the middle of it"

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


def _thread_seconds(work: Callable[[T], None], argument: T) -> float:
    """The time of this thread in a call, without the time in which it waits."""
    began = time.thread_time()
    work(argument)
    return time.thread_time() - began


def _at(numbers: Numbers, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    if isinstance(numbers, range):
        return numbers.start + indices
    return numbers[indices]
