"""Datasets that are published as one folder per class: tiny-ImageNet and SlimageNet64."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from relatum.data.decoded import decode_files
from relatum.data.folder import scan
from relatum.data.imageset import RGB, ImageSet
from relatum.errors import InputError


def class_names(place: Path) -> tuple[str, ...]:
    """The sub-folders of a folder, in order."""
    if not place.is_dir():
        raise InputError(f"{place} is missing.")
    return tuple(sorted(entry.name for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith(".")))


def labelled(
    name: str,
    split: str,
    place: Path,
    classes: Sequence[str],
    side: int,
    mean: RGB,
    std: RGB,
    pad: int,
    *,
    words: Mapping[str, str] | None = None,
    label_of: Mapping[str, str] | None = None,
) -> ImageSet:
    """Images whose class is the first folder of their path, or what a list of files says.

    Args:
        name: the dataset's.
        split: its part.
        place: the folder that holds the images.
        classes: folder names, in the order of their numbers.
        side: of the pictures.
        mean: of the dataset.
        std: of the dataset.
        pad: of the dataset.
        words: names for people, by folder name.
        label_of: class by file name, where it is not the folder.
    """
    number = {label: i for i, label in enumerate(classes)}
    listing = scan(place) if place.is_dir() else None
    if listing is None or not listing.files:
        raise InputError(f"{place} holds no images.")
    found = [_class(file, label_of) for file in listing.files]
    strange = next((file for file, label in zip(listing.files, found, strict=True) if label not in number), None)
    if strange is not None:
        raise InputError(f"{place / strange} belongs to none of the {len(classes)} classes of {name}.")
    decoded = decode_files(place, listing.files, side, listing.stamps)
    if not decoded.kept:
        raise InputError(f"{place} holds no image that can be read.")
    return ImageSet(
        name=name,
        split=split,
        images=decoded.images,
        labels=np.array([number[found[i]] for i in decoded.kept], np.int64),
        classes=tuple((words or {}).get(label, label) for label in classes),
        mean=mean,
        std=std,
        pad=pad,
        files=[listing.files[i] for i in decoded.kept],
        skipped=tuple(sorted((*listing.skipped, *decoded.skipped), key=lambda s: s.path)),
    )


def _class(file: str, label_of: Mapping[str, str] | None) -> str:
    if label_of is not None:
        return label_of.get(os.path.basename(file), "")  # noqa: PTH119 - one of 100,000 names
    return file.partition(os.sep)[0]
