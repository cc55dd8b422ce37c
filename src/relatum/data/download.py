"""`relatum data get`: downloads a dataset from its published address, with resume, checksum and safe unpacking.

An archive is downloaded to `NAME.part`, which a later call resumes. If its checksum is the published one, it is
unpacked into a temporary folder and then moved into place. An archive that is already in the data root is used
instead of a download.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from relatum.data import sets, unpack
from relatum.data.dataset import Archive, Dataset
from relatum.data.paths import cache_dir, data_root
from relatum.errors import InputError, RelatumError
from relatum.system.locks import try_lock
from relatum.system.progress import bar

_TIMEOUT = 30.0  # seconds without a byte
_TRIES = 5
_PAUSE = 1.0  # seconds before the second try; doubled each time
_BLOCK = 1 << 20


_NETWORK = (urllib.error.URLError, ssl.SSLError, ConnectionError, TimeoutError)


class _Unreachable(RelatumError):
    """The address did not answer."""


def get(name: str, root: Path | str | None = None) -> Path:
    """Download a dataset, unless it is complete on disk.

    Args:
        name: a dataset's name.
        root: the data root; by default `$RELATUM_DATA`, else the user's cache folder.

    Returns:
        The folder of the dataset.
    """
    dataset = sets.get(name)
    root = data_root(root)
    if not dataset.folder:
        return cache_dir() / name  # generated on first use
    folder = root / dataset.folder
    if _complete(dataset, folder):
        return folder
    if dataset.archive is None:
        instructions = dataset.instructions.format(folder=folder)
        raise InputError(f"{name} has no address for a direct download. {instructions}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        _install(dataset.archive, dataset.folder, root)
    except OSError as error:
        raise RelatumError(f"{name} could not be written to {root}: {error.strerror or error}.") from error
    if not _complete(dataset, folder):
        raise RelatumError(f"{dataset.archive.url} was unpacked, but {folder} is not complete.")
    return folder


def _complete(dataset: Dataset, folder: Path) -> bool:
    return all((folder / file).exists() for file in dataset.files)


def _install(archive: Archive, folder: str, root: Path) -> None:
    """Download an archive, unless the user has put it into the root, and unpack it."""
    file = root / archive.url.rpartition("/")[2]
    provided = file.exists()
    if not provided:
        try:
            _fetch(archive.url, file, archive.md5)
        except _Unreachable as error:
            _remove_if_empty(_part(file))
            raise RelatumError(
                f"{error}\nTry again later, or get {file.name} ({archive.size:,} bytes, md5 {archive.md5}) in another "
                f"way, put it at {file} and run this again."
            ) from error
    elif _md5(file) != archive.md5:
        raise InputError(f"{file} is not the published archive (its md5 differs): remove it and run this again.")
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=root) as work:
        unpack.unpack(file, Path(work))
        unpack.move_into(Path(work) / folder, root / folder)
    if not provided:
        file.unlink()


def _fetch(url: str, file: Path, md5: str) -> None:
    """Download a file completely and verify it, resuming an earlier attempt."""
    part = _part(file)
    with part.open("ab") as out:
        if _in_use(out) or not _is_still(out, part):
            raise InputError(f"{part} is being written by another download.")
        start = out.tell()
        for attempt in range(_TRIES):
            try:
                if _resume(url, out):
                    break
                reason = "the connection was closed"
            except urllib.error.HTTPError as error:
                error.close()
                if error.code < 500:
                    raise _Unreachable(f"{url} could not be downloaded: {error.code} {error.reason}.") from None
                reason = f"{error.code} {error.reason}"
            except (*_NETWORK, http.client.HTTPException) as error:
                reason = str(getattr(error, "reason", "") or error or type(error).__name__)
                if attempt and out.tell() == start:  # no server has answered
                    raise _Unreachable(f"{url} cannot be reached: {reason}.") from None
            if attempt + 1 == _TRIES:
                raise _Unreachable(f"{url} cannot be reached: {reason}.")
            time.sleep(_PAUSE * 2**attempt)
        if _md5(part) != md5:  # while it is locked: another download would append to it, or begin it again
            part.unlink()
            raise RelatumError(
                f"the file from {url} is not the published one (its md5 differs) and was removed: run this again."
            )
    part.replace(file)


def _part(file: Path) -> Path:
    return file.with_name(file.name + ".part")


def _remove_if_empty(part: Path) -> None:
    if part.exists() and not part.stat().st_size:
        part.unlink()


def _in_use(out: IO[bytes]) -> bool:
    """Lock the file, or return whether another process has locked it; some file systems have no locks."""
    try:
        return not try_lock(out)
    except OSError:
        return False


def _is_still(out: IO[bytes], part: Path) -> bool:
    """Whether an open file still has its name: another download may have completed it before it was locked."""
    try:
        return os.path.samestat(os.fstat(out.fileno()), part.stat())
    except FileNotFoundError:
        return False


def _resume(url: str, out: IO[bytes]) -> bool:
    """Append the missing bytes; returns whether the file is complete."""
    done = out.seek(0, 2)
    request = urllib.request.Request(url, headers={"User-Agent": "relatum"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # no bytes are missing; the checksum decides
            error.close()
            return True
        raise
    with answer:
        if done and not (answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {done}-")):
            out.truncate(0)  # a server without range requests sends the file from its start
            done = 0
        length = answer.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        with bar(f"downloading {url.rpartition('/')[2]}", total, start=done, bytes=True) as advance:
            while block := answer.read(_BLOCK):
                out.write(block)
                done += len(block)
                advance(len(block))
        out.flush()
    return total is None or done >= total


def _md5(file: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with file.open("rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
