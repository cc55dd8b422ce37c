"""Reads `tiny-imagenet-200`: JPEG files of 64 × 64 pixels, decoded once into the cache.

`train` is `train/<wnid>/images/*.JPEG`. `test` is the archive's `val` folder, either as published (`val/images` with
`val/val_annotations.txt`) or rearranged into one folder per class, as is common.
"""

from __future__ import annotations

from pathlib import Path

from relatum.data.dataset import Dataset
from relatum.data.imageset import ImageSet
from relatum.data.paths import locate
from relatum.data.readers.class_folders import class_folders, read_class_folders
from relatum.errors import InputError


def read(dataset: Dataset, split: str, root: Path) -> ImageSet:
    """Read `train` or `test`. Classes are in the order of their WordNet ids and named by their first word."""
    folder = locate(dataset, root, ("wnids.txt", "train"))
    classes = _wordnet_ids(folder)
    images = folder / ("train" if split == "train" else "val")
    class_of_file = None
    published = images / "images"
    if split == "test" and published.is_dir() and any(published.iterdir()):  # scripts that rearrange it leave it empty
        class_of_file = dict(_first_two_columns(images / "val_annotations.txt"))
        images = published
    descriptions = dict(_first_two_columns(folder / "words.txt")) if (folder / "words.txt").exists() else {}
    names = {wnid: descriptions[wnid].split(",")[0].strip() for wnid in classes if wnid in descriptions}
    return read_class_folders(dataset, split, images, classes, names=names, class_of_file=class_of_file)


def _wordnet_ids(folder: Path) -> tuple[str, ...]:
    file = folder / "wnids.txt"
    return tuple(sorted(_text(file).split())) if file.exists() else class_folders(folder / "train")


def _first_two_columns(file: Path) -> list[tuple[str, str]]:
    """The first two columns of a tab-separated file."""
    rows = [line.split("\t") for line in _text(file).splitlines() if line.strip()]
    if any(len(row) < 2 for row in rows):
        raise InputError(f"{file} must be lines of columns separated by tabs.")
    return [(row[0], row[1]) for row in rows]


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
