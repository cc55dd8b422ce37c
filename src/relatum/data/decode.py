"""One file to one square RGB picture, whatever Pillow can read.

The largest central square of a picture is reduced to `side` pixels with antialiasing (JPEGs by their own decoder
first), so the shorter side becomes `side` and the ends of the longer one are cut off. A picture that already has that
size keeps its pixels. EXIF orientation is applied, transparent parts show white, 16-bit values are scaled and not
clipped, and of an animation the first frame is taken.
"""

from __future__ import annotations

import stat
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

# Formats that Pillow names but does not decode by itself: EPS starts Ghostscript, WMF needs Windows, the rest are
# stubs for plug-ins. None of them may be opened here: reading a picture never starts another program.
_NOT_READ = {"EPS", "WMF", "BUFR", "GRIB", "HDF5", "MPEG"}
Source = Path | BytesIO  # a file, or its bytes
_WHITE = (255, 255, 255)
_TURNS = dict(enumerate(map(Image.Transpose, (0, 3, 1, 5, 4, 6, 2)), start=2))  # EXIF orientation 2 to 8


@lru_cache(maxsize=1)
def formats() -> tuple[str, ...]:
    """The formats that are read."""
    Image.init()
    return tuple(sorted(set(Image.OPEN) - _NOT_READ))


@lru_cache(maxsize=1)
def extensions() -> frozenset[str]:
    """The file name endings of those formats, in lower case with their dot: what counts as an image file."""
    read = {*formats(), "MPO"}  # a JPEG of several pictures, opened as a JPEG
    return frozenset(ending for ending, name in Image.registered_extensions().items() if name in read)


def image_size(source: Source) -> tuple[int, int] | None:
    """Width and height from a file's header, or None where it cannot be read."""
    try:
        _check(source)
        with Image.open(source, formats=formats()) as image:
            return image.size
    except Exception:  # decode() will say why
        return None


def decode(source: Source, side: int) -> NDArray[np.uint8]:
    """The picture in a file as (side, side, 3) uint8; raises whatever Pillow raises on a file that it cannot read."""
    _check(source)
    with Image.open(source, formats=formats()) as image:
        image.draft(None, (2 * side, 2 * side))  # twice the side: the rest is reduced with antialiasing
        small = _square(_plain(image), side)
        return np.asarray(_rgb(_upright(small, image)), dtype=np.uint8)


def _check(source: Source) -> None:
    if isinstance(source, Path):
        status = source.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
            raise IsADirectoryError if stat.S_ISDIR(status.st_mode) else OSError("not a regular file")
        size = status.st_size
    else:
        size = len(source.getbuffer())
    if not size:
        raise OSError("the file is empty")


def reason(error: BaseException) -> str:
    """Why a file could not be read, in a few words."""
    if isinstance(error, IsADirectoryError):
        return "is a directory"
    if isinstance(error, FileNotFoundError):
        return "a link to a file that is not there"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, UnidentifiedImageError):
        return "not an image that Pillow can read"
    if isinstance(error, Image.DecompressionBombError):
        return "too many pixels (a decompression bomb?)"
    if isinstance(error, MemoryError):
        return "does not fit in memory"
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return text[:120] or type(error).__name__


def _plain(image: Image.Image) -> Image.Image:
    """The picture in a mode that can be resized without loss: L, RGB, RGBA, CMYK or the like."""
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_to_bytes(np.asarray(image), image.format))
    if image.mode in ("P", "PA", "RGBa", "La", "LA") or image.has_transparency_data:
        return image.convert("RGBA" if image.has_transparency_data else "RGB")
    if image.mode == "1":
        return image.convert("L")
    if image.mode == "LAB":
        return _from_lab(image)
    image.load()
    return image


def _to_bytes(values: NDArray[np.generic], format: str | None) -> NDArray[np.uint8]:
    """Numbers of more than 8 bits as bytes.

    16-bit pictures are divided by 257, so that 65535 becomes 255. Wider numbers have no agreed white: values that fit
    in [0, 1] (floats), [0, 255] or [0, 65535] are taken to be of that range, others are stretched.
    """
    numbers = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 0.0)
    sixteen = values.dtype.itemsize == 2 or (values.dtype.kind == "i" and format in ("PNG", "PPM"))
    if sixteen or (low >= 0 and 255 < high <= 65535):
        scaled = numbers / 257
    elif low >= 0 and high <= 1 and values.dtype.kind == "f":
        scaled = numbers * 255
    elif low >= 0 and high <= 255:
        scaled = numbers
    else:
        scaled = (numbers - low) * (255 / (high - low)) if high > low else numbers * 0
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


def _from_lab(image: Image.Image) -> Image.Image:
    from PIL import ImageCms

    result = ImageCms.profileToProfile(
        image, ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), outputMode="RGB"
    )
    assert result is not None
    return result


def _square(image: Image.Image, side: int) -> Image.Image:
    """The largest central square, reduced (or enlarged) to `side` pixels."""
    width, height = image.size
    edge = min(width, height)
    left, top = (width - edge) / 2, (height - edge) / 2
    box = (left, top, left + edge, top + edge)
    return image.resize((side, side), Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)


def _upright(small: Image.Image, source: Image.Image) -> Image.Image:
    """The small picture turned as its source's EXIF says (a square of the centre turns as the whole does)."""
    try:
        turn = _TURNS.get(source.getexif().get(0x0112, 1))  # read after decoding: Pillow turns TIFFs by itself
    except Exception:  # damaged EXIF is no reason to lose a picture
        return small
    return small if turn is None else small.transpose(turn)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGBA":
        flat = Image.new("RGB", image.size, _WHITE)
        flat.paste(image, mask=image.getchannel("A"))
        return flat
    return image if image.mode == "RGB" else image.convert("RGB")
