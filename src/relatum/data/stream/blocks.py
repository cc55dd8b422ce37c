"""A cache on disk for blocks of remote shards, of bounded size.

Each process locks a separate folder. A later process that takes over the folder reuses its blocks if they are of the
same shards. Each block ends with its checksum: a damaged one is fetched again.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO

from relatum.data.paths import cache_dir
from relatum.errors import InputError
from relatum.system.files import write_error
from relatum.system.locks import try_lock

_LARGEST, _SMALLEST = 4 << 20, 256 << 10  # bytes of a block
_BLOCKS = 64  # minimum number of blocks in a cache, unless blocks are of the smallest size
_CHECK = 4  # bytes of the checksum
_Key = tuple[int, int]  # number of the shard, number of the block


class BlockCache:
    """Reads shards in blocks and keeps the most recently used ones on disk.

    Args:
        limit: the most bytes on disk.
        fetch: reads (shard, start, size) from the source.
        stamp: names the content of the shards; blocks of others are deleted.
        block: bytes per block; by default 4 MiB, less in a small cache.
    """

    def __init__(
        self, limit: int, fetch: Callable[[int, int, int], bytes], stamp: str, block: int | None = None
    ) -> None:
        block = block or max(_SMALLEST, min(_LARGEST, limit // _BLOCKS))
        if limit < 2 * (block + _CHECK):
            raise InputError(
                f"a cache of {limit / 1e6:g} MB is too small: it must hold two blocks of {block >> 10} KiB."
            )
        self._limit, self._fetch, self._block = limit, fetch, block
        self._lock = threading.Lock()
        self._room = threading.Semaphore(limit // (block + _CHECK) - 1)  # blocks that may be fetched at a time
        self._coming: dict[_Key, threading.Event] = {}
        self._checked: set[_Key] = set()
        self._folder, lock_file = _take_folder(cache_dir("blocks"), f"{stamp}-{block}")
        weakref.finalize(self, lock_file.close)  # frees the folder
        self._sizes: OrderedDict[_Key, int] = OrderedDict()  # the least recently used first
        self._adopt()

    def holds(self, stretches: int, size: int) -> bool:
        """Whether the cache has room for stretches of consecutive bytes, wherever their blocks begin and end."""
        return stretches * (size // self._block + 2) * (self._block + _CHECK) <= self._limit

    @property
    def used(self) -> int:
        """Bytes on disk, with blocks that are being fetched."""
        with self._lock:
            return sum(self._sizes.values())

    def read(self, shard: int, start: int, size: int) -> bytes:
        """`size` bytes of a shard, which must be there."""
        parts = []
        while size > 0:
            number, within = divmod(start, self._block)
            part = min(size, self._block - within)
            parts.append(self._read((shard, number), within, part))
            start, size = start + part, size - part
        return b"".join(parts)

    def _read(self, key: _Key, start: int, size: int) -> bytes:
        while True:
            with self._lock:
                kept = key in self._sizes and key not in self._coming
                coming = self._coming.get(key)
                if kept:
                    self._sizes.move_to_end(key)
                elif coming is None:
                    self._coming[key] = threading.Event()
            if coming is not None:  # another thread fetches it
                coming.wait()
                continue
            content = self._from_disk(key, start, size) if kept else self._from_source(key)[start : start + size]
            if content is not None:
                return content
            with self._lock:  # damaged or gone: fetch it again
                self._sizes.pop(key, None)
                self._path(key).unlink(missing_ok=True)

    def _from_disk(self, key: _Key, start: int, size: int) -> bytes | None:
        try:
            with self._path(key).open("rb", buffering=0) as file:
                if key not in self._checked:
                    whole = file.read(self._block + _CHECK)
                    if _checksum(whole[:-_CHECK]) != whole[-_CHECK:]:
                        return None
                    self._checked.add(key)
                file.seek(start)
                return file.read(size)
        except FileNotFoundError:
            return None

    def _from_source(self, key: _Key) -> bytes:
        try:
            with self._room:
                content = self._fetch(key[0], key[1] * self._block, self._block)
                self._write(key, content)
            return content
        finally:
            with self._lock:
                self._coming.pop(key).set()

    def _write(self, key: _Key, content: bytes) -> None:
        """Make room, then write the block; its name appears when it is complete."""
        path, size = self._path(key), len(content) + _CHECK
        with self._lock:
            for oldest in [k for k in self._sizes if k not in self._coming]:
                if sum(self._sizes.values()) + size <= self._limit:
                    break
                del self._sizes[oldest]
                self._checked.discard(oldest)
                self._path(oldest).unlink(missing_ok=True)
            self._sizes[key] = size
        part = path.with_suffix(".part")
        try:
            with part.open("wb") as file:
                file.write(content)
                file.write(_checksum(content))
            part.replace(path)
            self._checked.add(key)
        except OSError as error:
            with self._lock:
                self._sizes.pop(key, None)
            part.unlink(missing_ok=True)
            raise write_error(path, error) from error

    def _path(self, key: _Key) -> Path:
        return self._folder / f"{key[0]}-{key[1]}.block"

    def _adopt(self) -> None:
        """Use the blocks that an earlier process left, up to the limit."""
        for part in self._folder.glob("*.part"):
            part.unlink(missing_ok=True)
        blocks = sorted(self._folder.glob("*.block"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in blocks:
            size = path.stat().st_size
            numbers = path.stem.split("-")
            if len(numbers) != 2 or not all(n.isdigit() for n in numbers) or self.used + size > self._limit:
                path.unlink(missing_ok=True)
                continue
            self._sizes[int(numbers[0]), int(numbers[1])] = size
            self._sizes.move_to_end((int(numbers[0]), int(numbers[1])), last=False)


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECK, "little")


def _take_folder(parent: Path, stamp: str) -> tuple[Path, IO[bytes]]:
    """A folder that no other process uses, emptied if it holds blocks of other shards, and its locked file."""
    for number in range(1024):
        folder = parent / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("ab")
        with contextlib.suppress(OSError):  # no locks on this file system: the first folder is used
            if not try_lock(file):
                file.close()
                continue
        mark = folder / "stamp"
        if not mark.exists() or mark.read_text("utf-8", "replace") != stamp:
            for path in folder.iterdir():
                if path.name != ".lock":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            mark.write_text(stamp)
        return folder, file
    raise InputError(f"{parent} has 1,024 folders that are in use.")
