"""Atomic writing of files: a temporary file, a sync of the file, a rename, a sync of the folder."""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from relatum.errors import InputError, RelatumError
from relatum.system.locks import LOCKS, is_locked, try_lock
from relatum.system.untrusted import read_json_bounded

TEMPORARY_ENDING = ".part"  # of temporary files
STALE_SECONDS = 24 * 3600  # an unlocked temporary file or folder that is older belongs to a killed process
_NAME_BYTES = 100  # of a dataset's name or a tag in a file name, which may have both
CHECKSUM = "digest"  # the key of a JSON object's checksum
_UMASK = threading.Lock()
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room: full disk, quota, file size limit


class WriteError(RelatumError, OSError):
    """A file could not be written; the message is one line with its path and the reason."""

    def __str__(self) -> str:
        return str(self.args[0])


def write_error(path: Path, error: OSError) -> WriteError:
    """The error to raise where writing `path` failed; its `errno` is kept."""
    if isinstance(error, WriteError):
        return error
    reason = (error.strerror or str(error) or type(error).__name__).rstrip(".")
    hint = " Free some space and run the command again (pretrain: with --resume)." if error.errno in FULL else ""
    raised = WriteError(f"{path} could not be written: {reason}.{hint}")
    raised.errno, raised.strerror = error.errno, reason
    return raised


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Call `write` with a temporary path beside `path`, sync it, and rename it into place.

    Temporary files of the same name that a killed process left behind are removed.

    Raises:
        WriteError: the disk is full or the folder cannot be written to; `path` is as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(path.parent, path.name)
        with _temporary(path) as temporary:
            write(temporary)
            with temporary.open("r+b") as file:  # Windows syncs no file that is open for reading only
                os.fsync(file.fileno())
            temporary.chmod(0o666 & ~_umask())  # mkstemp's 0600 would hide results from colleagues
            temporary.replace(path)
            sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A new file beside `path`, locked while it is in use: an unlocked one is of a process that was killed."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY_ENDING, dir=path.parent)
        with os.fdopen(handle, "rb") as file:
            if not _lock(file) or os.fstat(file.fileno()).st_nlink == 0:  # taken for a stale one before it was locked
                continue
            if not LOCKS:
                file.close()  # Windows renames no open file
            temporary = Path(name)
            try:
                yield temporary
            finally:
                temporary.unlink(missing_ok=True)
        return


def _lock(file: IO[bytes]) -> bool:
    try:
        return try_lock(file)
    except OSError:  # a file system without locks
        return True


def remove_stale(folder: Path, name: str = "") -> None:
    """Remove temporary files of killed processes, of one file name or of all. Those in use are kept."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(f".{name}") and entry.name.endswith(TEMPORARY_ENDING):
                with contextlib.suppress(OSError):
                    _remove_if_stale(Path(entry.path))


def _remove_if_stale(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(descriptor, "rb") as file:
        try:
            stale = not is_locked(file)
        except OSError:
            stale = time.time() - os.fstat(descriptor).st_mtime > STALE_SECONDS
        if stale:
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Force a rename in `folder` to the disk, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(path: Path, *parts: bytes | memoryview) -> None:
    """Write bytes atomically."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)

    write_atomically(path, write)


def write_text(path: Path, text: str) -> None:
    """Write text atomically; bytes of file names that are not UTF-8 are written as escapes, which JSON reads back."""
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document atomically; numbers that JSON does not know are refused."""
    write_text(path, to_json(document))


def to_json(document: Any) -> str:
    """A JSON document as the text of a file."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def with_checksum(document: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with a SHA-256 of its other keys, which `read_json` checks."""
    content = {key: value for key, value in document.items() if key != CHECKSUM}
    return {**content, CHECKSUM: _checksum(content)}


def is_intact(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is as it was written; True for one without a checksum.

    A checksum under another key belongs to an object in which the name of the key was damaged.
    """
    if CHECKSUM in document:
        return _checksum_of_others(document, CHECKSUM) == document[CHECKSUM]
    possible = [key for key, value in document.items() if isinstance(value, str) and len(value) == 64]
    return not any(_checksum_of_others(document, key) == document[key] for key in possible)


def _checksum_of_others(document: Mapping[str, Any], key: str) -> str:
    return _checksum({name: value for name, value in document.items() if name != key})


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(json.loads(json.dumps(content)), sort_keys=True)  # as it is read back: keys are texts
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def overwrite_in_place(path: Path, text: str) -> bool:
    """Replace the text of an existing file on a full disk; False if that would take more room than it has."""
    content = text.encode("utf-8", errors="backslashreplace")
    with path.open("r+b") as file:
        if len(content) > getattr(os.fstat(file.fileno()), "st_blocks", 0) * 512:  # unknown on Windows
            return False
        file.write(content)
        file.truncate()
        os.fsync(file.fileno())
    return True


def read_json(path: Path, *, verify: bool = True) -> dict[str, Any] | None:
    """A JSON object without its checksum, or None if the file is missing, damaged or contains something else.

    Args:
        path: the file.
        verify: whether an object whose checksum does not match counts as damaged.
    """
    with contextlib.suppress(OSError, ValueError):
        document = read_json_bounded(path)
        if isinstance(document, dict) and (is_intact(document) or not verify):
            document.pop(CHECKSUM, None)
            return document
    return None


def has_checksum(path: Path) -> bool:
    """Whether a file is a JSON object with a checksum, right or wrong."""
    with contextlib.suppress(OSError, ValueError):
        document = read_json_bounded(path)
        return isinstance(document, dict) and CHECKSUM in document
    return False


def expand_user(path: str | os.PathLike[str]) -> Path:
    """A path with `~` or `~NAME` at its start replaced by the home folder.

    Raises:
        InputError: there is no such user, or this user has no home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(f"{os.fspath(path)}: no home folder is known for '{Path(path).parts[0]}'.") from None


def nearest_path(path: Path, *, folders: bool = False) -> Path | None:
    """The entry beside a missing path whose name is most similar to its own, for a hint in an error message.

    Args:
        path: the missing path.
        folders: consider only folders.
    """
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_dir() or not folders]
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, names, n=1)
    return path.parent / near[0] if near else None


def file_safe(name: str) -> str:
    """A dataset's or folder's name as part of a file name: its last part, with a hyphen for every unusual character.

    A long name is cut and gets a hash: with all that is added to it, it must fit in the 255 bytes of a file name, of
    which a Chinese character takes three.
    """
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    safe = re.sub(r"[^\w.]+", "-", last).strip("-.") or "data"
    if len(safe.encode("utf-8", "surrogatepass")) <= _NAME_BYTES:
        return safe
    digest = hashlib.sha256(safe.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe.encode('utf-8', 'ignore')[: _NAME_BYTES - 9].decode('utf-8', 'ignore')}-{digest}"


def _umask() -> int:
    """The process's umask. It can only be read by changing it: two threads at a time would leave it at 0."""
    with _UMASK:
        mask = os.umask(0)
        os.umask(mask)
        return mask
