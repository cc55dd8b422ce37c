"""Facts about an image file that need no pixels: a hash of its content, its size in pixels, and when it was taken."""

from __future__ import annotations

import datetime
import hashlib
import warnings
from pathlib import Path

from PIL import Image

from relatum.data.decode import Source, opened
from relatum.data.decoding_memory import MEMORY, decoding_bytes

_EXIF, _TAKEN, _CHANGED = 0x8769, 0x9003, 0x0132  # the EXIF section, DateTimeOriginal, DateTime


def digest(source: Source) -> str:
    """A hash of a file's content; empty if it cannot be read."""
    try:
        if not isinstance(source, Path):
            return hashlib.sha256(source.getbuffer()).hexdigest()[:32]
        if not source.is_file():  # reading a pipe would block
            return ""
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError:
        return ""


def width_height_time(source: Source) -> tuple[int, int, int | None]:
    """Width and height in pixels, and the time of the photograph in seconds since 1970 if the file states it.

    Cameras record local time without a zone; it is read as UTC, so that a photograph keeps its day everywhere.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's warnings
            with opened(source) as (image, held):
                width, height = image.size
                # Pillow decodes a PNG file to find its EXIF data, which may come after the pixels.
                size = decoding_bytes(image, width * height) if image.format == "PNG" else 0
                with MEMORY.hold(size, held):
                    return width, height, _time_taken(image)
    except Exception:  # Pillow may raise any exception for a damaged file
        return 0, 0, None


def _time_taken(image: Image.Image) -> int | None:
    try:
        exif = image.getexif()
        text = exif.get_ifd(_EXIF).get(_TAKEN) or exif.get(_CHANGED)
        moment = datetime.datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S")
        return int(moment.replace(tzinfo=datetime.UTC).timestamp())
    except Exception:  # ignore damaged EXIF data
        return None
