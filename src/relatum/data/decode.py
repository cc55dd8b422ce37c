"""Decodes an image file to a square RGB array, in any format that Pillow reads.

The largest central square is resized to `side` pixels with antialiasing (JPEG files are first reduced by their
decoder). An image that already has that size keeps its pixels. EXIF orientation is applied before, transparency becomes
white, 16-bit values are scaled, and only the first frame of an animation is used. All threads together use a bounded
amount of memory (`relatum.data.decoding_memory`).
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from relatum.data.decoding_memory import MEMORY, decoding_bytes
from relatum.data.file_kinds import what_helps
from relatum.system.cpus import available_cpus
from relatum.system.modes import plain, rgb, upright

# Formats that Pillow lists but does not decode itself: EPS starts Ghostscript, WMF needs Windows, the others need
# plug-ins. They are not opened: reading an image must never start another program.
_NOT_READ = {"EPS", "WMF", "BUFR", "GRIB", "HDF5", "MPEG", "FPX", "MIC"}
# Formats that contain a file of another format. Their header does not tell its size, so its memory could not be
# bounded, and Pillow opens the one in an IPTC file with every decoder, EPS among them.
_CONTAINERS = {"BLP", "ICNS", "IPTC"}
_DECODED_WHEN_OPENED = b"\0\0\1\0"  # the first bytes of ICO files, which contain PNG files as well
_SLOW = 0.0005  # seconds per file from which threads help
_MAX_FILE = 1 << 30  # bytes; a larger file is skipped
Source = Path | BytesIO  # a file, or its bytes
# The first bytes of common formats. Pillow finds a format by opening the file with one decoder after the other, which
# takes longer than decoding a small PNG file (32 x 32: 22 of 85 µs).
_FIRST_BYTES = {b"\xff\xd8\xff": ("JPEG",), b"\x89PNG\r\n\x1a\n": ("PNG",)}


@lru_cache(maxsize=1)
def formats() -> tuple[str, ...]:
    """The names of the supported formats."""
    Image.init()
    with contextlib.suppress(ImportError):  # the extra `heif`
        from pillow_heif import register_heif_opener

        register_heif_opener()
    return tuple(sorted(set(Image.OPEN) - _NOT_READ - _CONTAINERS))


@lru_cache(maxsize=1)
def extensions() -> frozenset[str]:
    """The file extensions of the supported formats, in lower case with a dot."""
    read = {*formats(), "MPO"}  # a JPEG file with several images, opened as JPEG
    return frozenset(ending for ending, name in Image.registered_extensions().items() if name in read)


def image_size(source: Source) -> tuple[int, int] | None:
    """Width and height from a file's header, or None if it cannot be read."""
    try:
        with opened(source) as (image, _):
            return image.size
    except Exception:  # decode() reports the reason
        return None


def decode(source: Source, side: int) -> NDArray[np.uint8]:
    """The image in a file as (side, side, 3) uint8; raises Pillow's exception if the file cannot be read."""
    with opened(source) as (image, held):
        full_pixels = image.width * image.height
        image.draft(None, (2 * side, 2 * side))  # twice the side; the final resize is antialiased
        turned = _states_orientation(image)
        with MEMORY.hold(decoding_bytes(image, full_pixels, turned=turned), held):
            if turned:
                return to_square(image, side)
            small = _square(plain(image), side)
            return np.asarray(rgb(upright(small, image)), dtype=np.uint8)


@contextlib.contextmanager
def opened(source: Source) -> Iterator[tuple[Image.Image, int]]:
    """An image whose header was read, and the bytes of `MEMORY` that are held for it.

    Pillow decodes ICO files when it opens them, whatever size their header states: these hold all of the memory.
    """
    _check(source)
    if isinstance(source, BytesIO):
        first = source.getbuffer()[:8].tobytes()
    else:
        with source.open("rb") as file:
            first = file.read(8)
    held = MEMORY.total if first.startswith(_DECODED_WHEN_OPENED) else 0
    with MEMORY.hold(held), _open(source, first) as image:
        yield image, held


def _open(source: Source, first: bytes) -> Image.Image:
    """Open an image by its first bytes if they name its format, and otherwise with all decoders."""
    for start, names in _FIRST_BYTES.items():
        if first.startswith(start):
            with contextlib.suppress(UnidentifiedImageError):
                return Image.open(source, formats=names)
    try:
        return Image.open(source, formats=formats())
    except UnidentifiedImageError as error:
        error.add_note((None if isinstance(source, BytesIO) else what_helps(source)) or "")
        raise


def useful_threads(seconds: float) -> int:
    """The number of threads for files that take this many seconds each.

    Two threads halve the time of photographs (60 of 6 megapixels: 0.47 s against 0.86 s), but on pictures of 64 x 64
    they compete for the interpreter lock (3,000: 0.82 s against 0.48 s), so one thread is faster.
    """
    return available_cpus() if seconds > _SLOW else 1


def to_square(image: Image.Image, side: int) -> NDArray[np.uint8]:
    """An image in memory as (side, side, 3) uint8, by the same steps as a file.

    It is turned before it is resized, because Pillow resizes and rounds the rows first: the other order changes values
    by 1, and an exported network only sees pixels that are upright.
    """
    return np.asarray(rgb(_square(upright(plain(image), image), side)), dtype=np.uint8)


def _states_orientation(image: Image.Image) -> bool:
    """Whether an opened file has EXIF or XMP data before its pixels.

    A PNG file may have it after them, where it is found when the memory is already planned: the small image is turned.
    """
    return any("exif" in str(key).lower() or "xmp" in str(key).lower() for key in image.info)


def _check(source: Source) -> None:
    if isinstance(source, Path):
        status = source.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would block
            raise IsADirectoryError if stat.S_ISDIR(status.st_mode) else OSError("not a regular file")
        size = status.st_size
    else:
        size = len(source.getbuffer())
    if not size:
        raise OSError("the file is empty")
    if size > _MAX_FILE:
        raise OSError(f"a file of {size / 1e9:.1f} GB (the limit is {_MAX_FILE / 1e9:.1f} GB)")


def reason(error: BaseException) -> str:
    """A short reason why a file could not be read."""
    if isinstance(error, IsADirectoryError):
        return "is a directory"
    if isinstance(error, FileNotFoundError):
        return "a link to a file that is not there"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, UnidentifiedImageError):
        return next(filter(None, getattr(error, "__notes__", ())), "not an image that Pillow can read")
    if isinstance(error, Image.DecompressionBombError):
        return "too many pixels (a decompression bomb?)"
    if isinstance(error, MemoryError):
        return "does not fit in memory"
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return text[:120] or type(error).__name__


def _square(image: Image.Image, side: int) -> Image.Image:
    """The largest central square, resized to `side` pixels."""
    width, height = image.size
    if width == height == side:
        return image
    edge = min(width, height)
    left, top = (width - edge) / 2, (height - edge) / 2
    box = (left, top, left + edge, top + edge)
    return image.resize((side, side), Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)
