"""Shards: images packed in tar files, as in webdataset, for file systems that are slow with many small files.

Nothing is unpacked: the offsets of the members are listed once, and images are read from there. A member's name is its
path in the packed folder. A member `NAME.cls` may give the class of an image as a number; if all images have one, each
is treated as if it were in a folder of that number.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

from relatum.data.decode import extensions
from relatum.data.imageset import Skipped
from relatum.errors import InputError
from relatum.system.files import FULL, write_error
from relatum.system.outputs import only_outputs
from relatum.system.progress import bar

_MAX_OPEN = 64  # shards that are open at a time
_MAX_MEMBER = 256 << 20  # bytes of an image; a member is read as a whole
_SHARD_BYTES = 256 * 2**20  # size of a shard that `write` creates


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

    Attributes:
        files: names of the images, sorted.
        stamps: size of the image, mtime of the shard and offset in it: they change when an image does.
        skipped: members and shards that could not be read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files = _OpenFiles(paths)
        self._places: dict[str, tuple[int, int, int]] = {}  # name: number of the shard, start, size
        self.skipped: list[Skipped] = []
        classes: dict[str, int] = {}
        times = []
        with bar("listing shards", sum(p.stat().st_size for p in paths), bytes=True) as advance:
            for number, path in enumerate(paths):
                times.append(path.stat().st_mtime_ns)
                self._list(number, path, classes)
                advance(path.stat().st_size)
        names = {name: name for name in self._places}
        if names and all(os.path.splitext(name)[0] in classes for name in names):  # noqa: PTH122
            width = len(str(max(classes.values())))
            for name in names:
                key = os.path.splitext(name)[0]  # noqa: PTH122
                names[name] = os.path.join(f"{classes[key]:0{width}d}", name.replace(os.sep, "_"))  # noqa: PTH118
        self._places = {names[name]: place for name, place in self._places.items()}
        self.files = sorted(self._places)
        places = [self._places[file] for file in self.files]
        self.stamps = [(size, times[number], start) for number, start, size in places]

    def _list(self, number: int, path: Path, classes: dict[str, int]) -> None:
        """List the members of a shard; what cannot be read is skipped, with its name."""
        size = self._files.size(number)
        last = -1
        try:
            with tarfile.open(path, "r:") as tar:
                for member in tar:
                    if member.offset <= last:  # a negative size would lead back, and round for ever
                        raise tarfile.ReadError("a member of negative size")
                    last = member.offset
                    self._add(number, path, member, size, classes)
                    tar.members.clear()  # type: ignore[attr-defined]  # a list of all members seen so far
                # `tarfile` does not report a truncated file; a complete one ends with blocks of zeros.
                if self._files.read(number, tar.offset, 512) != bytes(512):
                    self.skipped.append(Skipped(path.name, "the shard ends early: what was behind is lost"))
        except Exception as error:  # a damaged header may raise any exception
            why = " ".join(str(error).split())[:80] or type(error).__name__
            self.skipped.append(Skipped(path.name, f"not a whole tar file ({why}): what was behind is lost"))

    def _add(self, number: int, path: Path, member: tarfile.TarInfo, size: int, classes: dict[str, int]) -> None:
        name = os.path.normpath(member.name)
        base, ending = os.path.splitext(name)  # noqa: PTH122
        if os.path.basename(name).startswith("."):  # noqa: PTH119
            return
        image = ending.lower() in extensions()
        if image and (not member.isreg() or member.issparse()):
            self.skipped.append(Skipped(name, "not a regular file"))
        elif image and name in self._places:
            self.skipped.append(Skipped(name, f"is in two shards; the one in {path.name} is left out"))
        elif image and not 0 <= member.size <= size - member.offset_data:
            self.skipped.append(Skipped(name, "the shard ends in the middle of it"))
        elif image and member.size > _MAX_MEMBER:
            self.skipped.append(Skipped(name, f"larger than {_MAX_MEMBER >> 20} MiB"))
        elif image:
            self._places[name] = (number, member.offset_data, member.size)
        elif ending == ".cls" and member.isreg() and 0 <= member.size < 20:
            classes |= _class(base, self._files.read(number, member.offset_data, member.size))

    def read(self, file: str) -> BytesIO:
        """The bytes of an image."""
        number, start, size = self._places[file]
        content = self._files.read(number, start, size)
        if len(content) < size:
            raise OSError("the shard ends in the middle of it")
        return BytesIO(content)


class _OpenFiles:
    """Reads parts of many files from several threads, with at most 64 of them open at a time."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._idle: OrderedDict[int, int] = OrderedDict()  # number of the file: its descriptor, the oldest first
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._idle)

    def size(self, number: int) -> int:
        """Bytes of a file."""
        return self._paths[number].stat().st_size

    def read(self, number: int, start: int, size: int) -> bytes:
        """At most `size` bytes of a file."""
        with self._lock:
            handle = self._idle.pop(number, None)
        if handle is None:  # not open, or in use by another thread
            handle = os.open(self._paths[number], os.O_RDONLY)
        try:
            return os.pread(handle, size, start)
        finally:
            with self._lock:
                spare = self._idle.pop(number, None)
                self._idle[number] = handle
                oldest = self._idle.popitem(last=False)[1] if len(self._idle) > _MAX_OPEN else None
            for unused in (spare, oldest):
                if unused is not None:
                    os.close(unused)


def _close(handles: OrderedDict[int, int]) -> None:
    while handles:
        os.close(handles.popitem()[1])


def _class(name: str, content: bytes) -> dict[str, int]:
    try:
        value = int(content)
    except ValueError:
        return {}
    return {name: value} if value >= 0 else {}


def write(
    files: Sequence[str], read: Callable[[str], Path | BytesIO], out: Path, size: int = _SHARD_BYTES
) -> list[Path]:
    """Pack images into `OUT/NNNNNN.tar` files of about `size` bytes; the same images give the same bytes.

    Args:
        files: names, in order.
        read: returns the path or the bytes of an image by its name.
        out: a new or empty folder.
        size: start a new shard after this many bytes.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not an empty folder: choose another --out, or empty it.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}.") from None
    written: list[Path] = []
    part: tarfile.TarFile | None = None
    try:
        with bar("packing", len(files)) as advance:
            for file in files:
                if part is None:  # renamed when the shard is complete
                    part = tarfile.open(  # noqa: SIM115
                        out / f"{len(written):06d}.tar.part", "w", format=tarfile.PAX_FORMAT
                    )
                source = read(file)
                content = source.read_bytes() if isinstance(source, Path) else source.getvalue()
                member = tarfile.TarInfo(file.replace(os.sep, "/"))
                member.size = len(content)
                part.addfile(member, BytesIO(content))
                if part.offset >= size:
                    written.append(_finish(part))
                    part = None
                advance(1)
        if part is not None:
            written.append(_finish(part))
    except BaseException as error:  # a full disk, or a stop: shards without an end are of no use
        _discard(part, written)
        if isinstance(error, OSError) and error.errno in FULL:
            raise write_error(out, error) from None
        raise
    return written


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
