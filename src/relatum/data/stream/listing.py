"""Lists the images of one tar file. Members that cannot be read are skipped and reported with the reason."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, cast

from relatum.data.decode import extensions
from relatum.data.imageset import Skipped
from relatum.data.stream.store import Store

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
    """The images of a shard with their classes; what cannot be read is skipped, with its name."""
    images: list[Member] = []
    classes: dict[str, int] = {}
    try:
        with store.open(number) as file, tarfile.open(fileobj=cast(IO[bytes], _Headers(file)), mode="r:") as tar:
            for member in _members(tar):
                _add(member, file, size, images, classes, skipped)
            # `tarfile` does not report a truncated file; a complete one ends with blocks of zeros.
            file.seek(tar.offset)
            if file.read(512) != bytes(512):
                skipped.append(Skipped(shard, "the shard ends early: what was behind is lost"))
    except MemoryError:
        raise
    except Exception as error:  # a damaged header may raise any exception
        why = " ".join(str(error).split())[:80] or type(error).__name__
        skipped.append(Skipped(shard, f"not a whole tar file ({why}): what was behind is lost"))
    for image in images:
        image.number = classes.get(os.path.splitext(image.name)[0], -1)  # noqa: PTH122
    return images


class _Headers:
    """What `tarfile` reads of a shard: a header may state any size, for which memory would be taken at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.tell, self.seek = file, file.tell, file.seek

    def read(self, size: int) -> bytes:
        if size > _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


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
