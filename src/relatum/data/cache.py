"""Cache entries: folders that are either complete or absent.

An entry is built in a temporary folder and then renamed, so a killed process never leaves a partial entry. If two
processes build the same entry, the second uses the first one's. Each entry has a seal (`relatum.data.seal`): a damaged
one is noticed and built again. A lack of memory is not damage.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from relatum.data.arrays import Damaged, raise_unless_damaged
from relatum.data.paths import cache_dir, preferred_cache
from relatum.data.seal import SEAL, check_seal, write_seal
from relatum.errors import RelatumError
from relatum.system.files import STALE_SECONDS
from relatum.system.progress import Display

_BUILDING = ".building-"


def entry(
    kind: str, name: str, build: Callable[[Path], None], *, valid: Callable[[Path], bool], replaces: str = ""
) -> Path:
    """The cache folder `kind/name`, built if it is missing or invalid.

    Args:
        kind: the parent folder of the entry, such as `folders`.
        name: the entry's name; it must identify everything that the content depends on.
        build: writes the content into an empty folder.
        valid: returns whether an existing entry is what the caller expects; may raise `Damaged` with a reason.
        replaces: a prefix; other entries of `kind` whose names start with it are removed after the build.
    """
    shared = preferred_cache() / kind / name  # may be readable where it is not writable
    checked = _identity(shared)
    if _usable(shared, valid):
        return shared
    place = cache_dir(kind) / name
    if place != shared:
        checked = _identity(place)
        if _usable(place, valid):
            return place
    if checked is not None and _identity(place) == checked:  # still the damaged one, not rebuilt by another process
        shutil.rmtree(place, ignore_errors=True)
    with _write_errors(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        _sweep(place.parent)
        work = place.parent / f"{_BUILDING}{os.getpid()}-{secrets.token_hex(4)}"
        work.mkdir()  # its mode follows the umask: other users of a shared cache can read it
        try:
            build(work)
            write_seal(work)
            sync(work / SEAL)
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


def _identity(place: Path) -> tuple[int, int] | None:
    try:
        status = place.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _usable(place: Path, valid: Callable[[Path], bool]) -> bool:
    """Whether an entry exists and is undamaged; a damaged one is reported in one line."""
    try:
        if not place.is_dir():
            return False
        check_seal(place)
        if valid(place):
            return True
        problem = "its content does not fit"
    except Damaged as error:
        problem = str(error)
    except (OSError, MemoryError) as error:
        raise_unless_damaged(error, place)
        problem = getattr(error, "strerror", None) or str(error)
    if problem:  # empty: an entry of an earlier version
        Display().warn(f"the cache entry {place} is damaged ({problem}) and is built again.")
    return False


def _sweep(folder: Path) -> None:
    for old in folder.glob(f"{_BUILDING}*"):
        try:
            if time.time() - old.stat().st_mtime > STALE_SECONDS:
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
            f"the cache in {folder} could not be written: {reason}.\nSet RELATUM_CACHE to a folder with free space."
        ) from error


def sync(path: Path) -> None:
    """Flush a file to disk, so that a power failure after the rename cannot leave it empty."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
