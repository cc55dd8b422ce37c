"""Compares two thumbnails pixel by pixel after aligning them: tells a copy from an image that only looks similar.

A copy may be re-encoded, resized, slightly cropped, or a little brighter or darker. All of these leave every part of
the image as it was, up to one shift, one scale and one gain. Two icons of a series agree on average and differ in one
place. So a pair is aligned first, and then judged by the window in which it agrees least.

Shape letters: N images, P pairs, S side of a thumbnail.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]

LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
CONTRAST = 0.05  # images flatter than this are compared as if they had this contrast
_WINDOW = 9  # side of the windows in which images are compared, in pixels of the thumbnail
_TINTED = 13  # the same for colours
_STEPS = ((2.5, 6), (1.0, 6))  # blur in pixels and Gauss-Newton steps, coarse to fine
_LARGEST_STEP = np.array([0.05, 1, 1])  # of scale and shift (in pixels) in one Gauss-Newton step
_SCALES = (0.88, 1.14)  # of one image relative to the other: crops of up to 6 % on each side
_LARGEST_SHIFT = 4.0  # in pixels of the thumbnail
_GAINS = (0.7, 1.43)  # of the brightness of one image relative to the other
_SATURATED = 0.02  # brightness nearer to black or white than this may have been cut off
_LITTLE = 0.02  # weight of such pixels when the gain is estimated; more than none, for drawings in black and white
_STRUCTURE = 2 / 3  # weight of a change of the pattern in a window, relative to one of its brightness
_COLOUR = 4 / 3  # weight of a change of its colour: JPEG changes the colours of small images by up to 0.1
_NOISE = 0.2  # variance that is no pattern, relative to that of the image: JPEG artefacts in flat parts
_RESOLUTIONS = (12, 16, 20, 24, 32, 48)  # sides for which images are blurred in the same way
_BLUR = 0.35  # of images at a lower resolution, in pixels of that resolution
_CHUNK = 256  # pairs at a time: about 100 MB


def differences(images: Bytes, first: Rows, second: Rows, resolution: Rows) -> Floats:
    """How much pairs of images differ in the window where they differ most, relative to their contrast.

    0 for identical images, about 1 for unrelated ones, infinite if their brightness differs by more than a copy's may.

    Args:
        images: (N, S, S, 3) thumbnails.
        first: (P,) the image of each pair that stays as it is.
        second: (P,) the image that is aligned to it.
        resolution: (P,) side in pixels of the smaller image of each pair; details that it cannot show do not count.
    """
    result = np.empty(len(first), np.float32)
    level = np.digitize(resolution, _RESOLUTIONS)
    for value in np.unique(level):
        rows = np.flatnonzero(level == value)
        side = _RESOLUTIONS[max(int(value) - 1, 0)]
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            result[part] = _differences(images[first[part]], images[second[part]], side)
    return result


def _differences(first: Bytes, second: Bytes, side: int) -> Floats:
    a, b = (np.divide(images, 255, dtype=np.float32) for images in (first, second))
    b, inside = _aligned(a, b)
    size = a.shape[1]
    if side < size:
        a, b = (_filtered(images, _gaussian(size, _BLUR * size / side)) for images in (a, b))
    brightness, fitted, gain, contrast = _same_brightness(a @ LUMINANCE, b @ LUMINANCE, inside)
    tints = (a - (a @ LUMINANCE)[..., None]) - gain[:, None, None, None] * (b - (b @ LUMINANCE)[..., None])
    tints = _filtered(tints, _gaussian(size, 2 * _BLUR * size / side))  # JPEG halves the resolution of colours
    tint = np.abs(_filtered(tints * inside[..., None], _box(size, _TINTED))).max((1, 2, 3))
    mean_a, mean_b = _window_means(brightness, inside), _window_means(fitted, inside)
    lightness = np.abs(mean_a - mean_b).max((1, 2)) / contrast
    variance_a = _window_means(brightness**2, inside) - mean_a**2
    variance_b = _window_means(fitted**2, inside) - mean_b**2
    together = _window_means(brightness * fitted, inside) - mean_a * mean_b
    noise = (_NOISE * contrast**2)[:, None, None]
    structure = 1 - ((2 * together + noise) / (variance_a + variance_b + noise)).min((1, 2))  # as in SSIM
    result = np.max([lightness, _COLOUR * tint, _STRUCTURE * structure], 0)
    return np.where((gain >= _GAINS[0]) & (gain <= _GAINS[1]), result, np.inf)


def _aligned(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """`b` moved and scaled to lie on `a`, and where it then has pixels (P, S, S).

    Lucas and Kanade's method (1981) for one scale and one shift, with gain and offset as further unknowns.
    """
    count, size = a.shape[:2]
    line = np.arange(size, dtype=np.float32) - (size - 1) / 2
    down, across = np.meshgrid(line, line, indexing="ij")
    moves = np.tile(np.array([1.0, 0.0, 0.0]), (count, 1))  # scale, shift down, shift across
    damping = 1e-4 * np.diag([1, 1, size**2 / 4, 1, 1])
    for blur, steps in _STEPS:
        target, source = (_filtered(images @ LUMINANCE, _gaussian(size, blur)) for images in (a, b))
        for _ in range(steps):
            moved, inside = _moved(source[..., None], moves, down, across)
            moved = moved[..., 0]
            slope_down, slope_across = np.gradient(moved, axis=(1, 2))
            columns = [moved, np.ones_like(moved), slope_down * down + slope_across * across, slope_down, slope_across]
            jacobian = (np.stack(columns, -1) * inside[..., None]).reshape(count, -1, 5)
            normal = np.einsum("pni,pnj->pij", jacobian, jacobian) + damping
            right = np.einsum("pni,pn->pi", jacobian, (target * inside).reshape(count, -1))
            solution = np.linalg.solve(normal, right[..., None])[..., 0]
            step = solution[:, 2:] / np.maximum(np.abs(solution[:, :1]), 0.2)
            moves += np.clip(step * moves[:, :1], -_LARGEST_STEP, _LARGEST_STEP)
            moves[:, 0] = np.clip(moves[:, 0], *_SCALES)
            moves[:, 1:] = np.clip(moves[:, 1:], -_LARGEST_SHIFT, _LARGEST_SHIFT)
    return _moved(b, moves, down, across)


def _moved(images: Floats, moves: NDArray[np.float64], down: Floats, across: Floats) -> tuple[Floats, Floats]:
    """Images (P, S, S, C) sampled bilinearly at scaled and shifted places, and 1 where those lie in the image."""
    size = images.shape[1]
    scale, shift_down, shift_across = (moves[:, i, None, None].astype(np.float32) for i in range(3))
    row, column = (
        scale * line + shift + (size - 1) / 2 for line, shift in ((down, shift_down), (across, shift_across))
    )
    inside = (np.minimum(row, column) >= -0.5) & (np.maximum(row, column) <= size - 0.5)
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


def _window_means(images: Floats, inside: Floats) -> Floats:
    """Averages over the windows around each pixel; pixels outside count as zeros, in all images alike."""
    masked = images * inside.reshape(inside.shape + (1,) * (images.ndim - 3))
    return _filtered(masked, _box(images.shape[1], _WINDOW))


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
