"""A fast path for the most common file in shards of small images: an RGB PNG that needs no resizing.

Pillow takes 59 µs for such a file of 32 x 32 pixels, most of it Python code that holds the interpreter lock, which
training needs too. This takes 24 µs, most of it without the lock. Any other file, and any damaged one, is left to
Pillow.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from relatum.kernels import numba_available

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_WITHOUT_PIXELS = {b"gAMA", b"sRGB", b"cHRM", b"pHYs", b"tIME", b"tEXt", b"bKGD", b"sBIT"}  # and without EXIF data
_ORIENTATION = (b"Raw profile type exif\0", b"XML:com.adobe.xmp\0")  # texts in which Pillow looks for it
_CHUNK = struct.Struct(">I4s")  # length and type, before the data of a chunk
_CRC = 4  # bytes behind it


def filtered_rows(content: bytes, side: int) -> bytes | None:
    """The unpacked rows of an intact PNG of `side` x `side` RGB pixels of 8 bits, not interlaced.

    Each row is 1 + 3 * side bytes: the number of its filter, and the filtered pixels. None for any other file.
    """
    start = _first_bytes(side)
    if not content.startswith(start) or not numba_available():
        return None
    place, parts = len(start), []
    while True:
        if place + _CHUNK.size + _CRC > len(content):
            return None
        length, kind = _CHUNK.unpack_from(content, place)
        end = place + _CHUNK.size + length
        if kind == b"IEND":
            break
        if kind == b"IDAT":
            if zlib.crc32(content[place + 4 : end]) != int.from_bytes(content[end : end + _CRC], "big"):
                return None
            parts.append(content[place + _CHUNK.size : end])
        elif kind not in _WITHOUT_PIXELS or content.startswith(_ORIENTATION, place + _CHUNK.size):
            return None
        place = end + _CRC
    size = side * (1 + 3 * side)
    try:
        rows = zlib.decompressobj().decompress(b"".join(parts), size + 1)
    except zlib.error:
        return None
    return rows if len(rows) == size else None


def undo_filters(images: list[bytes], places: list[int], pixels: NDArray[np.uint8]) -> list[int]:
    """Write the pixels of images from their filtered rows to `places` of `pixels`; returns the places that failed."""
    if not images:
        return []
    from relatum.kernels.png import unfilter  # numba takes half a second to import

    number, height, width = pixels.shape[0], pixels.shape[1], 3 * pixels.shape[2]
    lines = np.frombuffer(b"".join(images), np.uint8).reshape(len(images), height, 1 + width)
    good, where = np.zeros(len(images), np.bool_), np.array(places, np.int64)
    unfilter(lines, where, pixels.reshape(number, height, width), good)
    return [int(place) for place in where[~good]]


@lru_cache(maxsize=8)
def _first_bytes(side: int) -> bytes:
    """Signature and header, with its checksum."""
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return _SIGNATURE + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
