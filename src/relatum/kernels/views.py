"""The kernel of the views: from the uint8 image to the network's input in one pass. Called by `relatum.views.compiled`.

Specification: `relatum.views.reference`. Agreement within 1/255 is tested for every policy.

`resampling` fills a buffer of blocks (sixteen pixels each) with the resized crop. The colour steps of a block are then
applied in registers. Contrast needs the mean grey of the whole view, so the steps before it are applied in a first
sweep over the buffer, the others in a second one, which also writes the normalised result.

No value here can become NaN or infinite, so the fast-math flags can only change the last bits of a result.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit, types

from relatum.kernels.caching import cached_njit
from relatum.kernels.pixels import LANES, PIXELS, store_pixels
from relatum.kernels.resampling import BLOCK, count_taps, many_taps, resize, split_taps, two_taps, warp
from relatum.kernels.simd import absolute, load, splat, store, sum_lanes, where_less

f4 = np.float32
_part = njit(nogil=True, fastmath=True, error_model="numpy")
_inlined = njit(nogil=True, fastmath=True, error_model="numpy", forceinline=True)

# ------------------------------------------------------------------------------------------------------------ colour


@_inlined
def _clip(x, most):
    x = where_less(x, splat(f4(0), PIXELS), splat(f4(0), PIXELS), x)
    return where_less(x, most, x, most)


@_inlined
def _gray(r, g, b):
    return f4(0.299) * r + f4(0.587) * g + f4(0.114) * b


@_inlined
def _scale(r, g, b, factor, offset):
    """Brightness, contrast and saturation: a blend with black, with the mean grey or with the grey of the pixel."""
    one = splat(f4(1), PIXELS)
    return _clip(r * factor + offset, one), _clip(g * factor + offset, one), _clip(b * factor + offset, one)


@_inlined
def _hue(r, g, b, shift):
    """Shift the hue by up to half a circle. It is computed as hue · chroma, which needs no division."""
    high = where_less(r, g, g, r)
    high = where_less(high, b, b, high)
    low = where_less(r, g, r, g)
    low = where_less(low, b, low, b)
    chroma = high - low
    two, four, circle = f4(2) * chroma, f4(4) * chroma, f4(6) * chroma
    hue = where_less(g, high, r - g + four, b - r + two)
    hue = where_less(r, high, hue, g - b)
    hue = hue + circle * shift
    hue = where_less(hue, splat(f4(0), PIXELS), hue + circle, hue)
    hue = where_less(circle, hue, hue - circle, hue)
    red = absolute(hue - f4(3) * chroma) - chroma
    green = two - absolute(hue - two)
    blue = two - absolute(hue - four)
    return low + _clip(red, chroma), low + _clip(green, chroma), low + _clip(blue, chroma)


@_inlined
def _jitter(r, g, b, order, factors, v, first, last, mean):
    """Apply jitter steps `first` to `last` - 1 of view v to one block."""
    for k in range(first, last):
        step = order[v, k]
        factor = factors[v, step]
        if step == 3:
            r, g, b = _hue(r, g, b, factor)
        else:
            if step == 0:
                offset = splat(f4(0), PIXELS)
            elif step == 1:
                offset = splat((f4(1) - factor) * mean, PIXELS)
            else:
                offset = (f4(1) - factor) * _gray(r, g, b)
            r, g, b = _scale(r, g, b, factor, offset)
    return r, g, b


# ------------------------------------------------------------------------------------------------------------- write


@_part
def _write_transposed(buffer, side, scale, offset, channels_last, out, at):
    row = (side + LANES - 1) // LANES * BLOCK
    for y in range(side):
        for x in range(side):
            for c in range(3):
                value = buffer[x * row + y // LANES * BLOCK + LANES * c + y % LANES] * scale[c] + offset[c]
                out[at + ((y * side + x) * 3 + c if channels_last else (c * side + y) * side + x)] = value


@_part
def _aligned(count):
    """Zeros at a 64-byte boundary: a vector across two cache lines takes twice the time (0.6 of 3 µs for a view)."""
    memory = np.zeros(count + LANES, f4)
    skip = (-(memory.ctypes.data // 4)) % LANES
    return memory[skip : skip + count]


@_part
def _cut_out(out, at, box, v, side, channels_last):
    for y in range(box[v, 0], box[v, 0] + box[v, 2]):
        for x in range(box[v, 1], box[v, 1] + box[v, 3]):
            for c in range(3):
                out[at + ((y * side + x) * 3 + c if channels_last else (c * side + y) * side + x)] = f4(0)


@_part
def _first_sweep(buffer, order, factors, v, before):
    """Apply the jitter steps before contrast; returns the sum of the grey values."""
    sums = splat(f4(0), PIXELS)
    for i in range(0, buffer.shape[0], BLOCK):
        r, g, b = load(buffer, i, PIXELS), load(buffer, i + LANES, PIXELS), load(buffer, i + 2 * LANES, PIXELS)
        if before:
            r, g, b = _jitter(r, g, b, order, factors, v, 0, before, f4(0))
            store(buffer, i, r)
            store(buffer, i + LANES, g)
            store(buffer, i + 2 * LANES, b)
        sums = sums + _gray(r, g, b)
    return sum_lanes(sums)


@_part
def _second_sweep(buffer, side, order, factors, v, before, steps, mean, gray, scale, offset, layout, out, at):
    """Apply the other jitter steps; write the view (layout 0: planes, 1: pixels) or leave it in the buffer (2)."""
    blocks = (side + LANES - 1) // LANES
    n = side * side
    s0, s1, s2 = splat(scale[0], PIXELS), splat(scale[1], PIXELS), splat(scale[2], PIXELS)
    o0, o1, o2 = splat(offset[0], PIXELS), splat(offset[1], PIXELS), splat(offset[2], PIXELS)
    for y in range(side):
        for block in range(blocks):
            i = (y * blocks + block) * BLOCK
            r, g, b = load(buffer, i, PIXELS), load(buffer, i + LANES, PIXELS), load(buffer, i + 2 * LANES, PIXELS)
            r, g, b = _jitter(r, g, b, order, factors, v, before, steps, mean)
            if gray:
                r = _gray(r, g, b)
                g = r
                b = r
            if layout < 2:
                r = r * s0 + o0
                g = g * s1 + o1
                b = b * s2 + o2
            x = block * LANES
            whole = x + LANES <= side
            place = at + y * side + x
            if layout == 1 and whole:
                store_pixels(out, at + 3 * (y * side + x), r, g, b)
            elif layout == 0 and whole:
                store(out, place, r)
                store(out, place + n, g)
                store(out, place + 2 * n, b)
            else:
                store(buffer, i, r)
                store(buffer, i + LANES, g)
                store(buffer, i + 2 * LANES, b)
                if layout < 2:
                    for k in range(3 * (side - x)):
                        pixel, c = k // 3, k % 3
                        to = at + 3 * (y * side + x) + k if layout == 1 else place + c * n + pixel
                        out[to] = buffer[i + LANES * c + pixel]


_bytes, _longs, _flags, _tiny = (
    types.Array(t, 1, "C", readonly=True) for t in (types.uint8, types.int64, types.bool_, types.int8)
)
_ints2, _floats2, _tiny2 = (types.Array(t, 2, "C", readonly=True) for t in (types.int32, types.float32, types.int8))
_floats = types.Array(types.float32, 1, "C", readonly=True)
_SIGNATURE = types.void(
    _bytes, types.intp, types.intp, _longs, _ints2, _flags, _floats2, _flags, _tiny2, _floats2, _flags, _tiny, _ints2,
    _floats, _floats, types.intp, types.bool_, types.float32[::1], types.intp, types.intp,
)  # fmt: skip


@cached_njit(_SIGNATURE, fastmath=True, error_model="numpy")
def make_rows(
    data, height, width, sources, box, flip, affine, has_affine, order, factors, gray, turns, cutout,
    scale, offset, side, channels_last, out, start, stop,
):  # fmt: skip
    """Write views `start` to `stop` - 1 to the flat buffer `out`; colours are normalised to colour · scale + offset."""
    blocks = (side + LANES - 1) // LANES
    size, n = blocks * BLOCK, 3 * side * side
    most_h, most_w = side, side
    for v in range(start, stop):
        most_h, most_w = max(most_h, box[v, 2]), max(most_w, box[v, 3])
    taps_y, taps_x = count_taps(most_h, side), count_taps(most_w, side)
    first_y, first_x = np.zeros(side, np.int64), np.zeros(side, np.int64)
    all_y, all_x = np.zeros((taps_y, side), f4), np.zeros((taps_x, blocks * LANES), f4)
    starts, numbers = np.zeros(blocks, np.int64), np.zeros(blocks * LANES, np.int32)
    # Taps of weight 0 may lie beyond the crop: the memory that they read must exist and be finite.
    length = (most_w + max(taps_x, 2 * LANES) + 2 * LANES) // LANES * LANES
    line, wide, ring = _aligned(6 * length), np.zeros(3 * most_w, f4), _aligned(2 * size)
    buffer, spare = _aligned(side * size), _aligned(side * size)
    for v in range(start, stop):
        at = sources[v] * (height * width * 3)
        y0, x0, h, w = box[v, 0], box[v, 1], box[v, 2], box[v, 3]
        weights_y, weights_x = all_y[: count_taps(h, side)], all_x[: count_taps(w, side)]
        turned = 0 if has_affine[v] else turns[v]  # a quarter turn is a reflection and, if odd, a transposition
        mirrored_x = flip[v] != (turned == 1 or turned == 2)
        mirrored_y = turned == 2 or turned == 3
        if w > side:
            many_taps(w, side, first_x, weights_x, mirrored_x, f4(1 / 255))
        else:
            two_taps(w, side, first_x, weights_x, mirrored_x, f4(1 / 255))
            split_taps(first_x, blocks, side, starts, numbers)
        if h > side:
            many_taps(h, side, first_y, weights_y, False, f4(1))
        else:
            two_taps(h, side, first_y, weights_y, False, f4(1))
        resize(data, at, height, width, y0, x0, h, w, first_y, weights_y, first_x, weights_x, starts, numbers,
                line, wide, ring, side, mirrored_y, spare if has_affine[v] else buffer)  # fmt: skip
        if has_affine[v]:
            warp(spare, affine, v, turns[v], side, buffer)
        steps, before, mean = 0, 0, f4(0)
        while steps < 4 and order[v, steps] >= 0:
            steps += 1
        while before < steps and order[v, before] != 1:
            before += 1
        if steps:
            mean = _first_sweep(buffer, order, factors, v, before) / f4(side * side)
        layout = 2 if turned % 2 == 1 else (1 if channels_last else 0)
        _second_sweep(buffer, side, order, factors, v, before, steps, mean, gray[v], scale, offset, layout, out, v * n)
        if turned % 2 == 1:
            _write_transposed(buffer, side, scale, offset, channels_last, out, v * n)
        if cutout[v, 2] > 0:
            _cut_out(out, v * n, cutout, v, side, channels_last)
