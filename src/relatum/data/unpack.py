"""Safe unpacking of archives: writes only regular files and folders, and only inside the target folder."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from relatum.errors import RelatumError


def unpack(file: Path, into: Path) -> None:
    """Unpack a .zip or a .tar.* into a folder.

    Raises:
        RelatumError: the archive is damaged, or contains a link, a device or a path outside the folder.
    """
    try:
        if zipfile.is_zipfile(file):
            _unzip(file, into)
        else:
            _untar(file, into)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise RelatumError(f"{file} cannot be unpacked: {error}.") from error


def _checked(file: Path, name: str) -> Path:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name:
        raise RelatumError(f"{file} contains {name!r}, a path outside its folder: not unpacked.")
    return Path(*path.parts)


def _untar(file: Path, into: Path) -> None:
    with tarfile.open(file) as archive:
        for member in archive:
            target = into / _checked(file, member.name)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            if not member.isfile():
                raise RelatumError(f"{file} contains {member.name!r}, which is not a file or a folder: not unpacked.")
            source = archive.extractfile(member)
            assert source is not None
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, target.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)


def _unzip(file: Path, into: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            target = into / _checked(file, member.filename)
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)


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
