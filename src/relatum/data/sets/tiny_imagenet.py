"""tiny-ImageNet: `tiny-imagenet-200`, 64 x 64 JPEGs; decoded once into the cache.

`train` is `train/<wnid>/images/*.JPEG`. `test` is the archive's `val` folder, because the test labels were never
published: either as published (`val/images` with `val/val_annotations.txt`) or rearranged into a folder per class, as
many people do.
"""

from __future__ import annotations

from pathlib import Path

from relatum.data.classfolders import class_names, labelled
from relatum.data.imageset import ImageSet
from relatum.data.paths import locate
from relatum.errors import InputError
from relatum.registry import DATASETS

_FOLDER = "tiny-imagenet-200"


def load(name: str, split: str, root: Path) -> ImageSet:
    """Read `train` or `test`. Classes are numbered in the order of their WordNet ids, and named by their first word."""
    row = DATASETS[name]
    place = locate(name, _FOLDER, root, ("wnids.txt", "train"))
    classes = _wnids(place)
    part = place / ("train" if split == "train" else "val")
    annotations = part / "val_annotations.txt"
    label_of = None
    if split == "test" and (part / "images").is_dir():
        label_of = dict(_rows(annotations))
        part = part / "images"
    words = dict(_rows(place / "words.txt")) if (place / "words.txt").exists() else {}
    words = {wnid: words[wnid].split(",")[0].strip() for wnid in classes if wnid in words}
    return labelled(name, split, part, classes, row.side, row.mean, row.std, row.pad, words=words, label_of=label_of)


def _wnids(place: Path) -> tuple[str, ...]:
    file = place / "wnids.txt"
    return tuple(sorted(_text(file).split())) if file.exists() else class_names(place / "train")


def _rows(file: Path) -> list[tuple[str, str]]:
    """The first two columns of a tab-separated file."""
    rows = [line.split("\t") for line in _text(file).splitlines() if line.strip()]
    if any(len(row) < 2 for row in rows):
        raise InputError(f"{file} must be lines of columns with tabs between them.")
    return [(row[0], row[1]) for row in rows]


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
