"""The readable specification of the views: one step after the other in float64, clipping after each. Slow.

The compiled kernel (`compiled`) and the torch implementation (`tensor`) are tested against this module, and this module
against Pillow. Colours are in [0, 1]; images are (H, W, 3) until the last step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relatum.views.params import ViewParams

Image = NDArray[np.float64]
GRAY = np.array([0.299, 0.587, 0.114])


def make_views(
    images: NDArray[np.uint8],
    sources: NDArray[np.int64],
    params: ViewParams,
    side: int,
    mean: Sequence[float],
    std: Sequence[float],
) -> NDArray[np.float32]:
    """All views of a batch, (V, 3, side, side), one by one."""
    views = np.empty((len(params), 3, side, side), np.float32)
    for row, source in enumerate(sources):
        views[row] = finish(apply(images[source], params, row, side), params, row, mean, std)
    return views


def apply(image: NDArray[np.uint8], params: ViewParams, row: int, side: int) -> Image:
    """View `row` of a uint8 (H, W, 3) image, up to normalisation: (3, side, side) in [0, 1]."""
    y0, x0, h, w = (int(n) for n in params.box[row])
    view = resize(cut(image / 255.0, y0, x0, h, w), side)
    if params.flip[row]:
        view = view[:, ::-1]
    if params.has_affine[row]:
        view = warp(view, params.affine[row])
    for step in params.order[row]:
        if step >= 0:
            view = np.clip(_JITTER[step](view, float(params.factors[row, step])), 0, 1)
    if params.gray[row]:
        view = np.repeat(gray(view)[..., None], 3, axis=2)
    return np.rot90(view, int(params.turns[row])).transpose(2, 0, 1)


def finish(view: Image, params: ViewParams, row: int, mean: Sequence[float], std: Sequence[float]) -> Image:
    """The last two steps, on (3, side, side): normalise, cutout."""
    view = (view - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    y0, x0, h, w = (int(n) for n in params.cutout[row])
    view[:, y0 : y0 + h, x0 : x0 + w] = 0
    return view


def cut(image: Image, y0: int, x0: int, h: int, w: int) -> Image:
    """The box (y0, x0, h, w) of an image; zeros where it lies outside."""
    height, width = image.shape[:2]
    crop = np.zeros((h, w, 3))
    top, left, bottom, right = max(y0, 0), max(x0, 0), min(y0 + h, height), min(x0 + w, width)
    if bottom > top and right > left:
        crop[top - y0 : bottom - y0, left - x0 : right - x0] = image[top:bottom, left:right]
    return crop


def resize(crop: Image, side: int) -> Image:
    """Bilinear, half-pixel centres, antialiased where it shrinks."""
    rows, columns = taps(crop.shape[0], side), taps(crop.shape[1], side)
    return columns @ np.tensordot(rows, crop, axes=1)  # (x, w) @ (y, w, c)


def taps(size: int, side: int) -> NDArray[np.float64]:
    """(side, size) weights of one axis: a triangle about each output's centre, as wide as an output pixel or an input
    pixel, whichever is larger; taps that fall outside are left out, and each row sums to 1.
    """
    scale = size / side
    centres = (np.arange(side)[:, None] + 0.5) * scale
    distance = np.abs(np.arange(size)[None, :] + 0.5 - centres) / max(scale, 1.0)
    weights = np.maximum(1 - distance, 0)
    return weights / weights.sum(axis=1, keepdims=True)


def warp(view: Image, affine: NDArray[np.float32]) -> Image:
    """Bilinear reading at the affine map of each pixel; pixels outside the view count as zero."""
    side = view.shape[0]
    centre = (side - 1) / 2
    y, x = np.meshgrid(np.arange(side) - centre, np.arange(side) - centre, indexing="ij")
    a, b, c, d, e, f = (float(n) for n in affine)
    u, v = a * x + b * y + c + centre, d * x + e * y + f + centre
    u0, v0 = np.floor(u).astype(int), np.floor(v).astype(int)
    result = np.zeros_like(view)
    for dy in (0, 1):
        for dx in (0, 1):
            yy, xx = v0 + dy, u0 + dx
            inside = (yy >= 0) & (yy < side) & (xx >= 0) & (xx < side)
            weight = np.where(inside, (1 - np.abs(v - yy)) * (1 - np.abs(u - xx)), 0)
            result += weight[..., None] * view[yy.clip(0, side - 1), xx.clip(0, side - 1)]
    return result


def gray(view: Image) -> Image:
    """(H, W) grey of an (H, W, 3) view."""
    return view @ GRAY


def brightness(view: Image, factor: float) -> Image:
    """Blend with black."""
    return factor * view


def contrast(view: Image, factor: float) -> Image:
    """Blend with the mean grey of the whole view."""
    return factor * view + (1 - factor) * gray(view).mean()


def saturation(view: Image, factor: float) -> Image:
    """Blend with each pixel's grey."""
    return factor * view + (1 - factor) * gray(view)[..., None]


def hue(view: Image, shift: float) -> Image:
    """Turn the hue by `shift` of the circle in HSV."""
    red, green, blue = view[..., 0], view[..., 1], view[..., 2]
    value, chroma = view.max(axis=2), view.max(axis=2) - view.min(axis=2)
    safe = np.where(chroma > 0, chroma, 1)
    sixth = np.select(
        [value == red, value == green],
        [(green - blue) / safe, (blue - red) / safe + 2],
        (red - green) / safe + 4,
    )
    turned = (np.where(chroma > 0, sixth, 0) + 6 * shift)[..., None]
    # HSV back to RGB: channel n is value - chroma * clip(min(k, 4 - k), 0, 1) with k = (n + sixth) mod 6, n = 5, 3, 1.
    k = (np.array([5, 3, 1]) + turned) % 6
    return value[..., None] - chroma[..., None] * np.clip(np.minimum(k, 4 - k), 0, 1)


_JITTER = (brightness, contrast, saturation, hue)
