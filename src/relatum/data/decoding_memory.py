"""A limit for the memory of decoding: 1 GiB over all threads.

A small file may hold a huge image: a PNG of 656 kB can have 169 megapixels. So before an image is decoded, the memory
that it needs is estimated from its header. Threads wait until there is room for it; an image that needs more than the
whole is not decoded. The bytes per pixel were measured with Pillow 12.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image

# Pillow decodes these line by line, straight into the image: 1 to 4 bytes per pixel.
_DIRECT = {"PNG", "BMP", "DIB", "GIF", "PPM", "TGA"}
_BYTES_PER_PIXEL = {"WEBP": 16, "JPEG2000": 20, "AVIF": 16}  # decoders that hold the image several times
_OTHER = 8
_ONE_BYTE, _TWO_BYTES = ("1", "L", "P"), ("I;16", "I;16L", "I;16B", "I;16N")
_TILE_WIDTH, _TILE_HEIGHT = 322, 323  # tags of TIFF files
_PROGRESSIVE_JPEG = 6  # the coefficients of all pixels, however much the image is reduced


class TooLarge(ValueError):
    """An image that takes more memory than decoding may use."""


class Budget:
    """Memory that threads share.

    Args:
        total: bytes.
    """

    def __init__(self, total: int) -> None:
        self.total, self._used = total, 0
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, size: int, held: int = 0) -> Iterator[None]:
        """Wait until `size` bytes are free, and hold them.

        Args:
            size: bytes that are needed.
            held: bytes among them that the caller holds already.

        Raises:
            TooLarge: more than the total.
        """
        if size > self.total:
            raise TooLarge(
                f"too many pixels: decoding would take {size / 1e9:.1f} GB (the limit is {self.total / 1e9:.1f} GB)"
            )
        more = max(0, size - held)
        with self._changed:
            self._changed.wait_for(lambda: self._used + more <= self.total)
            self._used += more
        try:
            yield
        finally:
            with self._changed:
                self._used -= more
                self._changed.notify_all()


MEMORY = Budget(1 << 30)


def decoding_bytes(image: Image.Image, full_pixels: int, *, turned: bool = False) -> int:
    """An estimate of the memory that an opened image takes while it is decoded and converted.

    Args:
        image: opened, not yet decoded; a JPEG file may have been reduced with `draft`.
        full_pixels: its number of pixels before that reduction.
        turned: whether a turned copy may be made. Other decoders have given back more memory by then.
    """
    pixels = image.size[0] * image.size[1]  # of a JPEG file: after the reduction by its decoder
    mode, format = image.mode, image.format or ""
    stored = 1 if mode in _ONE_BYTE else 2 if mode in _TWO_BYTES else 4
    size = pixels * (stored if format in _DIRECT else _BYTES_PER_PIXEL.get(format, _OTHER))
    if mode.startswith(("I", "F")):
        size += pixels  # a copy in bytes
    elif mode in ("P", "PA", "La", "LA", "RGBa", "LAB") or image.has_transparency_data:
        size += 4 * pixels  # a copy in colour
    if turned and format in _DIRECT:
        size += 4 * pixels
    if format == "TIFF":  # a tile is decoded as a whole, and may be larger than the image
        size += max(0, _tile_pixels(image) - pixels) * _OTHER
    if format in ("JPEG", "MPO") and image.info.get("progressive"):
        size += _PROGRESSIVE_JPEG * full_pixels
    return size


def _tile_pixels(image: Image.Image) -> int:
    tags: Any = getattr(image, "tag_v2", {})
    sides = (np.max(tags.get(tag, 0), initial=0) for tag in (_TILE_WIDTH, _TILE_HEIGHT))  # several values: damaged
    return math.prod(int(side) for side in sides)
