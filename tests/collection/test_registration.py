"""The comparison of aligned thumbnails, on images whose change is known."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from relatum.collection.registration import _aligned, _same_brightness, differences

SIZE = 48


def picture(seed: int = 0) -> Image.Image:
    """A smooth random picture, larger than a thumbnail, so that parts of it can be cut out."""
    coarse = np.random.default_rng(seed).integers(40, 216, (9, 9, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((480, 480), Image.Resampling.BICUBIC)


def thumbnail(image: Image.Image, box: tuple[int, int, int, int] = (0, 0, 480, 480)) -> np.ndarray:
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BOX, box=box))


def difference(a: np.ndarray, b: np.ndarray, resolution: int = SIZE) -> float:
    return float(differences(a[None], b[None], np.array([resolution]))[0])


def test_identical_images_do_not_differ() -> None:
    assert difference(thumbnail(picture()), thumbnail(picture())) == pytest.approx(0, abs=1e-3)


def test_unrelated_images_differ() -> None:
    assert difference(thumbnail(picture(1)), thumbnail(picture(2))) > 0.5


@pytest.mark.parametrize("box", [(20, 20, 460, 460), (0, 0, 450, 450), (30, 10, 470, 450)])
def test_a_crop_is_aligned_with_its_original(box: tuple[int, int, int, int]) -> None:
    crop, whole = (np.divide(thumbnail(picture(), b)[None], 255, dtype=np.float32) for b in (box, (0, 0, 480, 480)))
    moved, inside = _aligned(crop, whole)
    assert inside.mean() > 0.95  # all but the outermost pixels on one or two sides
    assert np.abs(moved - crop)[inside > 0].max() < 0.03 < 0.2 < np.abs(whole - crop).max()


def test_the_border_of_a_moved_image_does_not_count() -> None:
    outline = Image.new("L", (480, 480), "white")
    draw = ImageDraw.Draw(outline)
    draw.line([(0, 60), (480, 20), (440, 480)], fill="black", width=24)
    draw.line([(20, 0), (60, 480)], fill="black", width=24)
    image = outline.convert("RGB")
    for box in ((14, 14, 480, 480), (0, 0, 466, 466)):  # 3 % cut off at two sides, across the lines
        assert difference(thumbnail(image), thumbnail(image, box)) < 0.18


def test_a_few_levels_of_brightness_do_not_count_in_a_pale_image() -> None:
    pale = np.rint(210 + (thumbnail(picture()) - 128.0) / 4).astype(np.uint8)
    assert pale.std() / 255 < 0.06
    for levels, expected in ((4, True), (14, False)):
        changed = pale.copy()
        changed[16:28, 16:28] += np.uint8(levels)
        assert (difference(pale, changed) <= 0.18) is expected


def test_the_gain_is_found_where_a_brighter_copy_is_cut_off_at_white() -> None:
    original = np.linspace(0.1, 0.95, SIZE * SIZE, dtype=np.float32).reshape(1, SIZE, SIZE)
    brighter = np.minimum(original * 1.25, 1)
    everywhere = np.ones_like(original)
    for a, b, expected in ((brighter, original, 1.25), (original, brighter, 0.8)):
        corrected, fitted, gain, _ = _same_brightness(a, b, everywhere)
        assert gain[0] == pytest.approx(expected, abs=0.01)
        assert np.abs(corrected - fitted).max() < 0.01


def test_a_patch_of_the_size_of_a_sign_counts_as_much_in_a_large_calm_image() -> None:
    calm = np.full((SIZE, SIZE, 3), 200, np.uint8)
    calm[:, :12] = 60
    signed = calm.copy()
    signed[30:36, 30:36] = 90
    assert np.sqrt(np.mean((calm / 255.0 - signed / 255.0) ** 2)) < 0.06  # on average they agree
    assert difference(calm, signed) > 0.3


def test_colour_alone_tells_images_apart() -> None:
    grey = thumbnail(picture())
    warm = grey.astype(int) + np.array([60, -20, -54])  # about the same brightness
    assert difference(grey, np.clip(warm, 0, 255).astype(np.uint8)) > 0.25


def test_details_that_a_small_copy_cannot_show_do_not_count() -> None:
    random = np.random.default_rng(3)
    texture = 30 * random.choice([-1, 1], (SIZE, SIZE, 1))
    original = np.clip(thumbnail(picture()).astype(int) + texture, 0, 255).astype(np.uint8)
    small = Image.fromarray(original).resize((24, 24), Image.Resampling.BOX)
    copy = np.asarray(small.resize((SIZE, SIZE), Image.Resampling.BICUBIC))
    assert difference(original, copy, 24) < 0.18 < difference(original, copy)
