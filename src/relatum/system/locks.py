"""Locks between processes: one process at a time works in a folder. The system frees the lock of a killed process.

The lock is `flock` on FOLDER/.lock, which Linux also honours across the machines of an NFS mount. The file names its
owner (host, process, since when). On file systems without locks the owner's record takes the lock's place.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from relatum.errors import InputError

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no flock: nothing is locked there)
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
LOCKS = fcntl is not None  # whether this system has locks
_held: set[tuple[int, int]] = set()  # lock files that this process holds
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock.

    Attributes:
        host: the machine's name.
        process: the process id.
        since: when it took the lock, in UTC.
    """

    host: str
    process: int
    since: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, since {self.since}"

    def alive(self) -> bool:
        """Whether the process is running; assumed to be True on another machine, where this cannot be checked."""
        return self.host != platform.node() or process_alive(str(self.process))


@contextlib.contextmanager
def lock_folder(folder: Path, on_busy: Callable[[Owner | None], None]) -> Iterator[IO[str]]:
    """Hold an exclusive lock on a folder, which is created if it does not exist.

    Args:
        folder: the folder to lock.
        on_busy: called with the owner, if it is known, each time another process holds the lock. It raises to give up;
            when it returns, the lock is tried again.

    Yields:
        The open lock file. A child process that inherits its file descriptor holds the lock as well.

    Raises:
        InputError: the lock file cannot be written, for the reason that the message gives.
    """
    while True:
        file = _open(folder)
        with file:
            if not _take(file, folder):
                on_busy(read_owner(file))
                continue
            if not _same_file(file, folder / LOCK):  # removed between opening and locking: `remove_if_empty`
                continue
            _write_owner(file, Owner(platform.node(), os.getpid(), time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())))
            _held.add(_inode(file))
            try:
                yield file
            finally:
                _held.discard(_inode(file))
                _write_owner(file, None)
            return


def _open(folder: Path) -> IO[str]:
    """The lock file, opened without truncating it and without following a link."""
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError(f"{path} is a symbolic link; remove it: a lock must be a plain file.") from None
        raise InputError(f"cannot write to {folder}: {error.strerror}.") from None
    except ValueError:  # a null byte
        raise InputError(f"{str(folder)!r} is not a path.") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise InputError(f"{path} is not a plain file, or it is linked under another name; remove it.")
    return os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace")


def _take(file: IO[str], folder: Path) -> bool:
    """Lock the file; without locks on this file system, the owner that the file names decides."""
    try:
        return try_lock(file)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise InputError(f"{folder} could not be locked: {error.strerror}.") from None
    owner = read_owner(file)
    if owner is not None and owner.alive() and owner.host != platform.node():
        raise InputError(
            f"{folder} is in use ({owner}), and its file system has no locks to check that. "
            f"If that process has ended, remove {folder / LOCK}."
        )
    if owner is not None and owner.process == os.getpid():  # in a container every start has the same number
        return _inode(file) not in _held
    return owner is None or not owner.alive()


def _inode(file: IO[str]) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def _same_file(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat(follow_symlinks=False))
    except OSError:
        return False


def try_lock(file: IO[str] | IO[bytes]) -> bool:
    """Lock an open file without waiting; False if another process holds the lock.

    Raises:
        OSError: the file cannot be locked for another reason, such as a file system without locks.
    """
    if not LOCKS:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


def is_folder_locked(folder: Path) -> bool:
    """Whether another process holds the lock of a folder; False if that cannot be determined."""
    with contextlib.suppress(OSError), (folder / LOCK).open("rb") as file:
        return is_locked(file)
    return False


def is_locked(file: IO[bytes]) -> bool:
    """Whether another process has locked an open file; OSError if that cannot be determined."""
    if not LOCKS:
        raise OSError(errno.ENOSYS, "no locks")
    return not try_lock(file)


def read_owner(file: IO[str]) -> Owner | None:
    """The owner that a lock file names, or None."""
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        owner = Owner(**json.loads(os.read(file.fileno(), 4096)))
        if type(owner.process) is int and 0 < owner.process < 1 << 31:  # the file may be untrusted
            return owner
    return None


def _write_owner(file: IO[str], owner: Owner | None) -> None:
    """Write the owner into the lock file, unbuffered. The lock works without it, so a full disk is not an error."""
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        os.write(file.fileno(), b"" if owner is None else json.dumps(asdict(owner)).encode() + b"\n")


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that holds nothing but its lock file."""
    with contextlib.suppress(OSError):
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()


def process_alive(pid: str) -> bool:
    """Whether the process with this id is running; a zombie process is not."""
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
