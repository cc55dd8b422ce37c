"""Small descriptions of an image that need no training: a tiny colour thumbnail, and statistics of colour and texture.

After a short training, a representation is good at finding similar images and poor at telling a copy from a similar
image. The thumbnail tells them apart; the statistics find images that no backbone was trained on (noise, text).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SIDE = 48  # of the thumbnail in pixels: icons that differ by a small sign differ at this side, not at 24
STATISTICS = 25  # numbers per image
_FLAT = 0.01  # contrast below which an image counts as flat
_SOFT = (0.004, 0.03)  # steps between pixels of a gradient: from one of 256 levels to 1/33 of the range
_SCALES = (48, 24, 12)  # sides at which the contrast that is left is measured
_EDGE = 0.02  # a neighbouring pixel that is brighter by more than this lies across an edge
_AROUND = ((-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1))  # neighbours of a pixel, in a circle
_CELLS = 6  # a side of the grid on which the evenness of texture is measured
_CHUNK = 256  # images at a time: about 30 MB of float32 at a side of 96
Signatures = NDArray[np.uint8]
Statistics = NDArray[np.float32]


def describe(images: NDArray[np.uint8]) -> tuple[Signatures, Statistics]:
    """Thumbnails (N, SIDE, SIDE, 3) and statistics (N, STATISTICS) of decoded images (N, H, W, 3)."""
    signatures = np.empty((len(images), SIDE, SIDE, 3), np.uint8)
    statistics = np.empty((len(images), STATISTICS), np.float32)
    for start in range(0, len(images), _CHUNK):
        pixels = np.divide(images[start : start + _CHUNK], 255, dtype=np.float32)
        signatures[start : start + len(pixels)] = np.rint(255 * shrink(pixels, SIDE))
        statistics[start : start + len(pixels)] = _statistics(pixels)
    return signatures, statistics


def shrink(pixels: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """Images (N, H, W, 3) averaged over the cells of a `side` × `side` grid; cells may cut pixels."""
    rows, columns = _averages(pixels.shape[1], side), _averages(pixels.shape[2], side)
    half = np.einsum("ah,nhwc->nawc", rows, pixels, optimize=True)
    return np.ascontiguousarray(np.einsum("bw,nawc->nabc", columns, half, optimize=True))


def _averages(size: int, cells: int) -> NDArray[np.float32]:
    """The share of each of `size` pixels in each of `cells` equal parts of a line; rows sum to one."""
    edges = np.linspace(0, size, cells + 1)
    left = np.maximum(edges[:-1, None], np.arange(size)[None])
    right = np.minimum(edges[1:, None], np.arange(1, size + 1)[None])
    return (np.maximum(right - left, 0) * (cells / size)).astype(np.float32)


def _statistics(pixels: NDArray[np.float32]) -> Statistics:
    """Colours, saturation, texture, the share of extreme pixels, smoothness, and the layout and shapes of edges."""
    flat = pixels.reshape(len(pixels), -1, 3)
    grey = pixels.mean(3)
    across, down = np.abs(np.diff(grey, axis=2)), np.abs(np.diff(grey, axis=1))
    coarse = shrink(pixels, 8).mean(3)
    luminance = grey.reshape(len(grey), -1)
    columns = [
        *flat.mean(1).T,
        *flat.std(1).T,
        (pixels.max(3) - pixels.min(3)).mean((1, 2)),
        # Roots spread the small values, where most photographs differ.
        np.sqrt(across.mean((1, 2))),
        np.sqrt(down.mean((1, 2))),
        # Steps between pixels relative to the contrast: 1.1 for noise, less than 0.5 for most photographs.
        across.mean((1, 2)) / (luminance.std(1) + _FLAT),
        down.mean((1, 2)) / (luminance.std(1) + _FLAT),
        np.sqrt(coarse.reshape(len(grey), -1).std(1)),
        ((luminance < 0.04) | (luminance > 0.96)).mean(1),
        np.sqrt((across > 0.25).mean((1, 2))),  # sharp edges: text, line art, noise
        *_smoothness(pixels, grey),
        *_layout(grey),
        *_contrast_left(grey),
        *_edges_and_corners(grey),
    ]
    return np.stack(columns, 1).astype(np.float32)


def _smoothness(pixels: NDArray[np.float32], grey: NDArray[np.float32]) -> tuple[Statistics, Statistics]:
    """The share of soft steps between pixels, and the logarithm of curvature relative to steps.

    Both are extreme for a colour gradient, whose colours and contrast are as in any photograph, and for a flat colour.
    """
    across, down = (np.abs(np.diff(pixels, axis=axis)) for axis in (2, 1))
    largest = np.maximum(across.max(3)[:, :-1], down.max(3)[:, :, :-1])
    soft = ((largest >= _SOFT[0]) & (largest < _SOFT[1])).mean((1, 2))
    inner = grey[:, 1:-1, 1:-1]
    around = grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:]
    curvature = np.abs(4 * inner - around).mean((1, 2))
    steps = across.mean((1, 2, 3)) + down.mean((1, 2, 3))
    return soft.astype(np.float32), np.log(curvature / (steps + 0.003) + 0.02)  # the terms matter for flat images only


def _layout(grey: NDArray[np.float32]) -> tuple[Statistics, Statistics, Statistics]:
    """How unevenly edges are spread over the image, how many of them are upright or level, and whether they agree.

    Patterns (noise, checkers, a page of text) have edges everywhere; screens and codes have upright and level ones;
    stripes and colour gradients have one direction. The added terms matter for images that are nearly flat.
    """
    across = grey[:, :-1, 1:] - grey[:, :-1, :-1]
    down = grey[:, 1:, :-1] - grey[:, :-1, :-1]
    cells = shrink(np.sqrt(across**2 + down**2)[..., None], _CELLS).reshape(len(grey), -1)
    unevenness = np.log((cells.std(1) + 0.001) / (cells.mean(1) + 0.003))
    level, upright = np.abs(down), np.abs(across)
    aligned = np.abs(upright - level).sum((1, 2)) / ((upright + level).sum((1, 2)) + 0.5)
    xx, yy, xy = (a.sum((1, 2)) for a in (across**2, down**2, across * down))  # the structure tensor of the image
    agreement = np.sqrt((xx - yy) ** 2 + 4 * xy**2) / (xx + yy + 0.001)
    return unevenness, aligned, agreement


def _contrast_left(grey: NDArray[np.float32]) -> list[Statistics]:
    """The logarithm of the contrast that is left at lower resolutions: little for text, codes and fine patterns."""
    whole = grey.std((1, 2))
    left = (shrink(grey[..., None], side).std((1, 2, 3)) for side in _SCALES)
    return [np.log((contrast + 0.005) / (whole + 0.005)) for contrast in left]


def _edges_and_corners(grey: NDArray[np.float32]) -> list[Statistics]:
    """Shares of pixels at straight edges, at the steps of slanted edges and at corners of dark shapes, as roots.

    These are the local binary patterns (Ojala et al. 2002) with 3, 4 and 5 brighter neighbours in a row. Codes and
    letters have many corners; drawings in black and white have as many edges and few corners.
    """
    height, width = (size - 2 for size in grey.shape[1:])
    least = grey[:, 1:-1, 1:-1] + np.float32(_EDGE)
    brighter = [grey[:, 1 + y : 1 + y + height, 1 + x : 1 + x + width] > least for y, x in _AROUND]
    number = sum(side.astype(np.int8) for side in brighter)
    in_a_row = sum((a != b).astype(np.int8) for a, b in zip(brighter, brighter[1:] + brighter[:1], strict=True)) == 2
    return [np.sqrt((in_a_row & (number == length)).mean((1, 2), dtype=np.float32)) for length in (3, 4, 5)]
