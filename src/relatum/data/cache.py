"""Folders of the cache that are complete or absent.

An entry is built in a temporary folder beside its place and renamed into it in one step: a process that is killed
leaves nothing that would be taken for an entry, and of two processes that build the same one, the second uses the
first one's.
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

_STALE_SECONDS = 24 * 3600  # a build that is a day old was killed


def entry(
    kind: str, name: str, build: Callable[[Path], None], *, valid: Callable[[Path], bool], replaces: str = ""
) -> Path:
    """The cache's folder `kind/name`, built where it is missing or not valid.

    Args:
        kind: a folder of entries, such as `folders`.
        name: the entry's name, which says everything that its content depends on.
        build: fills a new, empty folder.
        valid: whether an entry can be used (a full disk or a careless hand may have damaged it).
        replaces: entries of `kind` whose names begin so are outdated once this one is there.
    """
    place = cache_dir() / kind / name
    if place.is_dir():
        if valid(place):
            return place
        shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    _sweep(place.parent)
    with _no_room(place.parent):
        work = Path(tempfile.mkdtemp(prefix=".building-", dir=place.parent))
        try:
            build(work)
            try:
                work.rename(place)
            except OSError:
                if not place.is_dir():
                    raise
                # another process was first, with the same content
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
def _no_room(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise RelatumError(
            f"the cache in {folder} could not be written: {why}.\nSet RELATUM_CACHE to a folder with room."
        ) from error


def sync(path: Path) -> None:
    """Have the system write a file out, so that a power cut after the rename cannot leave it hollow."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
