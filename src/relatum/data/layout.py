"""What a folder of images means: its splits, its classes and the side of its images. The same rules hold for shards.

Labels: if all readable images are directly in two or more sub-folders, these are the classes, sorted by name.
Otherwise the images are unlabelled.

Splits: if the sub-folders with images are `train` and at least one of `test`, `val` and `unlabeled` and nothing else,
in small letters or capitals (also `training`, `testing`, `valid` and `validation`), each is a split, and the rule for
labels applies to each; side, mean, standard deviation and classes are those of `train`. Any other folder is a `train`
split as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from relatum.data.imageset import Skipped
from relatum.errors import InputError

_SPLITS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "unlabeled": "unlabeled",
}
SAMPLE = 256  # image headers that are read to choose the side
_LEAST, LARGEST_SIDE, _STEP = 32, 96, 8  # range and step of the side that is chosen automatically


def split_names(tops: set[str]) -> dict[str, str] | None:
    """The split of each top folder, if these are `train` and at least one other split and nothing else."""
    names = {top: _SPLITS.get(top.lower(), "") for top in tops}
    found = set(names.values())
    if "train" in found and "" not in found and len(found) == len(tops) > 1:
        return {top: names[top] for top in sorted(tops, key=lambda top: list(_SPLITS).index(top.lower()))}
    return None


def class_names(folders: set[str]) -> tuple[str, ...]:
    """The folders that hold images, if these are two or more, none is the root and none lies in another folder."""
    if len(folders) < 2 or "" in folders or any(os.sep in folder for folder in folders):
        return ()
    return tuple(sorted(folders))


def checked_classes(classes: tuple[str, ...], folders: set[str], place: str) -> tuple[str, ...]:
    """The classes of `train` for another split: empty if that has no sub-folders, an error if it has other classes."""
    if folders == {""}:
        return ()
    others = sorted(folders - set(classes))
    if others:
        raise InputError(
            f"{place} has images in {others[0]!r}, which is not a class of train ({', '.join(classes[:5])}, ...)."
        )
    return classes


def side_of(sizes: Sequence[tuple[int, int] | None]) -> int:
    """The median of the shorter sides of a sample, to the nearest multiple of 8 from 32 to 96."""
    shorter = [min(size) for size in sizes if size is not None]
    median = float(np.median(shorter)) if shorter else _LEAST
    return int(np.clip(round(median / _STEP) * _STEP, _LEAST, LARGEST_SIDE))


def no_readable_image(place: Path | str, skipped: Sequence[Skipped]) -> InputError:
    """The error for a folder or shards without a readable image, with the first of the files that were skipped."""
    return InputError(f"{place} contains no readable image{first_skipped(skipped)}.")


def first_skipped(skipped: Sequence[Skipped]) -> str:
    """How many files were skipped, and the first of them, in brackets; empty if there are none."""
    if not skipped:
        return ""
    return f" ({len(skipped)} could not be read; the first: {skipped[0].path!r}, {skipped[0].reason})"
