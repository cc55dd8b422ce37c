"""One file per dataset, which owns all facts about it, and functions to look the facts up.

A new dataset is one file like these and one row in `relatum.registry.DATASETS`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from relatum import registry
from relatum.data.dataset import CUTOUT_AREA, Dataset
from relatum.errors import RelatumError


def names() -> tuple[str, ...]:
    """The names of all datasets."""
    return tuple(registry.DATASETS)


def is_dataset(data: Any) -> bool:
    """Whether data means a dataset: its name, as text or as a `Path` that does not exist. Otherwise it is a folder."""
    if not isinstance(data, str | os.PathLike) or os.fspath(data) not in registry.DATASETS:
        return False
    return isinstance(data, str) or not Path(data).exists()


def get(name: str) -> Dataset:
    """The facts about a dataset.

    Raises:
        InputError: no dataset has this name; the message suggests the nearest one.
    """
    target = registry.find(registry.DATASETS, "dataset", name)
    dataset = registry.resolve(target)
    if not isinstance(dataset, Dataset) or dataset.name != name:
        raise RelatumError(f"the row '{name}' of relatum.registry.DATASETS must name a Dataset of that name: {target}.")
    return dataset


def title(data: str) -> str:
    """A dataset's name as the paper writes it, or the name of a folder of images."""
    return get(data).title if data in registry.DATASETS else Path(data).name or data


def cutout_area(data: str) -> float:
    """The share of a view that cutout blanks in finetuning, for a dataset or a folder of images."""
    return get(data).cutout_area if data in registry.DATASETS else CUTOUT_AREA


def same_images(first: str, second: str) -> bool:
    """Whether two names stand for the same images, perhaps with different labels."""
    if first == second:
        return True
    return first in registry.DATASETS and second in registry.DATASETS and get(first).same_images == second
