"""Cache entries: folders that are either complete or absent.

An entry is built in a temporary folder and then renamed, so a killed process never leaves a partial entry. If two
processes build the same entry, the second uses the first one's.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from relatum.data.paths import cache_dir
from relatum.errors import RelatumError

_STALE_SECONDS = 24 * 3600  # an older temporary folder belongs to a process that was killed


def entry(
    kind: str, name: str, build: Callable[[Path], None], *, valid: Callable[[Path], bool], replaces: str = ""
) -> Path:
    """The cache folder `kind/name`, built if it is missing or invalid.

    Args:
        kind: the parent folder of the entry, such as `folders`.
        name: the entry's name; it must identify everything that the content depends on.
        build: writes the content into an empty folder.
        valid: returns whether an existing entry is usable, or was damaged.
        replaces: a prefix; other entries of `kind` whose names start with it are removed after the build.
    """
    place = cache_dir() / kind / name
    if place.is_dir():
        if valid(place):
            return place
        shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    _sweep(place.parent)
    with _write_errors(place.parent):
        work = Path(tempfile.mkdtemp(prefix=".building-", dir=place.parent))
        try:
            build(work)
            try:
                work.rename(place)
            except OSError:
                if not place.is_dir():
                    raise
                # another process has built the same entry
        finally:
            shutil.rmtree(work, ignore_errors=True)
    if replaces:
        for old in place.parent.glob(f"{replaces}*"):
            if old != place:
                shutil.rmtree(old, ignore_errors=True)
    return place


def _sweep(folder: Path) -> None:
    for old in folder.glob(".building-*"):
        try:
            if time.time() - old.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        except OSError:
            pass


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RelatumError(
            f"the cache in {folder} could not be written: {reason}.\nSet RELATUM_CACHE to a folder with room."
        ) from error


def sync(path: Path) -> None:
    """Flush a file to disk, so that a power failure after the rename cannot leave it empty."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
