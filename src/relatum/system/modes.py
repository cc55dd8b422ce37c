"""Pillow images of any mode as upright RGB: files, images in memory and views show the same colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_BAND_PIXELS = 1 << 20  # pixels of more than 8 bits that are converted at a time
_WHITE = (255, 255, 255)
_TURNS = dict(enumerate(map(Image.Transpose, (0, 3, 1, 5, 4, 6, 2)), start=2))  # EXIF orientation 2 to 8


def as_rgb(image: Image.Image) -> NDArray[np.uint8]:
    """A whole image as (H, W, 3): upright, transparency on white, values of more than 8 bits scaled."""
    return np.asarray(rgb(upright(plain(image), image)), dtype=np.uint8)


def plain(image: Image.Image) -> Image.Image:
    """The image in a mode that can be resized: L, RGB, RGBA, CMYK or similar."""
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_to_bytes(image))
    if image.mode in ("P", "PA", "RGBa", "La", "LA") or image.has_transparency_data:
        return image.convert("RGBA" if image.has_transparency_data else "RGB")
    if image.mode == "1":
        return image.convert("L")
    if image.mode == "LAB":
        return _from_lab(image)
    image.load()
    return image


def _to_bytes(image: Image.Image) -> NDArray[np.uint8]:
    """Values of more than 8 bits as bytes, converted in bands of rows: floats of the whole image would take 35 times
    the memory of its bytes.

    16-bit images are divided by 257, so that 65535 becomes 255. Wider types have no standard range: values within
    [0, 1] (floats), [0, 255] or [0, 65535] are scaled from that range, others from their minimum and maximum.
    """
    image.load()
    width, height = image.size
    rows = max(1, _BAND_PIXELS // max(1, width))
    result = np.empty((height, width), np.uint8)

    def bands() -> Iterator[tuple[slice, NDArray[np.generic]]]:
        for top in range(0, height, rows):
            place = slice(top, min(top + rows, height))
            yield place, np.asarray(image.crop((0, place.start, width, place.stop)))

    ranges = [(*_range(values), values.dtype) for _, values in bands()]
    scaled = _scaling(min(r[0] for r in ranges), max(r[1] for r in ranges), ranges[0][2], image.format)
    for place, values in bands():
        result[place] = np.clip(np.rint(scaled(_finite(values))), 0, 255)
    return result


def _finite(values: NDArray[np.generic]) -> NDArray[np.float64]:
    return np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)


def _range(values: NDArray[np.generic]) -> tuple[float, float]:
    numbers = _finite(values)
    return (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 0.0)


def _scaling(
    low: float, high: float, dtype: np.dtype[np.generic], format: str | None
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """The function from an image's values to [0, 255]."""
    sixteen = dtype.itemsize == 2 or (dtype.kind == "i" and format in ("PNG", "PPM"))
    if sixteen or (low >= 0 and 255 < high <= 65535):
        return lambda numbers: numbers / 257
    if low >= 0 and high <= 1 and dtype.kind == "f":
        return lambda numbers: numbers * 255
    if low >= 0 and high <= 255:
        return lambda numbers: numbers
    if high > low:
        return lambda numbers: (numbers - low) * (255 / (high - low))
    return lambda numbers: numbers * 0


def _from_lab(image: Image.Image) -> Image.Image:
    from PIL import ImageCms

    result = ImageCms.profileToProfile(
        image, ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), outputMode="RGB"
    )
    assert result is not None
    return result


def upright(image: Image.Image, source: Image.Image) -> Image.Image:
    """The image with the EXIF orientation of its source applied."""
    try:
        turn = _TURNS.get(source.getexif().get(0x0112, 1))  # after decoding: Pillow rotates TIFF files itself
    except Exception:  # ignore damaged EXIF data
        return image
    return image if turn is None else image.transpose(turn)


def rgb(image: Image.Image) -> Image.Image:
    """The image as RGB, transparency on white."""
    if image.mode == "RGBA":
        flat = Image.new("RGB", image.size, _WHITE)
        flat.paste(image, mask=image.getchannel("A"))
        return flat
    return image if image.mode == "RGB" else image.convert("RGB")
