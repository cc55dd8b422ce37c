"""Data: datasets, folders of images and shards, all read as an `ImageSet`. No torch here.

The names below are imported on first use: the facts in `relatum.data.sets` need neither numpy nor Pillow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relatum.data.imageset import ImageSet, Skipped
    from relatum.data.inputs import is_image_file, is_path, list_images, read_images
    from relatum.data.loading import find_folder, info, load, may_have_labels
    from relatum.data.paths import cache_dir, data_root
    from relatum.data.subsets import labelled_subset, limit, split_validation

_MODULES = {
    "ImageSet": "imageset",
    "Skipped": "imageset",
    "cache_dir": "paths",
    "data_root": "paths",
    "find_folder": "loading",
    "info": "loading",
    "is_image_file": "inputs",
    "is_path": "inputs",
    "labelled_subset": "subsets",
    "limit": "subsets",
    "list_images": "inputs",
    "load": "loading",
    "may_have_labels": "loading",
    "read_images": "inputs",
    "split_validation": "subsets",
}

__all__ = [
    "ImageSet",
    "Skipped",
    "cache_dir",
    "data_root",
    "find_folder",
    "info",
    "is_image_file",
    "is_path",
    "labelled_subset",
    "limit",
    "list_images",
    "load",
    "may_have_labels",
    "read_images",
    "split_validation",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'relatum.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"relatum.data.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
