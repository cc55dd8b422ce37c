"""Lists the images of one tar file. Members that are damaged are skipped and reported with the reason.

A shard that the disk or the network does not give is an error: the list is kept, and must not lack images that are
there.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, cast

from relatum.data.decode import extensions
from relatum.data.imageset import Skipped
from relatum.data.stream.store import Store
from relatum.errors import RelatumError

MAX_MEMBER = 256 << 20  # bytes of an image; a member is read as a whole
_MAX_HEADER = 16 << 20  # bytes of a long name or of other facts before a member; Python reads them as a whole


@dataclass
class Member:
    """An image of a shard: its name, where its bytes are, and its class by a `.cls` member, or -1."""

    name: str
    offset: int
    size: int
    number: int = -1


def list_images(store: Store, number: int, shard: str, size: int, skipped: list[Skipped]) -> list[Member]:
    """The images of a shard with their classes; what is damaged is skipped, with its name.

    Raises:
        RelatumError: the disk or the network does not give the shard.
    """
    images: list[Member] = []
    classes: dict[str, int] = {}
    place = f"{store.place}/{shard}"
    try:
        with _open(store, number, place) as opened:
            file = cast(IO[bytes], _Headers(opened, place))
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for member in _members(tar):
                    _add(member, file, size, images, classes, skipped)
                # `tarfile` does not report a truncated file; a complete one ends with blocks of zeros.
                file.seek(tar.offset)
                if file.read(512) != bytes(512):
                    skipped.append(Skipped(shard, "the shard ends early: what was behind is lost"))
    except (MemoryError, RelatumError):
        raise
    except Exception as error:  # a damaged header may raise any exception
        why = " ".join(str(error).split())[:80] or type(error).__name__
        skipped.append(Skipped(shard, f"not a whole tar file ({why}): what was behind is lost"))
    for image in images:
        folder, name = os.path.split(image.name)
        key = os.path.join(folder, name.partition(".")[0])  # noqa: PTH118 - in webdataset, up to the first dot
        image.number = classes.get(os.path.splitext(image.name)[0], classes.get(key, -1))  # noqa: PTH122
    return images


def _open(store: Store, number: int, place: str) -> IO[bytes]:
    try:
        return store.open(number)
    except OSError as error:
        raise _not_given(place, error) from None


def _not_given(place: str, error: OSError) -> RelatumError:
    return RelatumError(f"{place} could not be read: {error.strerror or error}.")


class _Headers:
    """What `tarfile` reads of a shard: a header may state any size, for which memory would be taken at once."""

    def __init__(self, file: IO[bytes], place: str) -> None:
        self._file, self.tell, self.seek, self._place = file, file.tell, file.seek, place

    def read(self, size: int) -> bytes:
        if size > _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        try:
            return self._file.read(size)
        except OSError as error:  # of the machine: a damaged header only leads to places that cannot be sought
            raise _not_given(self._place, error) from None


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    last = -1
    for member in tar:
        if member.offset <= last:  # a negative size would lead back, and round for ever
            raise tarfile.ReadError("a member of negative size")
        last = member.offset
        yield member
        tar.members.clear()  # type: ignore[attr-defined]  # a list of all members seen so far


def _add(
    member: tarfile.TarInfo,
    file: IO[bytes],
    size: int,
    images: list[Member],
    classes: dict[str, int],
    skipped: list[Skipped],
) -> None:
    name = os.path.normpath(member.name)
    base, ending = os.path.splitext(name)  # noqa: PTH122
    if os.path.basename(name).startswith("."):  # noqa: PTH119
        return
    image = ending.lower() in extensions()
    if image and (not member.isreg() or member.issparse()):
        skipped.append(Skipped(name, "not a regular file"))
    elif image and not 0 <= member.size <= size - member.offset_data:
        skipped.append(Skipped(name, "the shard ends in the middle of it"))
    elif image and member.size > MAX_MEMBER:
        skipped.append(Skipped(name, f"larger than {MAX_MEMBER >> 20} MiB"))
    elif image:
        images.append(Member(name, member.offset_data, member.size))
    elif ending == ".cls" and member.isreg() and 0 <= member.size < 20:
        file.seek(member.offset_data)  # the archive seeks before it reads its next header
        _add_class(classes, base, file.read(member.size))


def _add_class(classes: dict[str, int], base: str, content: bytes) -> None:
    try:
        value = int(content)
    except ValueError:
        return
    if 0 <= value < 1 << 31:
        classes[base] = value
