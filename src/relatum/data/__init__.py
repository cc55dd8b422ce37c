"""Data: one file per source, all giving an `ImageSet`. No torch here."""

from relatum.data.imageset import ImageSet, Skipped
from relatum.data.loading import info, load
from relatum.data.paths import cache_dir, data_root
from relatum.data.subsets import labelled_subset, limit, split_validation

__all__ = [
    "ImageSet",
    "Skipped",
    "cache_dir",
    "data_root",
    "info",
    "labelled_subset",
    "limit",
    "load",
    "split_validation",
]
