"""Compares two images pixel by pixel after aligning them: tells a copy from an image that only looks similar.

A copy may be re-encoded, resized, slightly cropped, or a little brighter or darker. All of these leave every part of
the image as it was, up to one shift, one scale and one gain. Two icons of a series agree on average and differ in one
place. So a pair is aligned first, and then judged by the window in which it agrees least.

Images are compared as thumbnails of `SIDE` pixels, or in detail: read again at `DETAIL` pixels, moved at that size, and
compared at half of it. A thin line that is moved by a part of a pixel is blurred, and at 48 pixels a line of a drawing
is thinner than a pixel.

Shape letters: P pairs, S side of an image.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from relatum.collection.signatures import SIDE, shrink

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]

DETAIL = 192  # side of the images that are compared in detail
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
CONTRAST = 0.05  # images flatter than this are compared as if they had this contrast
_WINDOW = 9  # side of the windows in which images are compared, in pixels
_TINTED = 13  # the same for colours
_STEPS = ((2.5, 6), (1.0, 6))  # blur in pixels and Gauss-Newton steps, coarse to fine
_FINE_STEPS = ((1.0, 3),)  # the same in detail, from the result for the thumbnails
_MARGIN = 0.5  # pixels of the thumbnail at the border of a moved image: they mix with what a crop has cut off
_COVERED = 0.3  # part of a window that must be inside both images
_LARGEST_STEP = np.array([0.05, 1, 1])  # of scale and shift (in pixels) in one Gauss-Newton step
_SCALES = (0.88, 1.14)  # of one image relative to the other: crops of up to 6 % on each side
_LARGEST_SHIFT = 4.0  # in pixels of the thumbnail
_GAINS = (0.7, 1.43)  # of the brightness of one image relative to the other
_SATURATED = 0.02  # brightness nearer to black or white than this may have been cut off
_LITTLE = 0.02  # weight of such pixels when the gain is estimated; more than none, for drawings in black and white
_FAINT = 0.15  # contrast to which brightness is compared at least: encoders change pale images by a few of 256 levels
_STRUCTURE = 2 / 3  # weight of a change of the pattern in a window, relative to one of its brightness
_COLOUR = 4 / 3  # weight of a change of its colour: JPEG changes the colours of small images by up to 0.1
_NOISE = 0.2  # variance that is no pattern, relative to that of the image: JPEG artefacts in flat parts
_RESOLUTIONS = (12, 16, 20, 24, 32, 48, 64, 96)  # sides for which images are blurred in the same way
_BLUR = 0.35  # of images at a lower resolution, in pixels of that resolution
_CHUNK = 64  # pairs at a time: about 100 MB in detail


def differences(first: Bytes, second: Bytes, resolution: Rows) -> Floats:
    """How much pairs of images differ in the window where they differ most, relative to their contrast.

    0 for identical images, about 1 for unrelated ones, infinite if their brightness differs by more than a copy's may.

    Args:
        first: (P, S, S, 3) the image of each pair that stays as it is; S is `SIDE` or `DETAIL`.
        second: (P, S, S, 3) the image that is aligned to it.
        resolution: (P,) side in pixels of the smaller image of each pair; details that it cannot show do not count.
    """
    result = np.empty(len(first), np.float32)
    level = np.maximum(np.digitize(resolution, _RESOLUTIONS) - 1, 0)
    for value in np.unique(level):
        rows = np.flatnonzero(level == value)
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            result[part] = _differences(first[part], second[part], _RESOLUTIONS[value])
    return result


def edge_correlation(first: Bytes, second: Bytes) -> Floats:
    """Correlation (P,) of the steps between neighbouring pixels of images (P, S, S, 3) that lie on one another.

    Steps to and from pixels that are nearly black or white in either image do not count: a brighter or darker copy may
    have been cut off there. 1 for images that have no other steps.
    """
    result = np.empty(len(first), np.float32)
    for start in range(0, len(first), _CHUNK):
        part = slice(start, start + _CHUNK)
        a, b = (np.divide(images[part], 255, dtype=np.float32) @ LUMINANCE for images in (first, second))
        grey = (np.minimum(a, b) > _SATURATED) & (np.maximum(a, b) < 1 - _SATURATED)
        products = np.zeros((3, len(a)), np.float32)
        for axis in (1, 2):
            inside = np.minimum(grey[:, 1:], grey[:, :-1]) if axis == 1 else np.minimum(grey[..., 1:], grey[..., :-1])
            one, other = np.diff(a, axis=axis) * inside, np.diff(b, axis=axis) * inside
            products += [(x * y).sum((1, 2)) for x, y in ((one, other), (one, one), (other, other))]
        size = products[1] * products[2]
        result[part] = np.where(size > 0, products[0] / np.sqrt(np.maximum(size, 1e-18)), 1)
    return result


def colour_difference(first: Bytes, second: Bytes) -> Floats:
    """The largest change of colour (P,) in a window of images (P, S, S, 3) that lie on one another, after one gain.

    A change of brightness scales all channels alike. Pixels with a channel that is nearly black or white in either
    image do not count: it may have been cut off. 0 for images that have no others.
    """
    result = np.empty(len(first), np.float32)
    for start in range(0, len(first), _CHUNK):
        part = slice(start, start + _CHUNK)
        a, b = (np.divide(images[part], 255, dtype=np.float32) for images in (first, second))
        kept = ((np.minimum(a, b) > _SATURATED) & (np.maximum(a, b) < 1 - _SATURATED)).all(3, keepdims=True)
        a, b = a * kept, b * kept
        gain = (a * b).sum((1, 2, 3)) / np.maximum((b * b).sum((1, 2, 3)), 1e-9)
        left = a - gain[:, None, None, None] * b
        tints = shrink(left - left.mean(3, keepdims=True), SIDE)
        result[part] = np.abs(_filtered(tints, _box(SIDE, _TINTED // 2))).max((1, 2, 3))
    return result


def _differences(first: Bytes, second: Bytes, side: int) -> Floats:
    a, b = (np.divide(images, 255, dtype=np.float32) for images in (first, second))
    b, inside = _aligned(a, b)
    if a.shape[1] > SIDE:
        half = a.shape[1] // 2
        a, b, inside = shrink(a, half), shrink(b, half), inside[:, ::2, ::2] * inside[:, 1::2, 1::2]
    size = a.shape[1]
    side = min(side, size)
    if side < size:
        a, b = (_filtered(images, _gaussian(size, _BLUR * size / side)) for images in (a, b))
    brightness, fitted, gain, contrast = _same_brightness(a @ LUMINANCE, b @ LUMINANCE, inside)
    tints = (a - (a @ LUMINANCE)[..., None]) - gain[:, None, None, None] * (b - (b @ LUMINANCE)[..., None])
    tints = _filtered(tints, _gaussian(size, 2 * _BLUR * size / side))  # JPEG halves the resolution of colours
    tint = np.abs(_filtered(tints * inside[..., None], _box(size, _TINTED))).max((1, 2, 3))
    covered = _filtered(inside, _box(size, _WINDOW))
    mean_a, mean_b = _window_means(brightness, inside, covered), _window_means(fitted, inside, covered)
    lightness = np.abs(mean_a - mean_b).max((1, 2)) / np.maximum(contrast, _FAINT)
    variance_a = _window_means(brightness**2, inside, covered) - mean_a**2
    variance_b = _window_means(fitted**2, inside, covered) - mean_b**2
    together = _window_means(brightness * fitted, inside, covered) - mean_a * mean_b
    noise = (_NOISE * contrast**2)[:, None, None]
    structure = 1 - ((2 * together + noise) / (variance_a + variance_b + noise)).min((1, 2))  # as in SSIM
    result = np.max([lightness, _COLOUR * tint, _STRUCTURE * structure], 0)
    return np.where((gain >= _GAINS[0]) & (gain <= _GAINS[1]), result, np.inf)


def _aligned(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """`b` moved and scaled to lie on `a`, and where it then has pixels (P, S, S)."""
    count, size = a.shape[:2]
    moves = np.tile(np.array([1.0, 0.0, 0.0]), (count, 1))  # scale, shift down, shift across
    for side, steps in ((SIDE, _STEPS), (2 * SIDE, _FINE_STEPS)):
        if side <= size:
            target, source = (shrink(images, side) if side < size else images for images in (a, b))
            moves = _refined(target @ LUMINANCE, source @ LUMINANCE, moves * [1, side / SIDE, side / SIDE], steps)
            moves /= [1, side / SIDE, side / SIDE]
    return _moved(b, moves * [1, size / SIDE, size / SIDE], _MARGIN * size / SIDE)


def _refined(
    a: Floats, b: Floats, moves: NDArray[np.float64], steps: tuple[tuple[float, int], ...]
) -> NDArray[np.float64]:
    """Scales and shifts (P, 3) that move `b` onto `a`, both (P, S, S), from first estimates of them.

    Lucas and Kanade's method (1981) for one scale and one shift, with gain and offset as further unknowns.
    """
    count, size = a.shape[:2]
    down, across = _places(size)
    damping = 1e-4 * np.diag([1, 1, size**2 / 4, 1, 1])
    largest = _LARGEST_SHIFT * size / SIDE
    for blur, number in steps:
        target, source = (_filtered(images, _gaussian(size, blur)) for images in (a, b))
        for _ in range(number):
            moved, inside = _moved(source[..., None], moves, -0.5)
            moved = moved[..., 0]
            slope_down, slope_across = np.gradient(moved, axis=(1, 2))
            columns = [moved, np.ones_like(moved), slope_down * down + slope_across * across, slope_down, slope_across]
            jacobian = (np.stack(columns, 1) * inside[:, None]).reshape(count, 5, -1)
            normal = jacobian @ jacobian.transpose(0, 2, 1) + damping
            right = jacobian @ (target * inside).reshape(count, -1, 1)
            solution = np.linalg.solve(normal, right)[..., 0]
            step = solution[:, 2:] / np.maximum(np.abs(solution[:, :1]), 0.2)
            moves = moves + np.clip(step * moves[:, :1], -_LARGEST_STEP, _LARGEST_STEP)
            moves[:, 0] = np.clip(moves[:, 0], *_SCALES)
            moves[:, 1:] = np.clip(moves[:, 1:], -largest, largest)
    return moves


def _places(size: int) -> tuple[Floats, Floats]:
    """Row and column of each pixel, from the centre of the image."""
    line = np.arange(size, dtype=np.float32) - (size - 1) / 2
    down, across = np.meshgrid(line, line, indexing="ij")
    return down, across


def _moved(images: Floats, moves: NDArray[np.float64], margin: float) -> tuple[Floats, Floats]:
    """Images (P, S, S, C) sampled bilinearly at scaled and shifted places, and 1 where those lie in the image.

    Places nearer to the centres of its outermost pixels than `margin` do not lie in it.
    """
    size = images.shape[1]
    down, across = _places(size)
    scale, shift_down, shift_across = (moves[:, i, None, None].astype(np.float32) for i in range(3))
    row, column = (
        scale * line + shift + (size - 1) / 2 for line, shift in ((down, shift_down), (across, shift_across))
    )
    inside = (np.minimum(row, column) >= margin) & (np.maximum(row, column) <= size - 1 - margin)
    top, left = (np.clip(np.floor(place), 0, size - 2).astype(np.int64) for place in (row, column))
    y, x = (np.clip(place - corner, 0, 1)[..., None] for place, corner in ((row, top), (column, left)))
    pair = np.arange(len(images))[:, None, None]
    upper = images[pair, top, left] * (1 - x) + images[pair, top, left + 1] * x
    lower = images[pair, top + 1, left] * (1 - x) + images[pair, top + 1, left + 1] * x
    return upper * (1 - y) + lower * y, inside.astype(np.float32)


def _same_brightness(a: Floats, b: Floats, inside: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """The brightness of `a`, that of `b` after gain and offset, the gain, and the contrast of `a`.

    A brighter copy is cut off at white. There, the original may have any value beyond: it counts as equal.
    """
    usable = (np.minimum(a, b) > _SATURATED) & (np.maximum(a, b) < 1 - _SATURATED)
    weight = inside * np.where(usable, 1, np.float32(_LITTLE))
    total = weight.sum((1, 2))
    mean_a, mean_b = ((weight * image).sum((1, 2)) / total for image in (a, b))
    from_a, from_b = a - mean_a[:, None, None], b - mean_b[:, None, None]
    gain = (weight * from_a * from_b).sum((1, 2)) / np.maximum((weight * from_b**2).sum((1, 2)), 1e-9)
    fitted = np.clip(gain[:, None, None] * from_b + mean_a[:, None, None], 0, 1)
    beyond = ((b >= 1 - _SATURATED) & (a > fitted)) | ((b <= _SATURATED) & (a < fitted))
    pixels = inside.sum((1, 2))
    centre = (a * inside).sum((1, 2)) / pixels
    contrast = np.sqrt((inside * (a - centre[:, None, None]) ** 2).sum((1, 2)) / pixels)
    return np.where(beyond, fitted, a), fitted, gain, np.maximum(contrast, CONTRAST)


def _window_means(images: Floats, inside: Floats, covered: Floats) -> Floats:
    """Averages over the part of the window around each pixel that is inside; 0 where that is a small part."""
    sums = _filtered(images * inside, _box(images.shape[1], _WINDOW))
    return np.where(covered > _COVERED, sums / np.maximum(covered, _COVERED), 0)


def _filtered(images: Floats, kernel: Floats) -> Floats:
    """A separable filter of images (P, S, S) or (P, S, S, C)."""
    return np.einsum("ay,bx,pyx...->pab...", kernel, kernel, images, optimize=True)


@lru_cache(maxsize=16)
def _gaussian(size: int, blur: float) -> Floats:
    place = np.arange(size)
    weights = np.exp(-0.5 * ((place[:, None] - place[None]) / blur) ** 2)
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


@lru_cache(maxsize=4)
def _box(size: int, width: int) -> Floats:
    place = np.arange(size)
    weights = (np.abs(place[:, None] - place[None]) <= width // 2).astype(np.float32)
    return weights / weights.sum(1, keepdims=True)
