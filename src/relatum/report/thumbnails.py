"""Images in the page: single thumbnails as data URIs, and an atlas of thousands of thumbnails for the maps.

The atlas holds each distinct image once, whichever run or map shows it, in sheets of 1,024 tiles: a browser decodes one
sheet of 1024 × 1024 in a few milliseconds, and 10,000 tiles of 32 × 32 take about 4 MB as JPEG.
"""

from __future__ import annotations

import base64
import hashlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

Images = NDArray[np.uint8]
LARGEST = 96  # pixels of a single thumbnail
COLUMNS = 32
# (tile side, JPEG quality) from fine to coarse; multiples of 16 keep JPEG's colour blocks within a tile.
STEPS = ((96, 82), (64, 85), (48, 85), (32, 88), (32, 80), (32, 65), (32, 45), (16, 75), (16, 50))
ATLAS_BYTES = 7_500_000  # 10 MB as base64: leaves a third of the page's 15 MB for everything else


def data_uri(image: Images) -> str:
    """One image as a data URI, at most `LARGEST` pixels wide; small images are kept as they are."""
    picture = Image.fromarray(np.ascontiguousarray(image))
    if max(picture.size) > LARGEST:
        picture.thumbnail((LARGEST, LARGEST), Image.Resampling.BOX)
    return _uri(picture, "webp" if features.check("webp") else "jpeg", quality=88)


def png_uri(pixels: Images) -> str:
    """An image as a PNG data URI, without loss."""
    return _uri(Image.fromarray(pixels), "png")


def _uri(picture: Image.Image, kind: str, **options: int) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, kind.upper(), **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def thumbnail(image: Images, alt: str, size: int = 48, tooltip: str = "") -> dict[str, Any]:
    """The data of the template for an image; images of few pixels are shown as squares of colour, not blurred."""
    small = max(image.shape[:2]) < size
    return {"src": data_uri(image), "alt": alt, "size": size, "pixels": small, "tooltip": tooltip}


class Atlas:
    """Distinct images, collected first and encoded once at the end."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}
        self._images: list[Images] = []

    def add(self, images: Images) -> list[int]:
        """Tile numbers of images; an image seen before gets the tile it has."""
        numbers = []
        for image in images:
            image = np.ascontiguousarray(image)
            key = hashlib.blake2b(image.tobytes() + str(image.shape).encode(), digest_size=16).digest()
            if key not in self._index:
                self._index[key] = len(self._images)
                self._images.append(image)
            numbers.append(self._index[key])
        return numbers

    def encode(self, budget: int = ATLAS_BYTES) -> dict[str, Any]:
        """The sheets as data URIs: the finest tiles whose bytes fit the budget."""
        if not self._images:
            return {"side": 0, "columns": COLUMNS, "sheets": []}
        largest = max(max(image.shape[:2]) for image in self._images)
        # Tiles larger than the images gain nothing: start with the smallest that holds them at full size.
        for side, quality in [step for step in STEPS if step[0] < largest + 16] or STEPS[-1:]:
            sheets = self._sheets(side, quality)
            if sum(map(len, sheets)) * 3 // 4 <= budget:
                break
        return {"side": side, "columns": COLUMNS, "sheets": sheets}

    def _sheets(self, side: int, quality: int) -> list[str]:
        sheets = []
        for start in range(0, len(self._images), COLUMNS * COLUMNS):
            part = self._images[start : start + COLUMNS * COLUMNS]
            canvas = np.zeros((-(-len(part) // COLUMNS) * side, COLUMNS * side, 3), np.uint8)
            for place, image in enumerate(part):
                row, column = divmod(place, COLUMNS)
                canvas[row * side : (row + 1) * side, column * side : (column + 1) * side] = fit(image, side)
            sheets.append(_uri(Image.fromarray(canvas), "jpeg", quality=quality))
        return sheets


def fit(image: Images, side: int) -> Images:
    """The image as a square tile: as it is where it fits exactly, else resized."""
    if image.shape[:2] == (side, side):
        return image
    return np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BOX))
