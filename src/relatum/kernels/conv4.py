"""The kernels of Conv-4's layers, forward and backward. Called by `relatum.backbones.fused`, which explains the passes.

Specification: the modules of `relatum.backbones.conv4`. Tests compare values, gradients and running statistics.

Each thread calls a kernel once, and the threads take parts of the job from a shared counter. Arrays are flat float32
with channels innermost: y (N, H, W, C) is the output of a convolution and `dp` the gradient of its pooled map; `inner`
and `dy` hold one image or a few with a border of zeros, small enough for the cache. Batch-norm is y · scale + bias.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from relatum.kernels.caching import cached_njit
from relatum.kernels.simd import load, splat, store, where_positive
from relatum.kernels.tiles import MAX_LANES, WIDE, conv_tile, prefetch, take_part, weight_gradient_tile

# mypy: disable-error-code="no-untyped-def"
_inlined = njit(inline="always")
_kernel = cached_njit(error_model="numpy")


class Tile(NamedTuple):
    """What the kernels of a layer are compiled for: channels in and out, and the most pixels of a row in a tile."""

    cin: int
    cout: int
    pixels: int

    def registers(self, cout: int) -> tuple[int, int, int]:
        """Pixels, vectors and lanes of `cout` channels in a tile: up to sixteen accumulators, eight on narrow machines.

        Without AVX-512 each pixel is loaded by an instruction of its own, and two vectors share that load: 68 instead
        of 51 GFLOP/s for the second layer on one AVX2 core with a peak of 98.
        """
        lanes = min(MAX_LANES, cout)
        if WIDE:
            return self.pixels, min(cout // lanes, 16 // self.pixels), lanes
        vectors = min(cout // lanes, 2)
        return min(self.pixels, 8 // vectors), vectors, lanes

    def window(self) -> tuple[int, int, int]:
        """Rows, floats per row and vectors of output channels in a tile of the weight gradient."""
        if self.cin == 3:
            return (3 if WIDE else 1), 9, 1
        return (1, 12, 1) if WIDE else (1, 6, 2)


# Pixels divide the map's width for sides in multiples of 32 (the maps are 1, 1/2, 1/4 and 1/8 as wide).
TILES = (Tile(3, 8, 8), Tile(8, 16, 16 if WIDE else 8), Tile(16, 32, 8), Tile(32, 64, 4))


@_inlined
def _pool(y, y0, scale, bias, out, out0, line, height, width, tall, wide, channels, lanes):
    """Average pooling of relu(y · scale + bias) in windows of tall × wide; `line` floats make a row of `out`."""
    share = splat(np.float32(1.0 / (tall * wide)), lanes)
    for c in range(0, channels, lanes):
        a, b = load(scale, c, lanes) * share, load(bias, c, lanes) * share
        for h in range(height // tall):
            for w in range(width // wide):
                total = splat(np.float32(0), lanes)
                for i in range(tall):
                    for j in range(wide):
                        value = load(y, y0 + ((h * tall + i) * width + w * wide + j) * channels + c, lanes) * a + b
                        total = total + where_positive(value, value)
                store(out, out0 + h * line + w * channels + c, total)


@_inlined
def _gradient_sums(y, y0, scale, bias, mean, dp, dp0, sums, height, width, tall, wide, channels, lanes):
    """Σ g and Σ g · (y − mean) into sums (2, C): g, the gradient after batch-norm, is dp unpooled where ReLU passed."""
    share = splat(np.float32(1.0 / (tall * wide)), lanes)
    for c in range(0, channels, lanes):
        a, b, m = load(scale, c, lanes), load(bias, c, lanes), load(mean, c, lanes)
        total, product = splat(np.float32(0), lanes), splat(np.float32(0), lanes)
        for h in range(height // tall):
            for w in range(width // wide):
                grad = load(dp, dp0 + (h * (width // wide) + w) * channels + c, lanes) * share
                one, two = splat(np.float32(0), lanes), splat(np.float32(0), lanes)  # short chains of additions
                for i in range(tall):
                    for j in range(wide):
                        value = load(y, y0 + ((h * tall + i) * width + w * wide + j) * channels + c, lanes)
                        passed = where_positive(value * a + b, grad)
                        one = one + passed
                        two = two + passed * (value - m)
                total, product = total + one, product + two
        store(sums, c, total)
        store(sums, channels + c, product)


@_inlined
def _norm_backward(y, y0, scale, bias, slopes, dp, dp0, dy, dy0, line, height, width, tall, wide, channels, lanes):
    """The gradient of y through pooling, ReLU and batch-norm: dy = s0 · g + s1 · y + s2 with slopes s (3, C)."""
    share = splat(np.float32(1.0 / (tall * wide)), lanes)
    for c in range(0, channels, lanes):
        a, b, s0 = load(scale, c, lanes), load(bias, c, lanes), load(slopes, c, lanes) * share
        s1, s2 = load(slopes, channels + c, lanes), load(slopes, 2 * channels + c, lanes)
        for h in range(height // tall):
            for w in range(width // wide):
                grad = load(dp, dp0 + (h * (width // wide) + w) * channels + c, lanes) * s0
                for i in range(tall):
                    for j in range(wide):
                        row, column = h * tall + i, w * wide + j
                        value = load(y, y0 + (row * width + column) * channels + c, lanes)
                        passed = where_positive(value * a + b, grad)
                        store(dy, dy0 + row * line + column * channels + c, passed + (value * s1 + s2))


@_inlined
def _border(x, x0, out, height, width, channels):
    """Copy an image into the middle of a bordered one."""
    for h in range(height):
        here, there = x0 + h * width * channels, ((h + 1) * (width + 2) + 1) * channels
        for t in range(0, width * channels, 8):
            store(out, there + t, load(x, here + t, 8))


@_inlined
def _fetch(array, start, length):
    """Prefetch a part of the next image while this one is computed, which saves a tenth of the step."""
    for t in range(start, start + length, 16):
        prefetch(array, t)


@functools.cache
def forward_kernel(tile: Tile) -> Any:
    """Convolution of x (the first layer's images, else the layer below before its batch-norm) to y, with statistics.

    stats (parts, 3, C) gets Σ(y − s), Σ(y − s)² and the shift s, a value of the part, which avoids cancellation.
    """
    cin, cout = tile.cin, tile.cout
    pixels, vectors, lanes = tile.registers(cout)
    step, lanes_in, first = vectors * lanes, min(MAX_LANES, cin), cin == 3

    @_kernel
    def forward(counter, parts, count, x, scale, bias, weight, y, stats, height, width):
        line, size_in, size = (width + 2) * cin, height * width * cin, height * width * cout
        inner = np.zeros((height + 2) * line, np.float32)
        sums, shift = np.zeros(2 * cout, np.float32), np.zeros(cout, np.float32)
        while True:
            part = take_part(counter)
            if part >= parts:
                return
            begin, end = part * count // parts, (part + 1) * count // parts
            for n in range(begin, end):
                if first:
                    _border(x, n * size_in, inner, height, width, cin)
                else:
                    x0 = 4 * n * size_in
                    _pool(x, x0, scale, bias, inner, line + cin, line, 2 * height, 2 * width, 2, 2, cin, lanes_in)
                for h in range(-1 if n == begin else 0, height):
                    middle = h < 0  # before the first image, only for the shift
                    row = height // 2 if middle else h
                    if not (first or middle):
                        _fetch(x, 4 * ((n + 1) * height + h) * width * cin, 4 * width * cin)
                    for p in range(0, width, pixels):
                        x0, y0 = row * line + p * cin, n * size + (row * width + p) * cout
                        for c in range(0, cout, step):
                            conv_tile(
                                inner, x0, line, weight, c, y, y0 + c, sums, shift, cin, cout, pixels, vectors, lanes
                            )
                    if middle:
                        sums[:] = 0
                        for c in range(cout):
                            shift[c] = y[n * size + (row * width + width // 2) * cout + c]
                            stats[(part * 3 + 2) * cout + c] = shift[c]
                for c in range(2 * cout):
                    stats[part * 3 * cout + c] += sums[c]
                    sums[c] = 0

    return forward


@functools.cache
def backward_kernel(tile: Tile) -> Any:
    """From a layer's `dp`: dweight, the gradient dx of its (pooled) input, and the batch-norm sums of the layer below.

    dweight (parts, 3, 3, cin, cout) and stats (parts, 2, cin: see `_gradient_sums`) are sums of the parts.
    """
    cin, cout = tile.cin, tile.cout
    pixels, vectors, lanes_in = tile.registers(cin)
    step, lanes, first = vectors * lanes_in, min(MAX_LANES, cout), cin == 3
    rows, run, vectors_out = tile.window()
    step_out = vectors_out * lanes

    @_kernel
    def backward(
        counter, parts, count, x, scale_in, bias_in, mean_in, y, scale, bias, slopes, dp, flipped, dweight, dx, stats,
        height, width, tall, wide,
    ):  # fmt: skip
        line_in, size_in, line, size = (
            (width + 2) * cin,
            height * width * cin,
            (width + 2) * cout,
            height * width * cout,
        )
        group = max(256 // (height * width), 1)  # small maps: several images for each tile of the weight gradient
        band = min(height, 4) if group == 1 else height  # large maps: a few rows at a time, with prefetches between
        whole_in, whole = (height + 2) * line_in, (height + 2) * line
        inner, dy = np.zeros(group * whole_in, np.float32), np.zeros(group * whole, np.float32)
        sums, shift = np.zeros(2 * cin, np.float32), np.zeros(cin, np.float32)
        while True:
            part = take_part(counter)
            if part >= parts:
                return
            end = (part + 1) * count // parts
            for begin in range(part * count // parts, end, group):
                images = min(group, end - begin)
                for i in range(images):
                    n = begin + i
                    if first:
                        _border(x, n * size_in, inner, height, width, cin)
                    else:
                        x0, to = 4 * n * size_in, i * whole_in + line_in + cin
                        _pool(x, x0, scale_in, bias_in, inner, to, line_in, 2 * height, 2 * width, 2, 2, cin, lanes_in)
                    y0, dp0, to = n * size, n * size // (tall * wide), i * whole + line + cout
                    _norm_backward(
                        y, y0, scale, bias, slopes, dp, dp0, dy, to, line, height, width, tall, wide, cout, lanes
                    )
                for h in range(0, height, band):
                    _fetch(y, ((begin + images) * height + h) * width * cout, band * width * cout)
                    for k in range(0, 3, rows):
                        for t in range(0, 3 * cin, run):
                            x0, to = (h + k) * line_in + t, ((part * 3 + k) * 3 * cin + t) * cout
                            for c in range(0, cout, step_out):
                                weight_gradient_tile(
                                    inner, x0, dy, (h + 1) * line + cout + c, images, band, width, height,
                                    dweight, to + c, cin, cout, rows, run, vectors_out, lanes,
                                )  # fmt: skip
                if first:
                    continue
                for i in range(images):
                    n = begin + i
                    for h in range(height):
                        _fetch(x, 4 * ((n + images) * height + h) * width * cin, 4 * width * cin)
                        for p in range(0, width, pixels):
                            from_, to = i * whole + h * line + p * cout, n * size_in + (h * width + p) * cin
                            for c in range(0, cin, step):
                                conv_tile(
                                    dy, from_, line, flipped, c, dx, to + c, sums, shift,
                                    cout, cin, pixels, vectors, lanes_in,
                                )  # fmt: skip
                    _gradient_sums(
                        x, 4 * n * size_in, scale_in, bias_in, mean_in, dx, n * size_in, sums,
                        2 * height, 2 * width, 2, 2, cin, lanes_in,
                    )  # fmt: skip
                    for c in range(2 * cin):
                        stats[part * 2 * cin + c] += sums[c]

    return backward


@_kernel
def features(counter, parts, count, y, scale, bias, z, height, width):
    """The representation z (N, 64): ReLU of the last batch-norm, averaged over the map."""
    while True:
        part = take_part(counter)
        if part >= parts:
            return
        for n in range(part * count // parts, (part + 1) * count // parts):
            _pool(y, n * height * width * 64, scale, bias, z, n * 64, 0, height, width, height, width, 64, MAX_LANES)


@_kernel
def features_backward(counter, parts, count, y, scale, bias, mean, dz, stats, height, width):
    """The sums that the backward pass of the last batch-norm needs, stats (parts, 2, 64)."""
    sums = np.zeros(128, np.float32)
    while True:
        part = take_part(counter)
        if part >= parts:
            return
        for n in range(part * count // parts, (part + 1) * count // parts):
            y0 = n * height * width * 64
            _gradient_sums(y, y0, scale, bias, mean, dz, n * 64, sums, height, width, height, width, 64, MAX_LANES)
            for c in range(128):
                stats[part * 128 + c] += sums[c]
