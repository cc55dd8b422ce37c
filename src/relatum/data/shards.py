"""Shards: images packed in tar files, as in webdataset, for file systems that are slow with many small files.

Nothing is unpacked: the offsets of the members are listed once (`stream.index`), and images are read from there. A
member's name is its path in the packed folder; if an earlier shard has the same name, the shard's name is put in front
of the file's. A member `NAME.cls` may give the class of the images `NAME.jpg`, `NAME.left.png` and so on as a number;
if all images have one, each is treated as if it were in a folder of that number (in its split).
"""

from __future__ import annotations

import contextlib
import os
import tarfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

from relatum.data.decode import extensions, reason
from relatum.data.imageset import Skipped
from relatum.data.layout import split_names
from relatum.data.stream.index import FILES as INDEX_FILES
from relatum.data.stream.index import Numbers, ShardIndex, open_index, readable, write_index
from relatum.data.stream.store import LocalShards
from relatum.errors import InputError
from relatum.system.files import FULL, write_error
from relatum.system.outputs import only_outputs
from relatum.system.progress import Display, bar
from relatum.system.text import counted
from relatum.system.untrusted import check_regular

SHARD_BYTES = 256 * 2**20  # size of a shard that `write` creates


def find(path: Path) -> list[Path] | None:
    """The shards at a path: a tar file, or the tar files of a folder without images and sub-folders; otherwise None.

    Sub-folders that relatum has written do not count.
    """
    if path.is_file():
        return [path] if path.suffix == ".tar" else None
    try:
        entries = sorted(e for e in path.iterdir() if not e.name.startswith("."))
    except OSError:
        return None
    tars = [e for e in entries if e.suffix == ".tar" and e.is_file()]
    plain = any(not only_outputs(e) if e.is_dir() else e.suffix.lower() in extensions() for e in entries)
    return tars if tars and not plain else None


class Index:
    """The position of every image in a list of shards.

    Args:
        paths: the tar files, in order.
        some: whether they were named, rather than their folder.

    Attributes:
        files: names of the images, sorted.
        stamps: size of the image, mtime of the shard and offset in it: they change when an image does.
        skipped: members and shards that could not be read.
    """

    def __init__(self, paths: Sequence[Path], *, some: bool = False) -> None:
        self._store = LocalShards(paths, some=some)
        written = open_index(self._store)
        numbers, self.skipped = readable(written, self._store)
        self._places = self._locate(written, numbers)
        self.files = sorted(self._places)
        times = self._store.times
        self.stamps = [(size, times[n], start) for n, start, size in map(self._places.__getitem__, self.files)]

    def _locate(self, written: ShardIndex, numbers: Numbers) -> dict[str, tuple[int, int, int]]:
        """Name of an image: number of its shard, start, size."""
        shard_numbers = written.shard_numbers(self._store.names)
        classes = written.samples["number"]
        splits = split_names({folder.partition(os.sep)[0] for folder in written.folders}) or {}
        by_class = len(classes) > 0 and int(classes.min()) >= 0
        width = len(str(int(classes.max()))) if by_class else 0
        places: dict[str, tuple[int, int, int]] = {}
        for number, shard in zip(numbers, written.shard_of(np.asarray(numbers)), strict=True):
            name, row = written.name(int(number)), written.samples[number]
            if by_class:
                top, _, rest = name.partition(os.sep)
                split, name = (top + os.sep, rest) if top in splits else ("", name)
                name = f"{split}{int(row['number']):0{width}d}{os.sep}{name.replace(os.sep, '_')}"
            if name in places and places[name][0] == shard_numbers[shard]:  # appended: it replaces the one before
                self.skipped.append(Skipped(name, f"is in {written.shards[shard]} twice; the last one is read"))
            while name in places and places[name][0] != shard_numbers[shard]:  # shards that number their own images
                folder, base = os.path.split(name)
                name = os.path.join(folder, f"{Path(written.shards[shard]).stem}-{base}")  # noqa: PTH118
            places[name] = (shard_numbers[shard], int(row["offset"]), int(row["size"]))
        return places

    def read(self, file: str) -> BytesIO:
        """The bytes of an image."""
        number, start, size = self._places[file]
        content = self._store.read(number, start, size)
        if len(content) < size:
            raise OSError("the shard ends in the middle of it")
        return BytesIO(content)


def write(
    files: Sequence[str],
    read: Callable[[str], Path | BytesIO],
    out: Path,
    size: int = SHARD_BYTES,
    skipped: Sequence[Skipped] = (),
) -> list[Path]:
    """Pack images into `OUT/NNNNNN.tar` files of about `size` bytes; the same images give the same bytes.

    Args:
        files: names, in order.
        read: returns the path or the bytes of an image by its name.
        out: a new or empty folder; the index of the images is written into it too.
        size: start a new shard after this many bytes.
        skipped: further files that were left out, for the warning.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not an empty folder: choose another --out, or empty it.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}.") from None
    written: list[Path] = []
    left_out = [f"{s.path}: {s.reason}" for s in skipped]
    part: tarfile.TarFile | None = None
    try:
        with bar("packing", len(files)) as advance:
            for file in files:
                try:
                    content = _content(read(file))
                except (OSError, ValueError) as error:
                    left_out.append(f"{file}: {reason(error)}")
                    continue
                if part is None:  # renamed when the shard is complete
                    part = tarfile.open(  # noqa: SIM115
                        out / f"{len(written):06d}.tar.part", "w", format=tarfile.PAX_FORMAT
                    )
                member = tarfile.TarInfo(file.replace(os.sep, "/"))
                member.size = len(content)
                part.addfile(member, BytesIO(content))
                if part.offset >= size:
                    written.append(_finish(part))
                    part = None
                advance(1)
        if part is not None:
            written.append(_finish(part))
        if not written:
            raise InputError(f"no file could be read: {left_out[0]}.")
        write_index(LocalShards(written), out)
    except BaseException as error:  # a full disk, or a signal: incomplete shards are removed
        _discard(part, [*written, *(out / name for name in INDEX_FILES)])
        if isinstance(error, OSError) and error.errno in FULL:
            raise write_error(out, error) from None
        raise
    if left_out:
        more = f"; and {len(left_out) - 3:,} more" if len(left_out) > 3 else ""
        Display().warn(
            f"left out {counted(len(left_out), 'file')} that could not be read: {'; '.join(left_out[:3])}{more}"
        )
    return written


def _content(source: Path | BytesIO) -> bytes:
    if not isinstance(source, Path):
        return source.getvalue()
    check_regular(source)  # a pipe would be waited for
    return source.read_bytes()


def _discard(part: tarfile.TarFile | None, written: Sequence[Path]) -> None:
    """Remove the shards of a set that was not finished, so that the same command can write it again."""
    paths = list(written)
    if part is not None:
        paths.append(Path(str(part.name)))
        with contextlib.suppress(OSError):
            part.fileobj.close()  # type: ignore[union-attr]  # not `part.close()`, which writes the end of the archive
    for path in paths:
        path.unlink(missing_ok=True)


def _finish(part: tarfile.TarFile) -> Path:
    part.close()
    path = Path(str(part.name))
    return path.replace(path.with_suffix(""))
