from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps, features

from relatum.data import decode as module
from relatum.data.decode import decode, extensions, image_size, reason, to_square

SIDE = 32


def gradient(height: int = SIDE, width: int = SIDE) -> np.ndarray:
    """A picture that tells up from down and left from right, each colour in its own way."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 255 // (width - 1), y * 255 // (height - 1), np.full_like(x, 60)], -1).astype(np.uint8)


def save(path: Path, image: Image.Image, **options) -> Path:
    image.save(path, **options)
    return path


def test_the_right_size_keeps_its_pixels(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    out = decode(save(tmp_path / "a.png", Image.fromarray(pixels)), SIDE)
    assert np.array_equal(out, pixels)
    assert out.dtype == np.uint8


@pytest.mark.parametrize("size", [(64, 200), (200, 64), (33, 64)])
def test_the_central_square_is_kept(tmp_path: Path, size: tuple[int, int]) -> None:
    width, height = size
    pixels = np.zeros((height, width, 3), np.uint8)
    edge = min(size)
    top, left = (height - edge) // 2, (width - edge) // 2
    pixels[top : top + edge, left : left + edge] = 200
    out = decode(save(tmp_path / "a.png", Image.fromarray(pixels)), SIDE)
    assert out[2:-2, 2:-2].min() > 190  # all of the square and, but for half a pixel, nothing else


def test_reduction_is_antialiased(tmp_path: Path) -> None:
    stripes = np.zeros((512, 512, 3), np.uint8)
    stripes[:, ::2] = 255  # every second column: picking pixels would give black or white
    for name, options in (("a.png", {}), ("a.jpg", {"quality": 95})):
        out = decode(save(tmp_path / name, Image.fromarray(stripes), **options), SIDE)
        assert np.abs(out.astype(int) - 127).max() < 8


def test_a_large_jpeg_is_not_decoded_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save(tmp_path / "a.jpg", Image.fromarray(gradient(1024, 1024)), quality=95)
    seen = []
    inner = module._square
    monkeypatch.setattr(module, "_square", lambda image, side: (seen.append(image.size), inner(image, side))[1])
    out = decode(file, SIDE)
    assert seen == [(128, 128)]  # an eighth: the decoder's smallest, and still more than twice the side
    assert np.abs(out.astype(int) - gradient()).max() < 14


def test_small_pictures_are_enlarged(tmp_path: Path) -> None:
    assert (
        decode(save(tmp_path / "a.png", Image.new("RGB", (1, 1), (9, 8, 7))), SIDE).tolist()
        == [[[9, 8, 7]] * SIDE] * SIDE
    )


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "tif", "webp"])
def test_exif_orientation(tmp_path: Path, orientation: int, ending: str) -> None:
    upright = gradient(40, 64)
    # how a camera stores an upright picture, by the definition of the tag (row 0, column 0)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"jpg": {"quality": 100, "subsampling": 0}, "webp": {"lossless": True}}.get(ending, {})
    file = save(tmp_path / f"a.{ending}", Image.fromarray(np.ascontiguousarray(stored)), exif=exif.tobytes(), **options)
    plain = decode(save(tmp_path / "plain.png", Image.fromarray(upright)), SIDE)
    assert np.abs(decode(file, SIDE).astype(int) - plain).max() <= 6


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize(("ending", "size"), [("jpg", (333, 257)), ("jpg", (97, 301)), ("png", (333, 257))])
def test_a_turned_photo_has_the_bits_of_its_upright_pixels(
    tmp_path: Path, orientation: int, ending: str, size: tuple[int, int]
) -> None:
    """Other tools turn first and resize then (docs/export.md), and Pillow rounds rows before columns."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = save(tmp_path / f"a.{ending}", Image.fromarray(noise), exif=exif.tobytes())
    with Image.open(file) as image:
        image.draft(None, (2 * SIDE, 2 * SIDE))
        upright = ImageOps.exif_transpose(image)
    assert np.array_equal(decode(file, SIDE), to_square(upright, SIDE))


def test_damaged_exif_does_not_lose_a_picture(tmp_path: Path) -> None:
    file = save(tmp_path / "a.jpg", Image.fromarray(gradient()), quality=95, exif=b"Exif\0\0garbage and more garbage")
    assert decode(file, SIDE).shape == (SIDE, SIDE, 3)


def test_grey_palette_bilevel_and_cmyk(tmp_path: Path) -> None:
    rgb = Image.fromarray(gradient())
    grey = np.asarray(rgb.convert("L"))
    assert np.array_equal(decode(save(tmp_path / "l.png", rgb.convert("L")), SIDE), np.stack([grey] * 3, -1))
    palette = rgb.quantize(256)
    assert np.array_equal(decode(save(tmp_path / "p.png", palette), SIDE), np.asarray(palette.convert("RGB")))
    half = Image.fromarray(np.indices((SIDE, SIDE)).sum(0) % 2 == 0)
    assert set(np.unique(decode(save(tmp_path / "1.png", half), SIDE))) == {0, 255}
    cmyk = rgb.convert("CMYK")
    out = decode(save(tmp_path / "c.tif", cmyk), SIDE)
    assert np.abs(out.astype(int) - gradient()).max() <= 2
    out = decode(save(tmp_path / "c.jpg", cmyk, quality=100, subsampling=0), SIDE)
    assert np.abs(out.astype(int) - gradient()).max() <= 8


def test_alpha_shows_white(tmp_path: Path) -> None:
    rgba = np.zeros((SIDE, SIDE, 4), np.uint8)
    rgba[:, :16] = (255, 0, 0, 255)
    rgba[:, 16:] = (0, 0, 255, 0)  # transparent: its blue must not be seen
    out = decode(save(tmp_path / "a.png", Image.fromarray(rgba)), SIDE)
    assert out[0, 0].tolist() == [255, 0, 0]
    assert out[0, -1].tolist() == [255, 255, 255]
    half = Image.new("LA", (SIDE, SIDE), (0, 128))
    assert abs(int(decode(save(tmp_path / "la.png", half), SIDE)[3, 3, 1]) - 127) <= 1
    indexed = Image.new("P", (SIDE, SIDE), 3)
    indexed.putpalette([7] * 768)
    assert decode(save(tmp_path / "t.png", indexed, transparency=3), SIDE).min() == 255
    assert decode(save(tmp_path / "o.png", indexed), SIDE).max() == 7


def test_reducing_alpha_does_not_bleed(tmp_path: Path) -> None:
    rgba = np.zeros((256, 256, 4), np.uint8)
    rgba[::2] = (255, 255, 255, 255)  # white rows between transparent black ones: white on white
    assert decode(save(tmp_path / "a.png", Image.fromarray(rgba)), SIDE).min() >= 254


def test_sixteen_bits_are_scaled(tmp_path: Path) -> None:
    values = np.linspace(0, 65535, SIDE * SIDE).astype(np.uint16).reshape(SIDE, SIDE)
    expected = np.stack([np.rint(values / 257).astype(np.uint8)] * 3, -1)
    for name in ("a.png", "a.tif", "a.pgm"):
        assert np.array_equal(decode(save(tmp_path / name, Image.fromarray(values)), SIDE), expected), name
    dark = Image.fromarray(values // 300)  # a dark 16-bit picture stays dark
    assert decode(save(tmp_path / "d.png", dark), SIDE).max() <= 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0.0, 0.5], [1.0, 1.0]], np.float32), [0, 128, 255, 255]),
        (np.array([[0, 100], [255, 7]], np.float32), [0, 100, 255, 7]),
        (np.array([[0, 257], [65535, 514]], np.int32), [0, 1, 255, 2]),
        (np.array([[-100, 0], [155, 0]], np.float32), [0, 100, 255, 100]),
        (np.array([[70000, 0], [0, 0]], np.int32), [255, 0, 0, 0]),
        (np.array([[-3, -3], [-3, -3]], np.float32), [0, 0, 0, 0]),
        (np.array([[np.nan, 255], [np.inf, 0]], np.float32), [0, 255, 0, 0]),
    ],
)
def test_wider_numbers(tmp_path: Path, values: np.ndarray, expected: list[int]) -> None:
    file = save(tmp_path / "a.tif", Image.fromarray(values))
    assert decode(file, 2)[..., 0].ravel().tolist() == expected


def test_lab(tmp_path: Path) -> None:
    lab = Image.new("LAB", (SIDE, SIDE), (128, 128, 128))  # half lightness, no colour
    out = decode(save(tmp_path / "a.tif", lab), SIDE)
    assert np.ptp(out) <= 3
    assert 100 < out.mean() < 140


def test_an_animation_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (SIDE, SIDE), colour) for colour in ("red", "lime", "blue")]
    for name in ("a.gif", "a.png", "a.tif"):
        file = save(tmp_path / name, frames[0], save_all=True, append_images=frames[1:])
        assert decode(file, SIDE)[0, 0].tolist() == [255, 0, 0], name


@pytest.mark.parametrize(
    "ending", ["bmp", "gif", "ico", "jp2", "jpg", "pcx", "png", "ppm", "sgi", "tga", "tif", "webp", "qoi", "avif"]
)
def test_formats(tmp_path: Path, ending: str) -> None:
    if not features.check({"jp2": "jpg_2000", "webp": "webp", "avif": "avif"}.get(ending, "jpg")):
        pytest.skip(f"this Pillow has no {ending}")
    if f".{ending}" not in Image.registered_extensions() or (ending == "qoi" and "QOI" not in Image.SAVE):
        pytest.skip(f"this Pillow has no {ending}")
    file = save(tmp_path / f"a.{ending}", Image.new("RGB", (SIDE, SIDE), (200, 100, 50)))
    assert f".{ending}" in extensions()
    assert np.abs(decode(file, SIDE).astype(int) - (200, 100, 50)).max() <= 8


def test_what_is_not_an_image_file() -> None:
    for ending in (".txt", ".json", ".pdf", ".mp4", ".mpg", ".eps", ".ps", ".h5", ".wmf", ""):
        assert ending not in extensions()
    for ending in (".jpg", ".jpeg", ".png", ".mpo", ".tiff", ".bmp", ".gif"):
        assert ending in extensions()


def test_postscript_named_jpg_starts_no_program(tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    file.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(x) run\n")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        decode(file, SIDE)
    assert reason(caught.value) == "not an image that Pillow can read"


def test_broken_files_say_why(tmp_path: Path, picture, png_of) -> None:
    jpeg = picture(tmp_path / "good.jpg", 100, 100).read_bytes()
    cases = {
        "empty.png": (b"", "empty"),
        "text.jpg": (b"hello", "not an image"),
        "cut.jpg": (jpeg[: len(jpeg) // 2], "truncated"),
        "cut.png": (picture(tmp_path / "good.png", 60, 60).read_bytes()[:2000], "truncated"),
        "bomb.png": (png_of(30_000, 30_000), "too many pixels"),
        "hollow.png": (png_of(100, 100), "truncated"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Exception) as caught:  # noqa: PT011
            decode(tmp_path / name, SIDE)
        assert message in reason(caught.value), name
        assert "\n" not in reason(caught.value)


def test_what_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "d.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "absent")
    for name, message in (("d.png", "is a directory"), ("pipe.png", "not a regular file"), ("link.png", "link")):
        with pytest.raises(OSError) as caught:  # noqa: PT011
            decode(tmp_path / name, SIDE)
        assert message in reason(caught.value)
        assert image_size(tmp_path / name) is None


def test_reasons() -> None:
    assert reason(PermissionError(13, "Permission denied")) == "permission denied"
    assert reason(MemoryError()) == "does not fit in memory"
    assert reason(KeyError()) == "KeyError"
    assert len(reason(ValueError("x" * 500))) == 120


def test_image_size(tmp_path: Path, picture) -> None:
    assert image_size(picture(tmp_path / "a.png", 50, 70)) == (50, 70)
    (tmp_path / "t.png").write_text("hello")
    assert image_size(tmp_path / "t.png") is None
