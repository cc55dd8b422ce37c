"""Safe unpacking of archives: writes only regular files and folders, and only inside the target folder."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from relatum.errors import RelatumError


def unpack(file: Path, into: Path) -> None:
    """Unpack a .zip or a .tar.* into a folder.

    Raises:
        RelatumError: the archive is damaged, or contains a link, a device or a path outside the folder.
    """
    try:
        for name, content in _members(file):
            target = into / _checked(file, name)
            if content is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as out:
                shutil.copyfileobj(content, out, 1 << 20)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise RelatumError(f"{file} cannot be unpacked: {error}.") from error


def _members(file: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """The name and the content of each member; None for a folder."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                yield info.filename, None if info.is_dir() else archive.open(info)
        return
    with tarfile.open(file) as tar:
        for member in tar:
            if not member.isfile() and not member.isdir():
                raise RelatumError(f"{file} contains {member.name!r}, which is not a file or a folder: not unpacked.")
            yield member.name, tar.extractfile(member)


def _checked(file: Path, name: str) -> Path:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name:
        raise RelatumError(f"{file} contains {name!r}, a path outside its folder: not unpacked.")
    return Path(*path.parts)


def move_into(folder: Path, target: Path) -> None:
    """Move a folder to its final path; if that exists, move its files one by one."""
    if not target.exists():
        folder.rename(target)
        return
    for path, _, names in os.walk(folder):
        place = target / Path(path).relative_to(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            (Path(path) / name).replace(place / name)
