"""Datasets that are published as one folder per class."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from relatum.data.dataset import Dataset
from relatum.data.decoded import decode_files
from relatum.data.folder import scan
from relatum.data.imageset import ImageSet
from relatum.data.paths import Absent
from relatum.errors import InputError


def class_folders(folder: Path) -> tuple[str, ...]:
    """The names of the sub-folders of a folder, sorted."""
    if not folder.is_dir():
        raise Absent(f"{folder} is missing.")
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")))


def read_class_folders(
    dataset: Dataset,
    split: str,
    folder: Path,
    classes: Sequence[str],
    *,
    names: Mapping[str, str] | None = None,
    class_of_file: Mapping[str, str] | None = None,
) -> ImageSet:
    """Read images whose class is the first folder of their path.

    Args:
        dataset: facts.
        split: the split that the folder holds.
        folder: the folder of the images.
        classes: names of the class folders, in the order of their labels.
        names: readable class names by folder name; the folder name otherwise.
        class_of_file: class by file name, where folders do not give it.
    """
    labels = {name: label for label, name in enumerate(classes)}
    if not folder.is_dir():
        raise Absent(f"{folder} contains no images.")
    listing = scan(folder)
    if not listing.files:
        raise InputError(f"{folder} contains no images.")
    file_classes = [_class(file, class_of_file) for file in listing.files]
    for file, name in zip(listing.files, file_classes, strict=True):
        if name not in labels:
            raise InputError(f"{folder / file} belongs to none of the {len(classes)} classes of {dataset.name}.")
    decoded = decode_files(folder, listing.files, dataset.side, listing.stamps)
    if not decoded.kept:
        raise InputError(f"{folder} contains no readable image.")
    return ImageSet.of(
        dataset,
        split,
        decoded.images,
        np.array([labels[file_classes[i]] for i in decoded.kept], np.int64),
        tuple((names or {}).get(name, name) for name in classes),
        files=[listing.files[i] for i in decoded.kept],
        skipped=tuple(sorted((*listing.skipped, *decoded.skipped), key=lambda s: s.path)),
    )


def _class(file: str, class_of_file: Mapping[str, str] | None) -> str:
    if class_of_file is not None:
        return class_of_file.get(os.path.basename(file), "")  # noqa: PTH119 - Path is slow for 100,000 names
    return file.partition(os.sep)[0]
