"""Crop, resize and affine map, from bytes to blocks: functions that are compiled into `views.make_rows`.

Specification: `resize` and `warp` of `relatum.views.reference`.

A view under construction is a flat buffer of blocks: sixteen pixels of one row as sixteen reds, sixteen greens and
sixteen blues; the last block of a row is padded with black. A crop that is enlarged has fewer rows than its view, so
each source row is interpolated horizontally once, and two such rows are blended into each row of the view. A crop that
is reduced is filtered vertically first, which leaves fewer rows to filter horizontally.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit

from relatum.kernels.pixels import LANES, PIXELS, load_pixels, pick_neighbours
from relatum.kernels.simd import load, splat, store

BLOCK = 3 * LANES
f4 = np.float32
_part = njit(nogil=True, fastmath=True, error_model="numpy")


@_part
def two_taps(size, side, first, weights, mirrored, scale):
    """For each output of an axis that is not reduced: the first of its two taps, and their weights times `scale`."""
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
def many_taps(size, side, first, weights, mirrored, scale):
    """The same for an axis that is reduced: a triangle filter of an output pixel on either side (`reference.taps`)."""
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
    """Taps per output of an axis: two, or for an axis that is reduced as many as its triangle can cover."""
    return 2 if size <= side else int(np.ceil(2.0 * size / side)) + 1


@_part
def _read_row(data, at, x0, w, width, line, begin, length):
    """Columns x0 to x0 + w of the image row whose bytes begin at `at`, as three float lines; zeros outside."""
    low, high = min(max(0, -x0), w), min(w, width - x0)
    for x in range(low, high, LANES):
        place = at + 3 * (x0 + x)
        if place + BLOCK <= data.shape[0]:
            r, g, b = load_pixels(data, place)
            store(line, begin + x, r)
            store(line, begin + length + x, g)
            store(line, begin + 2 * length + x, b)
        else:  # the last pixels of the last image: do not read beyond the array
            for k in range(3 * (high - x)):
                line[begin + k % 3 * length + x + k // 3] = f4(data[place + k])
    if high - low < w:
        for c in range(begin, begin + 3 * length, length):
            for x in range(c, c + low):
                line[x] = f4(0)
            for x in range(c + max(high, 0), c + w):
                line[x] = f4(0)


@_part
def _filter_rows(data, at, y0, x0, w, height, width, low, weights, y, wide, line, length):
    """Row y of a crop that is reduced, filtered vertically with taps from crop row `low` on, as three float lines."""
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
def _across(line, begin, length, blocks, starts, numbers, weights, result, at):
    """Interpolate a source row horizontally with two taps: sixteen outputs lie within 18 source pixels."""
    w0, w1 = weights[0], weights[1]
    for block in range(blocks):
        a, b = load(w0, LANES * block, PIXELS), load(w1, LANES * block, PIXELS)
        for c in range(3):
            left, right = pick_neighbours(line, begin + c * length + starts[block], numbers, LANES * block)
            store(result, at + BLOCK * block + LANES * c, left * a + right * b)


@_part
def _blacken(side, result, at):
    """Pad the last block of a row with black, which adds nothing to the mean grey."""
    for x in range(side, (side + LANES - 1) // LANES * LANES):
        for c in range(3):
            result[at + x // LANES * BLOCK + LANES * c + x % LANES] = f4(0)


@_part
def _across_many(line, begin, length, side, first, weights, result, at):
    """The same for a row that is reduced."""
    for x in range(side):
        for c in range(3):
            value = f4(0)
            for t in range(weights.shape[0]):
                value += line[begin + c * length + first[x] + t] * weights[t, x]
            result[at + x // LANES * BLOCK + LANES * c + x % LANES] = value
    _blacken(side, result, at)


@_part
def split_taps(first, blocks, side, starts, numbers):
    """Split the position of each tap into the leftmost one of its block and the distance from there."""
    for block in range(blocks):
        low, high = LANES * block, min(LANES * block + LANES, side)
        start = min(first[low], first[high - 1])
        starts[block] = start
        for x in range(low, high):
            numbers[x] = first[x] - start


@_part
def resize(data, at, height, width, y0, x0, h, w, first_y, weights_y, first_x, weights_x, starts, numbers,
            line, wide, ring, side, mirrored, buffer):  # fmt: skip
    """The box (y0, x0, h, w) of the image whose bytes begin at `at`, resized into `buffer`."""
    blocks, length = (side + LANES - 1) // LANES, line.shape[0] // 6
    size = blocks * BLOCK
    read = 0  # number of source rows read so far; the last two are in `line`
    done = 0  # number of source rows interpolated so far; the last two are in `ring`
    for y in range(side):
        to = (side - 1 - y if mirrored else y) * size
        if h > side:
            _filter_rows(data, at, y0, x0, w, height, width, first_y[y], weights_y, y, wide, line, length)
            if w > side:
                _across_many(line, 0, length, side, first_x, weights_x, buffer, to)
            else:
                _across(line, 0, length, blocks, starts, numbers, weights_x, buffer, to)
            continue
        while done < min(first_y[y] + 2, h):
            # Read one row ahead: a load of what two recent stores wrote would have to wait for both.
            while read < min(done + 2, h):
                if 0 <= y0 + read < height:
                    _read_row(data, at + 3 * width * (y0 + read), x0, w, width, line, read % 2 * 3 * length, length)
                read += 1
            slot, begin = done % 2 * size, done % 2 * 3 * length
            if 0 <= y0 + done < height:
                if w > side:
                    _across_many(line, begin, length, side, first_x, weights_x, ring, slot)
                else:
                    _across(line, begin, length, blocks, starts, numbers, weights_x, ring, slot)
            else:
                for i in range(slot, slot + size):
                    ring[i] = f4(0)
            done += 1
        upper, lower = first_y[y] % 2 * size, (first_y[y] + 1) % 2 * size
        a, b = splat(weights_y[0, y], PIXELS), splat(weights_y[1, y], PIXELS)
        for i in range(0, size, LANES):
            store(buffer, to + i, load(ring, upper + i, PIXELS) * a + load(ring, lower + i, PIXELS) * b)


@_part
def warp(source, affine, v, turns, side, target):
    """The affine map (`reference.warp`), composed with the quarter turns that follow it."""
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
        _blacken(side, target, y * row)
