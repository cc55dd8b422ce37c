"""The data root, which contains the datasets, and the cache folder, which contains decoded images.

Data root: `--root`, else `$RELATUM_DATA`, else `data` in the cache folder. Cache folder: `$RELATUM_CACHE`, else
`relatum` in the user's cache folder; if that is not writable, a private folder in the system's temporary folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from relatum.data.dataset import Dataset
from relatum.errors import InputError
from relatum.system.files import expand_user


class Absent(InputError):
    """A dataset, or a split of it, is not on disk (rather than damaged)."""


def preferred_cache() -> Path:
    """The cache folder that the environment names, whether or not it can be written."""
    if folder := os.environ.get("RELATUM_CACHE"):
        return expand_user(folder)
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return expand_user(folder) / "relatum"
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    if sys.platform == "win32":
        usual = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    try:
        return expand_user(usual) / "relatum"
    except InputError:  # a user without a home folder, as in some containers
        return _temporary()


def data_root(root: Path | str | None = None) -> Path:
    """The folder that contains the datasets: `root`, else `$RELATUM_DATA`, else `data` in the cache folder."""
    if root is not None:
        return expand_user(root)
    if folder := os.environ.get("RELATUM_DATA"):
        return expand_user(folder)
    return preferred_cache() / "data"


def cache_dir(kind: str = "") -> Path:
    """The cache folder, or its sub-folder `kind`, created if missing; a temporary one, with a warning, if not writable.

    In a cache that several users share, a sub-folder may be another user's.
    """
    return _writable(preferred_cache(), kind)


@lru_cache(maxsize=8)
def _writable(cache: Path, kind: str) -> Path:
    folder = cache / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        fallback = _temporary() / kind
        fallback.mkdir(exist_ok=True)
        reason = error.strerror or str(error)
        warnings.warn(
            f"the cache folder {folder} cannot be written ({reason}); using {fallback}. RELATUM_CACHE sets another.",
            stacklevel=3,
        )
        return fallback


def _temporary() -> Path:
    """A temporary folder that stays between runs; not used if another user could have created it."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    fallback = Path(tempfile.gettempdir()) / f"relatum-{user}"
    try:
        fallback.mkdir(mode=0o700, exist_ok=True)
        status = fallback.lstat()
        private = (
            not fallback.is_symlink()
            and (not hasattr(os, "getuid") or status.st_uid == user)
            and not status.st_mode & 0o022
        )
        if private and os.access(fallback, os.W_OK):
            return fallback
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="relatum-"))


def locate(dataset: Dataset, root: Path, marks: Iterable[str] = ()) -> Path:
    """The folder of a dataset: `dataset.folder` in the data root, or the root itself if it is that folder.

    Args:
        dataset: facts.
        root: the data root.
        marks: files or folders, one of which shows that a folder is the dataset's; by default `dataset.files`.
    """
    marks = tuple(marks) or dataset.files
    for folder in (root / dataset.folder, root):
        if any((folder / mark).exists() for mark in marks):
            return folder
    raise Absent(
        f"{dataset.name} is not in {root} (looked for {dataset.folder}/{marks[0]}).\n"
        f"Run `relatum data get {dataset.name}`, or give the folder that contains it with --root or $RELATUM_DATA."
    )
