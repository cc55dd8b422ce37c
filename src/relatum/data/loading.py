"""`load` and `info`: from a dataset's name or a folder to images.

A dataset's name always means that dataset; to use a folder of the same name, write a path (`./shapes`, or a `Path`
that exists). Everything else is a folder of images.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from relatum import registry
from relatum.data import folder, sets
from relatum.data.dataset import Dataset
from relatum.data.imageset import ImageSet
from relatum.data.layout import class_names
from relatum.data.paths import Absent, data_root
from relatum.data.stream import loading as stream
from relatum.data.stream.loading import CACHE_BYTES
from relatum.data.stream.store import is_url
from relatum.errors import InputError, require_channels, unknown
from relatum.system.files import expand_user, nearest_path


def load(
    data: str | Path,
    split: str = "train",
    *,
    root: Path | None = None,
    side: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    strict: bool = False,
    storage: str = "auto",
    cache_bytes: int = CACHE_BYTES,
    threads: int | None = None,
) -> ImageSet:
    """Load a split of a dataset or of a folder of images.

    Args:
        data: a dataset's name (`relatum list datasets`), a folder of images or of shards, or the URL of shards.
        split: `train`, `test`, `val` or `unlabeled`, if the dataset or folder has it.
        root: the folder that contains the datasets; by default `$RELATUM_DATA`, else the user's cache folder.
        side: resize to this many pixels; by default the dataset's, or chosen from the sizes of the folder's images.
        mean: per channel, for the normalisation of views; by default the dataset's, or computed from the folder.
        std: likewise.
        strict: raise an error if a file is unreadable, instead of listing it in `skipped`.
        storage: `map` decodes all images once into an array on disk, `stream` decodes them from shards whenever they
            are needed; `auto` streams from URLs, and from shards that decoded would take a quarter of the disk.
        cache_bytes: the most that this process caches of shards at a URL.
        threads: that decode a stream; by default one per core.

    Returns:
        The images with their labels and statistics.

    Raises:
        InputError: there is no such dataset, folder or split, or it cannot be read.
    """
    if side is not None and not 8 <= side <= 1024:
        raise InputError(f"side = {side} is out of range: it must be from 8 to 1024 pixels.")
    given = {key: value for key, value in (("mean", mean), ("std", std)) if value is not None}
    statistics = {key: require_channels(key, value) for key, value in given.items()}
    dataset = _dataset(data)
    if dataset is not None:
        _check_split(dataset, split)
        if storage == "stream":
            raise InputError(f"{dataset.name} cannot be streamed: only tar shards can (relatum data shard).")
        images: ImageSet = registry.resolve(dataset.reader)(dataset, split, data_root(root))
        if side is not None and side != images.side:
            images = resized(images, side)
    else:
        images = _load_files(data, split, storage, cache_bytes, side=side, strict=strict, threads=threads, **statistics)
    if strict and images.skipped:
        raise _unreadable(images)
    return replace(images, mean=statistics.get("mean", images.mean), std=statistics.get("std", images.std))


def _load_files(
    data: str | Path, split: str, storage: str, cache_bytes: int, *, side: int | None, **options: Any
) -> ImageSet:
    """Images of a folder, decoded, or of shards, decoded or streamed."""
    place = _place(data)
    store = stream.open_shards(place, cache_bytes)
    if store is None and storage == "stream":
        raise InputError(f"{data} cannot be streamed: only tar shards can (relatum data shard {data} --out SHARDS).")
    automatic = storage == "auto" and store is not None and (is_url(data) or stream.too_large_to_decode(store, side))
    if store is not None and (storage == "stream" or automatic):
        return stream.load(store, split, side=side, **options)
    if isinstance(place, str):
        raise InputError(f"{data} can only be streamed (data.storage = stream): download it to decode it once.")
    return folder.load(place, split, side=side)


def _place(data: str | Path) -> str | Path:
    """The folder or tar file that data names, also by a `file://` URL; any other URL as it is."""
    if is_url(data) and not str(data).startswith("file://"):
        return str(data)
    return find_folder(str(data).removeprefix("file://"))


def may_have_labels(data: str | Path) -> bool:
    """Whether evaluation on `data` can find labels: False for a folder without one sub-folder per class.

    Only file names are looked at, so the answer comes before an image is decoded.
    """
    if _dataset(data) is not None or not Path(data).is_dir():
        return True
    return any(class_names(folder.folders_of(part.files)) for part in folder.splits(folder.scan(Path(data))).values())


def info(data: str | Path, root: Path | None = None) -> dict[str, Any]:
    """Facts about a dataset or a folder that is on disk, as values that JSON can hold."""
    dataset = _dataset(data)
    if dataset is not None:
        names = tuple(dataset.splits)
    elif isinstance(place := _place(data), str):
        names = stream.split_names_of(place)
    else:
        names = tuple(folder.splits(folder.scan(place)))
    splits: dict[str, Any] = {}
    missing: Absent | None = None
    first: ImageSet | None = None
    classes: tuple[str, ...] = ()
    for split in names:
        try:
            images = load(data, split, root=root)
        except Absent as error:  # some splits of a dataset may be missing; a damaged one is an error
            missing = missing or error
            continue
        first = first or images
        classes = classes or images.classes
        splits[split] = {
            "images": len(images),
            "labelled": images.labels is not None,
            "skipped": [{"path": s.path, "reason": s.reason} for s in images.skipped],
        }
    if first is None:
        assert missing is not None
        raise missing
    return {
        "name": first.name,
        "source": "dataset" if dataset is not None else "folder",
        "splits": splits,
        "images": sum(part["images"] for part in splits.values()),
        "side": first.side,
        "mean": list(first.mean),
        "std": list(first.std),
        "pad": first.pad,
        "labelled": any(part["labelled"] for part in splits.values()),
        "classes": list(classes),
        "skipped": sum(len(part["skipped"]) for part in splits.values()),
    }


def _dataset(data: str | Path) -> Dataset | None:
    """The facts, if `data` names a dataset; None if it is a folder."""
    return sets.get(str(data)) if sets.is_dataset(data) else None


def _check_split(dataset: Dataset, split: str) -> None:
    if split not in dataset.splits:
        hint = " Hold out a part of train with --val-fraction." if split == "val" else ""
        raise Absent(f"{dataset.name} has no '{split}' split; it has {', '.join(dataset.splits)}.{hint}")


def find_folder(data: str | Path) -> Path:
    """The folder (or tar file) that `data` names, or an error that suggests the nearest name."""
    if not str(data):  # `Path("")` is the current folder
        raise unknown("dataset or folder", "", sets.names())
    path = expand_user(data)
    try:
        if path.is_dir() or (path.suffix == ".tar" and path.is_file()):
            return path
        exists = path.exists()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError:  # a null byte
        raise InputError(f"{str(data)!r} is not a path.") from None
    if exists:
        if path.name.lower().endswith((".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")):
            raise InputError(f"{path} is compressed: images are read from their places in a tar file. Unpack it first.")
        raise InputError(f"{path} is a file, not a folder of images.")
    if len(path.parts) == 1:
        if str(data) in sets.names():  # where only a folder will do
            raise InputError(f"'{data}' is a dataset, not a folder of images, and there is no folder of this name.")
        near = difflib.get_close_matches(str(data).lower(), sets.names(), n=1, cutoff=0.5)
        if near:
            raise unknown("dataset or folder", str(data), sets.names())
    folder = nearest_path(path, folders=True)
    hint = f"did you mean '{folder}'?" if folder else f"datasets: {', '.join(sets.names())}."
    raise InputError(f"there is no folder '{data}'; {hint}")


def _unreadable(images: ImageSet) -> InputError:
    first = "; ".join(f"{s.path!r}: {s.reason}" for s in images.skipped[:3])
    more = f"; and {len(images.skipped) - 3} more" if len(images.skipped) > 3 else ""
    number = len(images.skipped)
    return InputError(
        f"{number} file{'s' * (number > 1)} of {images.name} cannot be read, and --strict was given: {first}{more}."
    )


def resized(images: ImageSet, side: int) -> ImageSet:
    """Images resized to another side, with antialiasing."""
    pixels = np.empty((len(images), side, side, 3), np.uint8)
    for i, image in enumerate(images.images):
        pixels[i] = np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC))
    return replace(images, images=pixels, pad=side // 8)
