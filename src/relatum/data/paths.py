"""Where data lies: the root that holds the original archives, and the cache that holds what we decoded or made.

Data root: `--root`, else `$RELATUM_DATA`, else `data` in the user's cache folder. Cache: `$RELATUM_CACHE`, else
`relatum` in the user's cache folder; where that cannot be written, a folder of the user's own under the system's
temporary one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from relatum.errors import InputError


def _user_cache() -> Path:
    if given := os.environ.get("RELATUM_CACHE"):
        return Path(given).expanduser()
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given).expanduser() / "relatum"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/relatum").expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "relatum"
    return Path("~/.cache/relatum").expanduser()


def data_root(root: Path | str | None = None) -> Path:
    """The folder that holds the datasets: `root`, else `$RELATUM_DATA`, else `data` in the user's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    if given := os.environ.get("RELATUM_DATA"):
        return Path(given).expanduser()
    return _user_cache() / "data"


def cache_dir() -> Path:
    """The cache folder, made where it is missing; where it cannot be written, a temporary one with one warning."""
    return _writable(_user_cache())


@lru_cache(maxsize=8)
def _writable(wanted: Path) -> Path:
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError as error:
        fallback = _temporary()
        why = error.strerror or str(error)
        warnings.warn(
            f"the cache folder {wanted} cannot be written ({why}); using {fallback}. RELATUM_CACHE sets another.",
            stacklevel=3,
        )
        return fallback


def _temporary() -> Path:
    """A folder that lasts between runs and that no other user of the machine can have prepared."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    fallback = Path(tempfile.gettempdir()) / f"relatum-{user}"
    try:
        fallback.mkdir(mode=0o700, exist_ok=True)
        status = fallback.lstat()
        own = (
            not fallback.is_symlink()
            and (not hasattr(os, "getuid") or status.st_uid == user)
            and not status.st_mode & 0o022
        )
        if own and os.access(fallback, os.W_OK):
            return fallback
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="relatum-"))


def locate(name: str, folder: str, root: Path, marks: Iterable[str]) -> Path:
    """The folder of an original archive under a root, or the root itself where it is that folder.

    Args:
        name: the dataset's name, for the message.
        folder: the archive's own top folder, such as `cifar-10-batches-py`.
        root: the data root.
        marks: files or folders, one of which tells that a folder is the archive's.
    """
    marks = tuple(marks)
    for place in (root / folder, root):
        if any((place / mark).exists() for mark in marks):
            return place
    raise InputError(
        f"{name} is not in {root} (looked for {folder}/{marks[0]}).\n"
        f"Run `relatum data get {name}`, or give the folder that holds it with --root or $RELATUM_DATA."
    )
