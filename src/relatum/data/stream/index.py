"""The index of shards on disk: for every image its shard, offset, size, class and name.

It is written once, by `relatum data shard` (three files beside the shards) or when shards without an index are first
used (in the cache). It is read through memory maps and takes no memory: 28 bytes per image and its name on disk.
Images are numbered in the order in which they are stored, one shard after the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.data import cache
from relatum.data.arrays import Damaged
from relatum.data.imageset import Skipped
from relatum.data.stream.listing import MAX_MEMBER, list_images
from relatum.data.stream.store import INDEX_FILE, Store
from relatum.system.progress import Display, bar
from relatum.system.untrusted import check_regular, parse_json

_VERSION = 1
_HEADER = 512  # bytes before each member of a tar file
_SAMPLES, _NAMES = "relatum-index.samples", "relatum-index.names"
FILES = (_SAMPLES, _NAMES, INDEX_FILE)  # the last one is written last
_SAMPLE = np.dtype([("offset", "<u8"), ("size", "<u4"), ("number", "<i4"), ("folder", "<u4"), ("name_end", "<u8")])


@dataclass(frozen=True)
class ShardIndex:
    """All images of a list of shards.

    Attributes:
        shards: the names of the shards.
        sizes: the size of each shard when it was listed.
        firsts: (S + 1,) the number of the first image of each shard, and the number of all.
        folders: the folders in the shards that hold images.
        samples: (N,) per image: `offset` and `size` in its shard, `number` (its class by a `.cls` member, or -1),
            `folder` (a position in `folders`) and `name_end` (where its name ends in `names`).
        names: the names of all images in their folders, one after the other.
        skipped: members and shards that could not be read.
    """

    shards: list[str]
    sizes: list[int]
    firsts: NDArray[np.int64]
    folders: list[str]
    samples: NDArray[Any]
    names: NDArray[np.uint8]
    skipped: list[Skipped]

    def __len__(self) -> int:
        return len(self.samples)

    def place(self, number: int) -> tuple[int, int, int]:
        """The location of an image: the number of its shard, offset and size in bytes."""
        row = self.samples[number]
        return int(self.shard_of(number)), int(row["offset"]), int(row["size"])

    def shard_of(self, numbers: NDArray[np.int64] | int) -> Any:
        """The shard of each image, as a position in `shards`."""
        return np.searchsorted(self.firsts, numbers, side="right") - 1

    def shard_numbers(self, names: Sequence[str]) -> list[int]:
        """The number of each shard among `names`, which may be some of the shards, in another order; -1 for none."""
        numbers = {name: number for number, name in enumerate(names)}
        return [numbers.get(shard, -1) for shard in self.shards]

    def name(self, number: int) -> str:
        """The path of an image in the packed folder."""
        start = int(self.samples[number - 1]["name_end"]) if number else 0
        row = self.samples[number]
        base = os.fsdecode(self.names[start : int(row["name_end"])].tobytes())
        folder = self.folders[int(row["folder"])]
        return f"{folder}{os.sep}{base}" if folder else base


Numbers = NDArray[np.int64] | range  # of images of an index


class Names(Sequence[str]):
    """The names of some images of an index, read when they are indexed."""

    def __init__(self, index: ShardIndex, numbers: Numbers) -> None:
        self._index, self._numbers = index, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return Names(self._index, self._numbers[key])
        return self._index.name(int(self._numbers[key]))


def open_index(store: Store) -> ShardIndex:
    """The index of shards: the one beside them if it fits, else one in the cache, which is written if it is missing."""
    beside = _beside(store)
    if beside is not None:
        return beside
    entry = cache.entry(
        "shards",
        f"{store.stamp}-v{_VERSION}",
        lambda work: write_index(store, work),
        valid=lambda entry: _read(entry, (entry / INDEX_FILE).read_bytes()) is not None,
    )
    return _read(entry, (entry / INDEX_FILE).read_bytes())


def _beside(store: Store) -> ShardIndex | None:
    """The index stored beside the shards; None if there is none, or if the shards have changed since."""
    try:
        content = store.read_file(INDEX_FILE)
        if content is None:
            return None
        document = _document(content)
        listed = dict(zip(document["shards"], document["sizes"], strict=True))
        sizes = dict(zip(store.names, store.sizes, strict=True))
        # A shard that was cut off or lost since keeps the rest of the index; any other change makes it useless.
        if any(name not in listed or (size or 0) > listed[name] for name, size in sizes.items()):
            raise Damaged("the shards have changed since it was written")
        folder = Path(store.place)
        if not folder.is_dir():  # at a URL: its files are copied to the cache
            folder = cache.entry(
                "shards",
                f"{hashlib.sha256(content).hexdigest()[:24]}-copy",
                lambda work: _copy(store, work),
                valid=lambda entry: all((entry / name).is_file() for name in FILES),
            )
        index = _read(folder, content, check=True)
        _compare(index, store)
        return index
    except (Damaged, ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
        reason = str(error) or type(error).__name__
        Display().warn(f"the index in {store.place} is not used ({reason}); the shards are listed again.")
        return None


def _compare(index: ShardIndex, store: Store) -> None:
    """Look at three images of each shard on this disk: a shard that was packed anew has others at their places."""
    if not Path(store.place).is_dir():
        return
    for shard, first, end in zip(index.shards, index.firsts[:-1], index.firsts[1:], strict=True):
        if first == end or shard not in store.names:
            continue
        number = store.names.index(shard)
        for row in index.samples[[first, (first + end) // 2, end - 1]]:
            start = int(row["offset"])
            if start + int(row["size"]) > (store.sizes[number] or 0):
                continue  # cut off: its images are skipped
            try:
                size = tarfile.nti(store.read(number, start - _HEADER, _HEADER)[124:136])  # type: ignore[attr-defined]
            except tarfile.HeaderError:
                size = -1
            if size != int(row["size"]):
                raise Damaged(f"{shard} has changed since it was written")


def _copy(store: Store, work: Path) -> None:
    for name in FILES:
        content = store.read_file(name)
        if content is None:
            raise Damaged(f"{name} is missing")
        (work / name).write_bytes(content)


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = parse_json(content)
        if document["version"] != _VERSION:
            raise Damaged(f"it has version {document['version']}")
        return dict(document)
    except (ValueError, KeyError, TypeError):
        raise Damaged("it is not readable") from None


def shard_names(content: bytes) -> list[str]:
    """The shards that an index file lists."""
    names = _document(content)["shards"]
    return [str(name) for name in names if os.path.basename(str(name)) == str(name)]  # noqa: PTH119


def _read(folder: Path, content: bytes, *, check: bool = False) -> ShardIndex:
    """The index in a folder; `check` compares digests, which the seal of a cache entry makes unnecessary."""
    document = _document(content)
    count, letters = (int(document[key]) for key in ("images", "letters"))
    samples, names = (
        _map(folder / _SAMPLES, _SAMPLE, count, document["digests"][0] if check else None),
        _map(folder / _NAMES, np.dtype(np.uint8), letters, document["digests"][1] if check else None),
    )
    firsts = np.array(document["firsts"], np.int64)
    if (
        len(firsts) != len(document["shards"]) + 1
        or firsts[0] != 0
        or firsts[-1] != count
        or (np.diff(firsts) < 0).any()
    ):
        raise Damaged("its numbers of images are wrong")
    skipped = [Skipped(str(path), str(reason)) for path, reason in document["skipped"]]
    shards, sizes = [str(s) for s in document["shards"]], [int(size) for size in document["sizes"]]
    index = ShardIndex(shards, sizes, firsts, [str(f) for f in document["folders"]], samples, names, skipped)
    _check_rows(index)
    return index


def _check_rows(index: ShardIndex) -> None:
    """Check that images lie within their shards and names within the list of names: the index may be untrusted."""
    if not len(index):
        return
    ends = index.samples["offset"].astype(np.uint64) + index.samples["size"]
    shard_ends = np.repeat(np.array(index.sizes, np.uint64), np.diff(index.firsts))
    name_ends = index.samples["name_end"]
    if (
        index.samples["offset"].min() < _HEADER
        or (index.samples["offset"] > shard_ends).any()
        or (ends > shard_ends).any()
        or int(index.samples["size"].max()) > MAX_MEMBER
        or int(index.samples["folder"].max()) >= len(index.folders)
        or int(name_ends[-1]) > len(index.names)
        or (name_ends[1:] < name_ends[:-1]).any()
    ):
        raise Damaged("its places or names are wrong")


def _map(path: Path, dtype: np.dtype[Any], count: int, digest: str | None) -> NDArray[Any]:
    try:
        check_regular(path)  # a device has size 0 and no end
        if path.stat().st_size != count * dtype.itemsize:
            raise Damaged(f"{path.name} has another size")
        if digest is not None and _digest(path) != digest:
            raise Damaged(f"{path.name} has changed since it was written")
    except OSError as error:
        raise Damaged(f"{path.name}: {error.strerror or error}") from None
    return np.memmap(path, dtype, "r", shape=(count,)) if count else np.empty(0, dtype)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def readable(index: ShardIndex, store: Store) -> tuple[Numbers, list[Skipped]]:
    """The images whose bytes are there, and what is skipped: shards may be lost or cut off after they were listed."""
    skipped, gone = list(index.skipped), []
    sizes = dict(zip(store.names, store.sizes, strict=True))
    for number, (shard, listed) in enumerate(zip(index.shards, index.sizes, strict=True)):
        size = sizes.get(shard)
        rows = slice(int(index.firsts[number]), int(index.firsts[number + 1]))
        if store.some and shard not in sizes:
            gone.append(np.arange(rows.start, rows.stop))
        elif size is None and listed:
            skipped.append(Skipped(shard, f"the shard is missing: its {rows.stop - rows.start:,} images are skipped"))
            gone.append(np.arange(rows.start, rows.stop))
        elif size is not None and size < listed:
            ends = index.samples["offset"][rows].astype(np.int64) + index.samples["size"][rows]
            lost = rows.start + np.flatnonzero(ends > size)
            skipped.append(Skipped(shard, f"the shard was cut off: {len(lost):,} of its images are skipped"))
            gone.append(lost)
    if not gone:
        return range(len(index)), skipped
    return np.setdiff1d(np.arange(len(index)), np.concatenate(gone), assume_unique=True), skipped


# ------------------------------------------------------------------------------------------------------------- listing


def write_index(store: Store, out: Path) -> None:
    """List all shards and write the index into a folder."""
    skipped: list[Skipped] = []
    folders: dict[str, int] = {}
    firsts, letters = [0], 0
    with (
        (out / _SAMPLES).open("wb") as samples,
        (out / _NAMES).open("wb") as names,
        bar("listing shards", sum(size or 0 for size in store.sizes), bytes=True) as advance,
    ):
        for number, (shard, size) in enumerate(zip(store.names, store.sizes, strict=True)):
            if size is None:
                skipped.append(Skipped(shard, "the shard is missing"))
            rows = [] if size is None else list_images(store, number, shard, size, skipped)
            table = np.zeros(len(rows), _SAMPLE)
            for row, member in enumerate(rows):
                folder, base = os.path.split(member.name)
                encoded = os.fsencode(base)
                letters += len(encoded)
                names.write(encoded)
                place = folders.setdefault(folder, len(folders))
                table[row] = (member.offset, member.size, member.number, place, letters)
            samples.write(table.tobytes())
            firsts.append(firsts[-1] + len(rows))
            advance(size or 0)
    document = {
        "version": _VERSION,
        "images": firsts[-1],
        "letters": letters,
        "shards": store.names,
        "sizes": [size or 0 for size in store.sizes],
        "firsts": firsts,
        "folders": list(folders),
        "skipped": [(s.path, s.reason) for s in skipped],
        "digests": [_digest(out / name) for name in (_SAMPLES, _NAMES)],
    }
    part = out / f"{INDEX_FILE}.part"
    part.write_text(json.dumps(document))
    part.replace(out / INDEX_FILE)
