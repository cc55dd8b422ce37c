"""The compiled part of `relatum.views.cpu`: a view in one pass, from the uint8 image to the network's input.

A view in the making is a flat buffer of blocks: sixteen pixels of one row, as sixteen reds, sixteen greens, sixteen blues
(a row's last block is filled up with black). Each source row is interpolated horizontally once (unless it shrinks, a crop
has fewer rows than its view), two such rows are blended into each row of the view, and all colour steps of a block are made in
registers. Contrast needs the mean grey of the whole view: the steps before it are made in a first sweep, the rest in a second, which
also writes the normalised result. Crops that shrink are filtered vertically first, so that the narrow rows are few.

numba's cache on disk is keyed by this file's content, so everything that is compiled for views is here, or in `lanes`,
whose content is named by LANES_DIGEST: change both together (a test sees to it), or old machine code would be loaded.
No value here can become NaN or infinite, so the fast-math flags change nothing but the last bits.
"""
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import numpy as np
from numba import njit

from relatum.views.lanes import LANES, absolute, choose, load, load_pixels, pick, splat, store, store_pixels, total

LANES_DIGEST = ""
BLOCK = 3 * LANES
f4 = np.float32
_part = njit(nogil=True, fastmath=True, error_model="numpy")
_inlined = njit(nogil=True, fastmath=True, error_model="numpy", forceinline=True)

# ------------------------------------------------------------------------------------------------------------ colour


@_inlined
def _clip(x, most):
    x = choose(x, splat(f4(0)), splat(f4(0)), x)
    return choose(x, most, x, most)


@_inlined
def _gray(r, g, b):
    return f4(0.299) * r + f4(0.587) * g + f4(0.114) * b


@_inlined
def _scale(r, g, b, factor, offset):
    """Brightness, contrast and saturation: a blend with black, with the mean grey, with the pixel's grey."""
    one = splat(f4(1))
    return _clip(r * factor + offset, one), _clip(g * factor + offset, one), _clip(b * factor + offset, one)


@_inlined
def _hue(r, g, b, shift):
    """Turn the hue. Hue · chroma is all that is needed, so nothing is divided; |shift| is at most half a circle."""
    high = choose(r, g, g, r)
    high = choose(high, b, b, high)
    low = choose(r, g, r, g)
    low = choose(low, b, low, b)
    chroma = high - low
    two, four, circle = f4(2) * chroma, f4(4) * chroma, f4(6) * chroma
    turned = choose(g, high, r - g + four, b - r + two)
    turned = choose(r, high, turned, g - b)
    turned = turned + circle * shift
    turned = choose(turned, splat(f4(0)), turned + circle, turned)
    turned = choose(circle, turned, turned - circle, turned)
    red = absolute(turned - f4(3) * chroma) - chroma
    green = two - absolute(turned - two)
    blue = two - absolute(turned - four)
    return low + _clip(red, chroma), low + _clip(green, chroma), low + _clip(blue, chroma)


@_inlined
def _jitter(r, g, b, order, factors, v, first, last, mean):
    """Jitter steps first to last - 1 of one block of view v, in registers."""
    for k in range(first, last):
        step = order[v, k]
        factor = factors[v, step]
        if step == 3:
            r, g, b = _hue(r, g, b, factor)
        else:
            if step == 0:
                offset = splat(f4(0))
            elif step == 1:
                offset = splat((f4(1) - factor) * mean)
            else:
                offset = (f4(1) - factor) * _gray(r, g, b)
            r, g, b = _scale(r, g, b, factor, offset)
    return r, g, b


# ------------------------------------------------------------------------------------------------------------ resize


@_part
def _two_taps(size, side, first, weights, mirrored, scale):
    """Per output of one axis that does not shrink: the first of its two taps, and their weights times `scale`."""
    step = f4(size) / f4(side)
    for x in range(side):
        centre = (f4(x) + f4(0.5)) * step - f4(0.5)
        low = max(min(int(np.floor(centre)), size - 2), 0)
        second = max(min(centre - f4(low), f4(1)), f4(0)) if size > 1 else f4(0)
        to = side - 1 - x if mirrored else x
        first[to] = low
        weights[0, to] = (f4(1) - second) * scale
        weights[1, to] = second * scale


@_part
def _many_taps(size, side, first, weights, mirrored, scale):
    """The same for an axis that shrinks: a triangle as wide as an output pixel on either side. See `reference.taps`."""
    width = size / side
    for x in range(side):
        to = side - 1 - x if mirrored else x
        centre = (x + 0.5) * width
        low = max(int(np.floor(centre - width + 0.5)), 0)
        sum_ = 0.0
        for t in range(weights.shape[0]):
            weight = max(1.0 - abs(low + t + 0.5 - centre) / width, 0.0) if low + t < size else 0.0
            weights[t, to] = weight
            sum_ += weight
        first[to] = low
        for t in range(weights.shape[0]):
            weights[t, to] *= f4(scale / sum_)


@_part
def count_taps(size, side):
    """Taps per output of an axis: two, or as many as the triangle of a shrinking axis can cover."""
    return 2 if size <= side else int(np.ceil(2.0 * size / side)) + 1


@_part
def _read_row(data, at, x0, w, width, line, length):
    """Columns x0 to x0 + w of the image row whose bytes begin at `at`, as three float lines; zeros outside."""
    low, high = max(0, -x0), min(w, width - x0)
    for x in range(low, high, LANES):
        place = at + 3 * (x0 + x)
        if place + BLOCK <= data.shape[0]:
            r, g, b = load_pixels(data, place)
            store(line, x, r)
            store(line, length + x, g)
            store(line, 2 * length + x, b)
        else:  # the last pixels of the last image: nothing may be read behind them
            for k in range(3 * (high - x)):
                line[k % 3 * length + x + k // 3] = f4(data[place + k])
    for c in range(3):
        line[c * length : c * length + low] = f4(0)
        line[c * length + max(high, 0) : c * length + w] = f4(0)


@_part
def _filter_rows(data, at, y0, x0, w, height, width, low, weights, y, wide, line, length):
    """A shrinking crop's row y, filtered vertically: taps from crop row `low` on, as three float lines."""
    left, right = max(0, -x0), min(w, width - x0)
    line[: 3 * length] = f4(0)
    if right <= left:
        return
    part = wide[: 3 * (right - left)]
    part[:] = f4(0)
    for t in range(weights.shape[0]):
        row, weight = y0 + low + t, weights[t, y]
        if weight > f4(0) and 0 <= row < height:
            begin = at + 3 * (row * width + x0 + left)
            source = data[begin : begin + part.shape[0]]
            for i in range(part.shape[0]):
                part[i] += f4(source[i]) * weight
    for c in range(3):
        target = line[c * length + left : c * length + right]
        for x in range(right - left):
            target[x] = part[3 * x + c]


@_part
def _across(line, length, blocks, starts, numbers, weights, result, at):
    """Interpolate a source row horizontally with two taps: sixteen outputs lie within 18 source pixels."""
    w0, w1 = weights[0], weights[1]
    for block in range(blocks):
        a, b = load(w0, LANES * block), load(w1, LANES * block)
        for c in range(3):
            start = c * length + starts[block]
            value = pick(line, start, numbers, LANES * block) * a + pick(line, start + 1, numbers, LANES * block) * b
            store(result, at + BLOCK * block + LANES * c, value)


@_part
def _across_many(line, length, side, first, weights, result, at):
    """The same for a row that shrinks."""
    for x in range(side):
        for c in range(3):
            value = f4(0)
            for t in range(weights.shape[0]):
                value += line[c * length + first[x] + t] * weights[t, x]
            result[at + x // LANES * BLOCK + LANES * c + x % LANES] = value


@_part
def _starts(first, blocks, side, starts, numbers):
    """Split each tap's place into its block's leftmost one and the distance from there."""
    for block in range(blocks):
        low, high = LANES * block, min(LANES * block + LANES, side)
        start = min(first[low], first[high - 1])
        starts[block] = start
        for x in range(low, high):
            numbers[x] = first[x] - start


# -------------------------------------------------------------------------------------------------- affine, turn, write


@_part
def _warp(source, affine, v, turns, side, target):
    """See `reference.warp`; the quarter turns that follow are composed with the map."""
    row = (side + LANES - 1) // LANES * BLOCK
    centre = f4(side - 1) * f4(0.5)
    a, b, c, d, e, f = affine[v, 0], affine[v, 1], affine[v, 2], affine[v, 3], affine[v, 4], affine[v, 5]
    for _ in range(turns):
        a, b, d, e = b, -a, e, -d
    for y in range(side):
        for x in range(side):
            dx, dy = f4(x) - centre, f4(y) - centre
            px = a * dx + b * dy + c + centre
            py = d * dx + e * dy + f + centre
            left_x, upper_y = int(np.floor(px)), int(np.floor(py))
            fx, fy = px - f4(left_x), py - f4(upper_y)
            left = f4(1) - fx if 0 <= left_x < side else f4(0)
            right = fx if 0 <= left_x + 1 < side else f4(0)
            upper = f4(1) - fy if 0 <= upper_y < side else f4(0)
            lower = fy if 0 <= upper_y + 1 < side else f4(0)
            x0, x1 = min(max(left_x, 0), side - 1), min(max(left_x + 1, 0), side - 1)
            y0, y1 = min(max(upper_y, 0), side - 1) * row, min(max(upper_y + 1, 0), side - 1) * row
            p, q = x0 // LANES * BLOCK + x0 % LANES, x1 // LANES * BLOCK + x1 % LANES
            at = y * row + x // LANES * BLOCK + x % LANES
            for k in range(0, BLOCK, LANES):
                target[at + k] = upper * (left * source[y0 + p + k] + right * source[y0 + q + k]) + lower * (
                    left * source[y1 + p + k] + right * source[y1 + q + k]
                )


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
    """Zeros at a 64-byte boundary: a vector that straddles two cache lines costs twice (measured: 0.6 of 3 µs a view)."""
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
def _resize(data, at, height, width, y0, x0, h, w, first_y, weights_y, first_x, weights_x, starts, numbers,
            line, wide, ring, side, mirrored, buffer):  # fmt: skip
    """The box (y0, x0, h, w) of the image whose bytes begin at `at`, resized into `buffer`."""
    blocks, length = (side + LANES - 1) // LANES, line.shape[0] // 3
    size = blocks * BLOCK
    done = 0  # source rows that are, or were, in the ring
    for y in range(side):
        to = (side - 1 - y if mirrored else y) * size
        if h > side:
            _filter_rows(data, at, y0, x0, w, height, width, first_y[y], weights_y, y, wide, line, length)
            if w > side:
                _across_many(line, length, side, first_x, weights_x, buffer, to)
            else:
                _across(line, length, blocks, starts, numbers, weights_x, buffer, to)
            continue
        while done < min(first_y[y] + 2, h):
            slot = done % 2 * size
            if 0 <= y0 + done < height:
                _read_row(data, at + 3 * width * (y0 + done), x0, w, width, line, length)
                if w > side:
                    _across_many(line, length, side, first_x, weights_x, ring, slot)
                else:
                    _across(line, length, blocks, starts, numbers, weights_x, ring, slot)
            else:
                for i in range(slot, slot + size):
                    ring[i] = f4(0)
            done += 1
        upper, lower = first_y[y] % 2 * size, (first_y[y] + 1) % 2 * size
        a, b = splat(weights_y[0, y]), splat(weights_y[1, y])
        for i in range(0, size, LANES):
            store(buffer, to + i, load(ring, upper + i) * a + load(ring, lower + i) * b)


@_part
def _first_sweep(buffer, order, factors, v, before):
    """The jitter steps before contrast; returns the sum of all grey."""
    sums = splat(f4(0))
    for i in range(0, buffer.shape[0], BLOCK):
        r, g, b = load(buffer, i), load(buffer, i + LANES), load(buffer, i + 2 * LANES)
        if before:
            r, g, b = _jitter(r, g, b, order, factors, v, 0, before, f4(0))
            store(buffer, i, r)
            store(buffer, i + LANES, g)
            store(buffer, i + 2 * LANES, b)
        sums = sums + _gray(r, g, b)
    return total(sums)


@_part
def _second_sweep(buffer, side, order, factors, v, before, mean, gray, scale, offset, layout, out, at):
    """Contrast and what follows; writes the view (layout 0: planes, 1: pixels) or keeps it in the buffer (2)."""
    blocks = (side + LANES - 1) // LANES
    n = side * side
    steps = 4 if order[v, 0] >= 0 else 0
    s0, s1, s2 = splat(scale[0]), splat(scale[1]), splat(scale[2])
    o0, o1, o2 = splat(offset[0]), splat(offset[1]), splat(offset[2])
    for y in range(side):
        for block in range(blocks):
            i = (y * blocks + block) * BLOCK
            r, g, b = load(buffer, i), load(buffer, i + LANES), load(buffer, i + 2 * LANES)
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


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def make_rows(
    data, height, width, sources, box, flip, affine, has_affine, order, factors, gray, turns, cutout,
    scale, offset, side, channels_last, out, start, stop,
):  # fmt: skip
    """Views `start` to `stop` into the flat buffer `out`; a colour becomes colour · scale + offset."""
    blocks = (side + LANES - 1) // LANES
    size, n = blocks * BLOCK, 3 * side * side
    most_h, most_w = side, side
    for v in range(start, stop):
        most_h, most_w = max(most_h, box[v, 2]), max(most_w, box[v, 3])
    taps_y, taps_x = count_taps(most_h, side), count_taps(most_w, side)
    first_y, first_x = np.zeros(side, np.int64), np.zeros(side, np.int64)
    all_y, all_x = np.zeros((taps_y, side), f4), np.zeros((taps_x, blocks * LANES), f4)
    starts, numbers = np.zeros(blocks, np.int64), np.zeros(blocks * LANES, np.int32)
    length = (most_w + max(taps_x, 2 * LANES) + 2 * LANES) // LANES * LANES  # what taps of weight 0 may touch is there, and finite
    line, wide, ring = _aligned(3 * length), np.zeros(3 * most_w, f4), _aligned(2 * size)
    buffer, spare = _aligned(side * size), _aligned(side * size)
    for v in range(start, stop):
        at = sources[v] * (height * width * 3)
        y0, x0, h, w = box[v, 0], box[v, 1], box[v, 2], box[v, 3]
        weights_y, weights_x = all_y[: count_taps(h, side)], all_x[: count_taps(w, side)]
        turned = 0 if has_affine[v] else turns[v]  # a turn is a mirror and, if odd, a transposition
        mirrored_x = flip[v] != (turned == 1 or turned == 2)
        mirrored_y = turned == 2 or turned == 3
        if w > side:
            _many_taps(w, side, first_x, weights_x, mirrored_x, f4(1 / 255))
        else:
            _two_taps(w, side, first_x, weights_x, mirrored_x, f4(1 / 255))
            _starts(first_x, blocks, side, starts, numbers)
        if h > side:
            _many_taps(h, side, first_y, weights_y, False, f4(1))
        else:
            _two_taps(h, side, first_y, weights_y, False, f4(1))
        _resize(data, at, height, width, y0, x0, h, w, first_y, weights_y, first_x, weights_x, starts, numbers,
                line, wide, ring, side, mirrored_y, spare if has_affine[v] else buffer)  # fmt: skip
        if has_affine[v]:
            _warp(spare, affine, v, turns[v], side, buffer)
        before, mean = 0, f4(0)
        if order[v, 0] >= 0:
            while order[v, before] != 1:
                before += 1
            mean = _first_sweep(buffer, order, factors, v, before) / f4(side * side)
        layout = 2 if turned % 2 == 1 else (1 if channels_last else 0)
        _second_sweep(buffer, side, order, factors, v, before, mean, gray[v], scale, offset, layout, out, v * n)
        if turned % 2 == 1:
            _write_transposed(buffer, side, scale, offset, channels_last, out, v * n)
        if cutout[v, 2] > 0:
            _cut_out(out, v * n, cutout, v, side, channels_last)
