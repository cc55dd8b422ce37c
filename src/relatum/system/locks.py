"""Locks between processes: one process at a time works in a folder. The system frees the lock of a killed process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from relatum.errors import InputError

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no flock: nothing is locked there)
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


@contextlib.contextmanager
def lock_folder(folder: Path, on_busy: Callable[[IO[str]], None]) -> Iterator[IO[str]]:
    """Hold an exclusive lock on a folder, which is created if it does not exist.

    Args:
        folder: the folder to lock.
        on_busy: called with the open lock file each time another process holds the lock. It raises to give up; when it
            returns, the lock is tried again.

    Yields:
        The open lock file. A child process that inherits its file descriptor holds the lock as well.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}.") from None
    with file:
        while not try_lock(file):
            on_busy(file)
        yield file


def try_lock(file: IO[str] | IO[bytes]) -> bool:
    """Lock an open file without waiting; False if another process holds the lock."""
    if fcntl is None:  # pragma: no cover (Windows)
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that holds nothing but its lock file."""
    with contextlib.suppress(OSError):
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()


def process_alive(pid: str) -> bool:
    """Whether the process with this number is running; a killed process that nobody has waited for is not."""
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text("utf-8")
    return True
