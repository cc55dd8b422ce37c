"""SlimageNet64: `SlimageNet64/{train,val,test}/<class>/*`, 64 x 64 pixels; decoded once into the cache."""

from __future__ import annotations

from pathlib import Path

from relatum.data.classfolders import class_names, labelled
from relatum.data.imageset import ImageSet
from relatum.data.paths import locate
from relatum.registry import DATASETS

_FOLDER = "SlimageNet64"


def load(name: str, split: str, root: Path) -> ImageSet:
    """Read `train`, `val` or `test`. Classes are numbered in the order of their names in `train`."""
    row = DATASETS[name]
    place = locate(name, _FOLDER, root, (split, "train"))
    classes = class_names(place / ("train" if (place / "train").is_dir() else split))
    return labelled(name, split, place / split, classes, row.side, row.mean, row.std, row.pad)
