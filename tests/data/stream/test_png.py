"""The short way for small PNG files gives Pillow's pixels, or leaves the file to Pillow."""

import io
import struct
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from relatum.data.decode import decode
from relatum.data.stream.png import filtered_rows, undo_filters

SIDE = 12


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def header(width: int = SIDE, height: int = SIDE, depth: int = 8, colour: int = 2, interlaced: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))


def file(rows: bytes, *, before: bytes = b"", split: int | None = None, start: bytes | None = None) -> bytes:
    packed = zlib.compress(rows)
    parts = [packed] if split is None else [packed[:split], packed[split:]]
    content = (header() if start is None else start) + before + b"".join(chunk(b"IDAT", part) for part in parts)
    return b"\x89PNG\r\n\x1a\n" + content + chunk(b"IEND", b"")


def random_rows(seed: int, kinds: list[int]) -> bytes:
    """Filtered rows of random bytes: any bytes are valid under any of the five filters."""
    rows = np.random.default_rng(seed).integers(0, 256, (SIDE, 1 + 3 * SIDE), np.uint8)
    rows[:, 0] = np.resize(kinds, SIDE)
    return rows.tobytes()


def ours(content: bytes) -> NDArray[np.uint8] | None:
    rows = filtered_rows(content, SIDE)
    if rows is None:
        return None
    pixels = np.full((3, SIDE, SIDE, 3), 7, np.uint8)
    assert undo_filters([rows], [1], pixels) == []
    assert (pixels[[0, 2]] == 7).all()
    return pixels[1]


def pillow(content: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


@pytest.mark.parametrize("kinds", [[0], [1], [2], [3], [4], [0, 1, 2, 3, 4], [4, 3, 2, 1, 0]])
def test_every_filter_gives_the_pixels_of_pillow(kinds: list[int]) -> None:
    for seed in range(20):
        content = file(random_rows(seed, kinds))
        np.testing.assert_array_equal(ours(content), pillow(content))


def test_several_images_at_once() -> None:
    contents = [file(random_rows(seed, [4, 1, 3])) for seed in range(5)]
    pixels = np.zeros((6, SIDE, SIDE, 3), np.uint8)
    places = [5, 0, 3, 1, 4]
    rows = [filtered_rows(content, SIDE) for content in contents]
    assert undo_filters([row for row in rows if row is not None], places, pixels) == []
    for place, content in zip(places, contents, strict=True):
        np.testing.assert_array_equal(pixels[place], pillow(content))
    assert not pixels[2].any()


def test_harmless_chunks_and_several_parts() -> None:
    before = chunk(b"gAMA", struct.pack(">I", 45455)) + chunk(b"pHYs", bytes(9)) + chunk(b"tEXt", b"Title\0x")
    content = file(random_rows(0, [4]), before=before, split=9)
    np.testing.assert_array_equal(ours(content), pillow(content))


def saved(image: Image.Image, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", **options)
    return out.getvalue()


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "I;16", "LA"])
def test_other_modes_are_left_to_pillow(mode: str) -> None:
    assert ours(saved(Image.new(mode, (SIDE, SIDE)))) is None


def test_other_sizes_and_files_with_exif_or_transparency_are_left_to_pillow() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert ours(saved(Image.new("RGB", (SIDE, SIDE + 1)))) is None
    assert ours(saved(Image.new("RGB", (SIDE, SIDE)), exif=exif)) is None
    assert ours(saved(Image.new("RGB", (SIDE, SIDE)), transparency=(0, 0, 0))) is None
    assert ours(file(random_rows(0, [0]), start=header(interlaced=1))) is None
    assert ours(b"") is None


def test_orientation_in_a_text_is_left_to_pillow() -> None:
    """ImageMagick writes EXIF data as a text, and Pillow finds it: such a picture was not turned when streamed."""
    exif = Image.Exif()
    exif[0x0112] = 6
    profile = exif.tobytes().hex()
    texts = (
        f"Raw profile type exif\0\nexif\n{len(profile) // 2}\n{profile}",
        'XML:com.adobe.xmp\0<x tiff:Orientation="6"/>',
    )
    for text in texts:
        content = file(random_rows(0, [0]), before=chunk(b"tEXt", text.encode()))
        turned = decode(io.BytesIO(content), SIDE)
        np.testing.assert_array_equal(turned, np.rot90(pillow(content), -1))
        assert ours(content) is None


def test_damaged_files_are_left_to_pillow() -> None:
    good = file(random_rows(1, [4, 2]))
    place = good.index(b"IDAT") + 4
    flipped = bytearray(good)
    flipped[place + 20] ^= 1
    assert ours(bytes(flipped)) is None  # the checksum of the chunk
    for length in range(len(good) - 12):
        assert ours(good[:length]) is None
    assert ours(file(random_rows(1, [4])[:-1])) is None
    assert ours(file(random_rows(1, [4]) + b"x")) is None
    bomb = file(bytes(50_000_000))
    assert ours(bomb) is None


def test_a_filter_that_does_not_exist() -> None:
    rows = filtered_rows(file(random_rows(2, [5])), SIDE)
    assert rows is not None
    good = filtered_rows(file(random_rows(2, [1])), SIDE)
    assert good is not None
    assert undo_filters([good, rows], [1, 0], np.zeros((2, SIDE, SIDE, 3), np.uint8)) == [0]
