"""Loads shards as a streamed `ImageSet`: splits and classes from the index, statistics from a sample.

The rules for splits and classes are those of folders (`relatum.data.layout`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from relatum.data import layout
from relatum.data.dataset import RGB
from relatum.data.decode import image_size
from relatum.data.decoded import channel_sums, moments
from relatum.data.imageset import ImageSet
from relatum.data.paths import Absent, cache_dir
from relatum.data.shards import find
from relatum.data.stream.images import StreamedImages
from relatum.data.stream.index import Numbers, ShardIndex, open_index, readable, shard_names
from relatum.data.stream.store import INDEX_FILE, REQUESTS, LocalShards, RemoteShards, Store
from relatum.system.untrusted import read_bounded

_STATISTICS = 1024  # images that mean and standard deviation are computed from
_DISK_SHARE = 0.25  # of the disk with the cache: shards that would take more decoded are streamed
CACHE_BYTES = 8 << 30  # of shards at a URL, by default


def open_shards(path: str | Path, cache_bytes: int = CACHE_BYTES) -> Store | None:
    """The shards at a URL (text), or at the path of a tar file or of a folder of them; None if it is something else."""
    if isinstance(path, str):
        return RemoteShards(path, cache_bytes)
    shards = find(path)
    if shards is None:
        return None
    listed = path / INDEX_FILE  # names shards that were there when it was written
    if path.is_dir() and listed.is_file():
        with contextlib.suppress(Exception):  # a damaged index is reported where it is used
            shards = sorted({*shards, *(path / name for name in shard_names(read_bounded(listed)))})
    return LocalShards(shards, some=path.is_file())


def too_large_to_decode(store: Store, side: int | None) -> bool:
    """Whether the decoded images would take more than a quarter of the disk with the cache."""
    decoded = len(open_index(store)) * 3 * (side or layout.LARGEST_SIDE) ** 2
    return decoded > _DISK_SHARE * shutil.disk_usage(cache_dir()).total


def load(
    store: Store,
    split: str = "train",
    *,
    side: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    strict: bool = False,
    threads: int | None = None,
) -> ImageSet:
    """A split of shards, streamed.

    Args:
        store: the shards.
        split: `train`, `test`, `val` or `unlabeled`.
        side: decode to this many pixels; by default chosen from a sample.
        mean: per channel; by default computed from a sample, as is `std`.
        std: likewise.
        strict: raise an error where an image cannot be decoded.
        threads: that decode; by default as many as help.
    """
    index = open_index(store)
    whole, skipped = readable(index, store)
    parts = _splits(index, whole)
    if not len(whole):
        raise layout.no_readable_image(store.place, skipped)
    if split not in parts:
        raise Absent(f"{store.place} has no '{split}' split, only {' and '.join(parts)}.")
    prefix, train = parts["train"]
    side = side or choose_side(index, store, train)
    images = StreamedImages(index, store, train, side=side, threads=threads, strict=strict)
    if mean is None or std is None:
        mean, std = _statistics(images)
    classes, labels = _classes(index, train, prefix)
    if split != "train":
        head, numbers = parts[split]
        images = images.with_numbers(numbers)
        place = f"{store.place}{os.sep}{head}"
        classes, labels = _classes(index, numbers, head, classes, place) if split != "unlabeled" else ((), None)
    return ImageSet(
        name=Path(store.place).name or store.place,
        split=split,
        images=cast(Any, images),
        labels=labels,
        classes=classes,
        mean=cast(RGB, tuple(mean)),
        std=cast(RGB, tuple(std)),
        pad=side // 8,
        files=images.files,
        skipped=tuple(skipped),
    )


def split_names_of(url: str) -> tuple[str, ...]:
    """The splits of shards at a URL."""
    index = open_index(RemoteShards(url, CACHE_BYTES))
    return tuple(_splits(index, range(len(index))))


def _splits(index: ShardIndex, whole: Numbers) -> dict[str, tuple[str, Numbers]]:
    """The prefix of folders and the images of each split."""
    tops = {name: name.partition(os.sep)[0] for name in index.folders}
    names = layout.split_names(set(tops.values()))
    if names is None:
        return {"train": ("", whole)}
    numbers = np.asarray(whole, np.int64)
    of_folder = index.samples["folder"][numbers]
    parts: dict[str, tuple[str, Numbers]] = {}
    for top, split in names.items():
        members = [place for place, name in enumerate(index.folders) if tops[name] == top]
        parts[split] = (top, numbers[np.isin(of_folder, members)])
    return parts


def _classes(
    index: ShardIndex, numbers: Numbers, prefix: str, known: tuple[str, ...] = (), place: str = ""
) -> tuple[tuple[str, ...], NDArray[np.int64] | None]:
    """Class names and labels: by `.cls` members if all images have one, else by the folders that they lie in.

    Args:
        index: all images.
        numbers: the images of the split.
        prefix: the folder of the split.
        known: the classes of `train`, where that is another split: they have the same labels in all splits.
        place: the split, for messages.
    """
    rows = index.samples[numbers.start : numbers.stop] if isinstance(numbers, range) else index.samples[numbers]
    if not len(rows):
        return (), None
    if int(rows["number"].min()) >= 0:
        values = np.unique(rows["number"])
        width = max(len(str(int(values[-1]))), *map(len, known), 0)
        names, column = [f"{value:0{width}d}" for value in values], rows["number"]
    else:
        values = np.unique(rows["folder"])
        folders = [os.path.relpath(index.folders[number] or ".", prefix or ".") for number in values]
        names, column = ["" if name == "." else name for name in folders], rows["folder"]
    if known:
        classes = layout.checked_classes(known, set(names), place)
    else:
        classes = layout.class_names(set(names))
    if not classes:
        return (), None
    label_of = {name: label for label, name in enumerate(classes)}
    labels = np.array([label_of[name] for name in names], np.int64)
    return classes, labels[np.searchsorted(values, column)]


def choose_side(index: ShardIndex, store: Store, numbers: Numbers) -> int:
    """The side by the rule of folders, from the headers of a sample."""
    numbers_in_store = index.shard_numbers(store.names)

    def image_size_of(number: int) -> tuple[int, int] | None:
        shard, offset, size = index.place(number)
        return image_size(BytesIO(store.read_apart(numbers_in_store[shard], offset, size)))

    with ThreadPoolExecutor(REQUESTS) as pool:
        return layout.side_of(list(pool.map(image_size_of, numbers[:: max(1, len(numbers) // layout.SAMPLE)])))


def _statistics(images: StreamedImages) -> tuple[RGB, RGB]:
    """Mean and standard deviation of evenly spaced images: all of them if there are few."""
    number = min(_STATISTICS, len(images))
    sample = np.unique(np.linspace(0, len(images) - 1, number).astype(np.int64))
    pixels = images.sample(sample).reshape(-1, 3)
    return moments(len(pixels), *channel_sums(pixels))
