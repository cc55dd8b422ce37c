"""Access to shards: tar files on a disk, or at a URL that fsspec can open (https, s3, gs, ...).

fsspec is needed only for URLs (extra `remote`). Reading from a URL is retried a few times before it is an error.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from relatum.data.stream.blocks import BlockCache
from relatum.errors import InputError, RelatumError, missing_package
from relatum.system.untrusted import read_bounded

T = TypeVar("T")
_MAX_OPEN = 64  # shards that are open at a time
_TRIES, _WAIT = 4, 0.5  # attempts to read from a URL; seconds before the second one, doubled each time
_MAX_SHARDS = 1_000_000
REQUESTS = 16  # at a time, for sizes of shards and single images
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_READ_AHEAD = 4 << 20  # bytes of a shard at a URL that are fetched at a time while it is listed
INDEX_FILE = "relatum-index.json"


class Store(Protocol):
    """A list of shards whose bytes can be read from several threads.

    Attributes:
        place: the folder or URL, for messages.
        names: the names of the shards, in order.
        some: whether these shards were named one by one; others that lie beside them are not missing.
    """

    place: str
    names: list[str]
    some: bool

    @property
    def sizes(self) -> list[int | None]:
        """The size of each shard in bytes; None where it is missing."""

    @property
    def stamp(self) -> str:
        """A string that changes when a shard changes."""

    def read(self, number: int, start: int, size: int) -> bytes:
        """At most `size` bytes of a shard."""

    def read_apart(self, number: int, start: int, size: int) -> bytes:
        """As `read`, for bytes whose neighbours will not be read."""

    def open(self, number: int) -> IO[bytes]:
        """A shard as a file, to be read from its start to its end."""

    def keeps(self, stretches: int, size: int) -> bool:
        """Whether ranges of these sizes, in bytes, can be read repeatedly without fetching them again."""

    def read_file(self, name: str) -> bytes | None:
        """A file that lies beside the shards, or None."""


def is_url(data: str | Path) -> bool:
    """Whether data is named by a URL rather than a path."""
    return isinstance(data, str) and "://" in data


class LocalShards:
    """Shards on a disk; at most 64 are open at a time.

    Args:
        paths: the tar files, in order; they lie in one folder.
        some: whether they were named, rather than the folder.
    """

    def __init__(self, paths: Sequence[Path], *, some: bool = False) -> None:
        self._paths, self.some = list(paths), some
        self.place = str(self._paths[0].parent if self._paths else "")
        self.names = [path.name for path in self._paths]
        self._idle: OrderedDict[int, io.FileIO] = OrderedDict()  # by number, the oldest first
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._idle)

    @cached_property
    def _statuses(self) -> list[os.stat_result | None]:
        return [path.stat() if path.is_file() else None for path in self._paths]

    @property
    def sizes(self) -> list[int | None]:
        """The size of each shard; None where it is missing."""
        return [None if status is None else status.st_size for status in self._statuses]

    @property
    def times(self) -> list[int]:
        """When each shard was last changed, in nanoseconds."""
        return [0 if status is None else status.st_mtime_ns for status in self._statuses]

    @property
    def stamp(self) -> str:
        """Names, sizes and times of change."""
        return _digest(str(Path(self.place).resolve()), self.names, self.sizes, self.times)

    def read(self, number: int, start: int, size: int) -> bytes:
        """At most `size` bytes of a shard."""
        with self._lock:
            file = self._idle.pop(number, None)
        if file is None:  # not open, or in use by another thread
            file = self._paths[number].open("rb", buffering=0)
        try:
            file.seek(start)
            return file.read(size)
        finally:
            with self._lock:
                spare = self._idle.pop(number, None)
                self._idle[number] = file
                oldest = self._idle.popitem(last=False)[1] if len(self._idle) > _MAX_OPEN else None
            for unused in (spare, oldest):
                if unused is not None:
                    unused.close()

    read_apart = read

    def keeps(self, stretches: int, size: int) -> bool:
        """True: nothing is fetched."""
        return True

    def open(self, number: int) -> IO[bytes]:
        """A shard as a file."""
        return self._paths[number].open("rb")

    def read_file(self, name: str) -> bytes | None:
        """A file that lies beside the shards, or None."""
        path = Path(self.place) / name
        return read_bounded(path) if path.is_file() else None


def _close(files: OrderedDict[int, io.FileIO]) -> None:
    while files:
        files.popitem()[1].close()


class RemoteShards:
    """Shards at a URL, read in blocks that are kept in a cache of bounded size on the local disk.

    Args:
        url: a folder of tar files, a tar file, or tar files by number: `https://host/train-{000..146}.tar`.
        cache_bytes: the most that this process stores on the local disk.
    """

    def __init__(self, url: str, cache_bytes: int) -> None:
        try:
            import fsspec
        except ImportError:
            raise missing_package("data at a URL", "fsspec") from None
        self.place, self.some = url, url.endswith(".tar")
        try:
            self._system, path = fsspec.core.url_to_fs(url)
            self._paths = [str(p) for p in self._list(str(path))]
        except RelatumError:
            raise
        except (ImportError, ValueError) as error:  # a protocol that is unknown, or needs another package
            raise InputError(f"{url} cannot be opened: {' '.join(str(error).split())}") from None
        except Exception as error:  # whatever the protocol's library raises
            raise InputError(f"{url} cannot be read: {' '.join(str(error).split()) or type(error).__name__}") from None
        if not self._paths:
            raise InputError(
                f"{url} has no tar files: give the URL of a folder of them, of one, or x-{{000..099}}.tar."
            )
        self._folder = self._paths[0].rpartition("/")[0]
        self.names = [path.rpartition("/")[2] for path in self._paths]
        self._cache = BlockCache(cache_bytes, self._fetch, self.stamp)

    def _list(self, path: str) -> list[str]:
        if braces := _BRACES.search(path):
            first, last = braces.groups()
            if int(last) - int(first) >= _MAX_SHARDS:
                raise InputError(f"{self.place} names more than {_MAX_SHARDS:,} shards.")
            numbers = (str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
            return [path[: braces.start()] + n + path[braces.end() :] for n in numbers]
        if path.endswith(".tar"):
            return [path]
        path = path.rstrip("/")
        if (index := self._cat(f"{path}/{INDEX_FILE}")) is not None:
            from relatum.data.stream.index import shard_names

            return [f"{path}/{name}" for name in shard_names(index)]
        return sorted(name for name in self._system.ls(path, detail=False) if str(name).endswith(".tar"))

    @cached_property
    def sizes(self) -> list[int | None]:
        """The size of each shard; None where it is missing."""

        def size(path: str) -> int | None:
            try:
                stated = _patient(lambda: self._system.info(path)["size"], path)
            except FileNotFoundError:
                return None
            if stated is None:
                raise InputError(f"{path} cannot be streamed: its server does not state how large it is.")
            return int(stated)

        with ThreadPoolExecutor(REQUESTS) as pool:
            return list(pool.map(size, self._paths))

    @property
    def stamp(self) -> str:
        """Names and sizes."""
        return _digest(self.place, self.names, self.sizes)

    def read(self, number: int, start: int, size: int) -> bytes:
        """At most `size` bytes of a shard, through the cache."""
        return self._cache.read(number, start, min(size, max(0, (self.sizes[number] or 0) - start)))

    def keeps(self, stretches: int, size: int) -> bool:
        """Whether the cache has room for stretches of consecutive bytes."""
        return self._cache.holds(stretches, size)

    def read_apart(self, number: int, start: int, size: int) -> bytes:
        """As `read`, past the cache."""
        return self._fetch(number, start, size)

    def open(self, number: int) -> IO[bytes]:
        """A shard as a file, past the cache."""
        fetch = functools.partial(self._fetch, number)
        return io.BufferedReader(_RemoteFile(fetch, self.sizes[number] or 0), _READ_AHEAD)

    def read_file(self, name: str) -> bytes | None:
        """A file that lies beside the shards, or None."""
        return self._cat(f"{self._folder}/{name}")

    def _cat(self, path: str) -> bytes | None:
        try:
            return bytes(_patient(lambda: self._system.cat_file(path), path))
        except (FileNotFoundError, PermissionError):
            return None

    def _fetch(self, number: int, start: int, size: int) -> bytes:
        path = self._paths[number]
        expected = min(size, max(0, (self.sizes[number] or 0) - start))

        def fetch() -> bytes:
            content = bytes(self._system.cat_file(path, start=start, end=start + size))
            if len(content) > size:  # a server that ignores ranges
                content = content[start : start + size]
            if len(content) < expected:  # in the cache it would stay, as a damaged image, for all later runs
                raise OSError(f"{len(content):,} of {expected:,} bytes arrived")
            return content

        return _patient(fetch, path)


class _RemoteFile(io.RawIOBase):
    """A file whose bytes `fetch` gives by start and size: with retries, and never fewer than there are."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch, self._size, self._place = fetch, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"no place {base + offset} in a file")
        self._place = base + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), max(0, self._size - self._place))
        content = self._fetch(self._place, size) if size else b""
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)


def _patient(call: Callable[[], T], path: str) -> T:
    """Call a function, and retry after a network error; a missing file is not retried."""
    for attempt in range(_TRIES):
        try:
            return call()
        except (FileNotFoundError, PermissionError):
            raise
        except Exception as error:  # each protocol has its own errors
            if attempt == _TRIES - 1:
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                raise RelatumError(f"{path} could not be read after {_TRIES} attempts: {reason}.") from error
            time.sleep(_WAIT * 2**attempt)
    raise AssertionError


def _digest(*facts: Any) -> str:
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:24]
