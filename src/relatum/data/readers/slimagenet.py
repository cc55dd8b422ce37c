"""Reads `SlimageNet64/{train,val,test}/<class>/*`, decoded once into the cache."""

from __future__ import annotations

from pathlib import Path

from relatum.data.dataset import Dataset
from relatum.data.imageset import ImageSet
from relatum.data.paths import locate
from relatum.data.readers.class_folders import class_folders, read_class_folders


def read(dataset: Dataset, split: str, root: Path) -> ImageSet:
    """Read `train`, `val` or `test`. Classes are in the order of their names in `train`."""
    folder = locate(dataset, root, (split, "train"))
    classes = class_folders(folder / ("train" if (folder / "train").is_dir() else split))
    return read_class_folders(dataset, split, folder / split, classes)
