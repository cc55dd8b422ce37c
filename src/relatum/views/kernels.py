"""The compiled part of `relatum.views.cpu`: a view in one pass, from the uint8 image to the network's input.

Everything numba compiles for views is in this one file, because numba's cache on disk is keyed by the file's content:
a kernel that called another file's function would not notice a change there.

A view is made in tiles of whole rows that stay in the first-level cache as three planes of float32. Each source row is
interpolated horizontally once (crops have at most as many rows as views, unless they shrink), into a ring of as many rows as the
vertical filter has taps; the vertical filter and all colour steps then run over contiguous memory. Contrast needs the
mean grey of the whole view: the steps before it run in a first sweep over the tiles, the rest in a second.

Nothing here can produce a NaN or an infinity, so the fast-math flags change only the last bits; they are fixed at compile time.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_FLAGS = {"nogil": True, "cache": True, "fastmath": True, "error_model": "numpy"}
f4 = np.float32
TILE = 1024  # pixels: three float32 planes of it are 12 KiB, well within a 32 KiB cache


@njit(inline="always")
def _clip(x):
    x = x if x > f4(0) else f4(0)
    return x if x < f4(1) else f4(1)


@njit(inline="always")
def _gray(r, g, b):
    return f4(0.299) * r + f4(0.587) * g + f4(0.114) * b


@njit(**_FLAGS)
def _taps(size, side, mirrored, first, weights):
    """First tap and weights of every output along one axis; returns the number of taps. See `reference.taps`."""
    scale = size / side
    width = max(scale, 1.0)
    count = weights.shape[0]
    for x in range(side):
        centre = (x + 0.5) * scale
        low = max(int(np.floor(centre - width + 0.5)), 0)
        low = max(min(low, size - count), 0)
        total = 0.0
        for t in range(count):
            weight = max(1.0 - abs(low + t + 0.5 - centre) / width, 0.0) if low + t < size else 0.0
            total += weight
            weights[t, side - 1 - x if mirrored else x] = weight
        to = side - 1 - x if mirrored else x
        first[to] = low
        for t in range(count):
            weights[t, to] = weights[t, to] / total


@njit(**_FLAGS)
def _source_row(row, x0, w, planes):
    """Columns x0 to x0 + w of a uint8 (W, 3) row as three float rows in [0, 1]; zeros where they lie outside."""
    low, high = max(0, -x0), min(w, row.shape[0] - x0)
    red, green, blue = planes[0], planes[1], planes[2]
    for x in range(0, low):
        red[x] = green[x] = blue[x] = f4(0)
    for x in range(max(high, low), w):
        red[x] = green[x] = blue[x] = f4(0)
    part = row[max(x0, 0) : max(x0, 0) + max(high - low, 0)]
    for x in range(part.shape[0]):
        red[low + x] = f4(part[x, 0]) * f4(1 / 255)
        green[low + x] = f4(part[x, 1]) * f4(1 / 255)
        blue[low + x] = f4(part[x, 2]) * f4(1 / 255)


@njit(**_FLAGS)
def _across(planes, first, weights, result):
    """Interpolate three source rows horizontally."""
    side = first.shape[0]
    for c in range(3):
        source, target = planes[c], result[c]
        if weights.shape[0] == 2:
            w0, w1 = weights[0], weights[1]
            for x in range(side):
                target[x] = source[first[x]] * w0[x] + source[first[x] + np.uint32(1)] * w1[x]
        else:
            w0 = weights[0]
            for x in range(side):
                target[x] = source[first[x]] * w0[x]
            for t in range(1, weights.shape[0]):
                wt = weights[t]
                for x in range(side):
                    target[x] += source[first[x] + np.uint32(t)] * wt[x]


@njit(**_FLAGS)
def _down(ring, start, weights, y, result):
    """Interpolate vertically: output row y from the ring of horizontally interpolated rows."""
    count, side = weights.shape[0], result.shape[1]
    for c in range(3):
        target = result[c]
        if count == 2:
            w0, w1 = weights[0, y], weights[1, y]
            a, b = ring[start % count, c], ring[(start + 1) % count, c]
            for x in range(side):
                target[x] = a[x] * w0 + b[x] * w1
        else:
            w0, a = weights[0, y], ring[start % count, c]
            for x in range(side):
                target[x] = a[x] * w0
            for t in range(1, count):
                wt, a = weights[t, y], ring[(start + t) % count, c]
                for x in range(side):
                    target[x] += a[x] * wt


@njit(**_FLAGS)
def _brightness(r, g, b, factor):
    for i in range(r.shape[0]):
        r[i] = _clip(r[i] * factor)
        g[i] = _clip(g[i] * factor)
        b[i] = _clip(b[i] * factor)


@njit(**_FLAGS)
def _contrast(r, g, b, factor, mean):
    offset = (f4(1) - factor) * mean
    for i in range(r.shape[0]):
        r[i] = _clip(r[i] * factor + offset)
        g[i] = _clip(g[i] * factor + offset)
        b[i] = _clip(b[i] * factor + offset)


@njit(**_FLAGS)
def _saturation(r, g, b, factor):
    rest = f4(1) - factor
    for i in range(r.shape[0]):
        offset = _gray(r[i], g[i], b[i]) * rest
        r[i] = _clip(r[i] * factor + offset)
        g[i] = _clip(g[i] * factor + offset)
        b[i] = _clip(b[i] * factor + offset)


@njit(**_FLAGS)
def _hue(r, g, b, shift):
    """Turn the hue. Chroma times hue is all that is needed, so nothing is divided."""
    for i in range(r.shape[0]):
        red, green, blue = r[i], g[i], b[i]
        high = red if red > green else green
        high = high if high > blue else blue
        low = red if red < green else green
        low = low if low < blue else blue
        chroma = high - low
        turned = red - green + f4(4) * chroma
        turned = blue - red + f4(2) * chroma if high == green else turned
        turned = green - blue if high == red else turned
        turned = turned + f4(6) * shift * chroma  # hue · chroma, between -2.2 and 6.2 chroma for the paper's range
        circle = f4(6) * chroma
        turned = turned + circle if turned < f4(0) else turned
        turned = turned - circle if turned > circle else turned
        r[i] = low + _between(abs(turned - f4(3) * chroma) - chroma, chroma)
        g[i] = low + _between(f4(2) * chroma - abs(turned - f4(2) * chroma), chroma)
        b[i] = low + _between(f4(2) * chroma - abs(turned - f4(4) * chroma), chroma)


@njit(inline="always")
def _between(x, most):
    x = x if x > f4(0) else f4(0)
    return x if x < most else most


@njit(**_FLAGS)
def _sum_gray(r, g, b):
    total = f4(0)
    for i in range(r.shape[0]):
        total += _gray(r[i], g[i], b[i])
    return total


@njit(**_FLAGS)
def _colour(r, g, b, step, factor, mean):
    if step == 0:
        _brightness(r, g, b, factor)
    elif step == 1:
        _contrast(r, g, b, factor, mean)
    elif step == 2:
        _saturation(r, g, b, factor)
    elif step == 3:
        _hue(r, g, b, factor)


@njit(**_FLAGS)
def _to_gray(r, g, b):
    for i in range(r.shape[0]):
        gray = _gray(r[i], g[i], b[i])
        r[i] = gray
        g[i] = gray
        b[i] = gray


@njit(**_FLAGS)
def _write_planes(r, g, b, scale, offset, out, start, plane):
    for c in range(3):
        source = r if c == 0 else (g if c == 1 else b)
        target = out[start + c * plane : start + c * plane + source.shape[0]]
        s, o = scale[c], offset[c]
        for i in range(source.shape[0]):
            target[i] = source[i] * s + o


@njit(**_FLAGS)
def _write_pixels(r, g, b, scale, offset, out, start):
    target = out[start : start + 3 * r.shape[0]]
    s0, s1, s2, o0, o1, o2 = scale[0], scale[1], scale[2], offset[0], offset[1], offset[2]
    for i in range(r.shape[0]):
        target[3 * i] = r[i] * s0 + o0
        target[3 * i + 1] = g[i] * s1 + o1
        target[3 * i + 2] = b[i] * s2 + o2


@njit(**_FLAGS)
def _turn(source, turns, side, target):
    """Quarter turns counter-clockwise, as numpy.rot90."""
    for c in range(3):
        a, b = source[c], target[c]
        for y in range(side):
            for x in range(side):
                if turns == 1:
                    b[y * side + x] = a[x * side + side - 1 - y]
                elif turns == 2:
                    b[y * side + x] = a[(side - 1 - y) * side + side - 1 - x]
                else:
                    b[y * side + x] = a[(side - 1 - x) * side + y]


@njit(**_FLAGS)
def _warp(source, affine, side, target):
    """See `reference.warp`."""
    centre = f4(side - 1) * f4(0.5)
    a, b, c, d, e, f = affine[0], affine[1], affine[2], affine[3], affine[4], affine[5]
    for y in range(side):
        for x in range(side):
            dx, dy = f4(x) - centre, f4(y) - centre
            u = a * dx + b * dy + c + centre
            v = d * dx + e * dy + f + centre
            u0, v0 = int(np.floor(u)), int(np.floor(v))
            fu, fv = u - f4(u0), v - f4(v0)
            left = f4(1) - fu if 0 <= u0 < side else f4(0)
            right = fu if 0 <= u0 + 1 < side else f4(0)
            upper = f4(1) - fv if 0 <= v0 < side else f4(0)
            lower = fv if 0 <= v0 + 1 < side else f4(0)
            x0, x1 = min(max(u0, 0), side - 1), min(max(u0 + 1, 0), side - 1)
            y0, y1 = min(max(v0, 0), side - 1) * side, min(max(v0 + 1, 0), side - 1) * side
            for k in range(3):
                plane = source[k]
                target[k, y * side + x] = upper * (left * plane[y0 + x0] + right * plane[y0 + x1]) + lower * (
                    left * plane[y1 + x0] + right * plane[y1 + x1]
                )


@njit(**_FLAGS)
def _cut_out(out, start, box, side, channels_last):
    for y in range(box[0], box[0] + box[2]):
        for x in range(box[1], box[1] + box[3]):
            for c in range(3):
                at = (y * side + x) * 3 + c if channels_last else (c * side + y) * side + x
                out[start + at] = f4(0)


@njit(**_FLAGS)
def _count(size, side):
    """Taps per output along an axis: two, or as many as a shrinking triangle covers."""
    return 2 if size <= side else min(int(np.ceil(2.0 * size / side)) + 1, size)


@njit(**_FLAGS)
def _resize(image, box, taps_x, weights_x, taps_y, weights_y, ring, planes, done, y_from, y_to, side, result):
    """Rows y_from to y_to of the resized crop into `result`; source rows before `done` are in the ring already."""
    count = weights_y.shape[0]
    for y in range(y_from, y_to):
        last = min(taps_y[y] + count, box[2])
        while done < last:
            row = box[0] + done
            if 0 <= row < image.shape[0]:
                _source_row(image[row], box[1], box[3], planes)
                _across(planes, taps_x, weights_x, ring[done % count])
            else:
                ring[done % count] = f4(0)
            done += 1
        _down(ring, taps_y[y], weights_y, y, result[:, y * side : (y + 1) * side])
    return done


@njit(**_FLAGS)
def make_rows(
    images,
    sources,
    box,
    flip,
    affine,
    has_affine,
    order,
    factors,
    gray,
    turns,
    cutout,
    scale,
    offset,
    side,
    channels_last,
    out,
    start,
    stop,
):
    """Views `start` to `stop` into the flat buffer `out`; normalised as value · scale + offset."""
    n = side * side
    most_x, most_y = 2, 2
    most_w = 2
    for v in range(start, stop):
        most_x = max(most_x, _count(box[v, 3], side))
        most_y = max(most_y, _count(box[v, 2], side))
        most_w = max(most_w, box[v, 3])
    taps_x, taps_y = np.zeros(side, np.uint32), np.zeros(side, np.int64)
    all_x, all_y = np.zeros((most_x, side), f4), np.zeros((most_y, side), f4)
    all_ring = np.zeros((most_y, 3, side), f4)
    planes = np.zeros((3, most_w + 1), f4)
    buffer, spare = np.zeros((3, n), f4), np.zeros((3, n), f4)
    rows = max(TILE // side, 1)
    for v in range(start, stop):
        image = images[sources[v]]
        weights_x, weights_y = all_x[: _count(box[v, 3], side)], all_y[: _count(box[v, 2], side)]
        ring = all_ring[: weights_y.shape[0]]
        _taps(box[v, 3], side, flip[v], taps_x, weights_x)
        _taps(box[v, 2], side, False, taps_y, weights_y)
        done = 0
        if has_affine[v]:
            _resize(image, box[v], taps_x, weights_x, taps_y, weights_y, ring, planes, 0, 0, side, side, spare)
            _warp(spare, affine[v], side, buffer)
        before = 0  # jitter steps before contrast
        while before < 4 and order[v, before] != 1 and order[v, before] >= 0:
            before += 1
        total = 0.0
        for y in range(0, side, rows):
            y_to = min(y + rows, side)
            if not has_affine[v]:
                done = _resize(image, box[v], taps_x, weights_x, taps_y, weights_y, ring, planes, done, y, y_to, side, buffer)
            r, g, b = buffer[0, y * side : y_to * side], buffer[1, y * side : y_to * side], buffer[2, y * side : y_to * side]
            for k in range(before):
                _colour(r, g, b, order[v, k], factors[v, order[v, k]], f4(0))
            if order[v, 0] >= 0:
                total += _sum_gray(r, g, b)
        mean = f4(total / n)
        for y in range(0, side, rows):
            y_to = min(y + rows, side)
            r, g, b = buffer[0, y * side : y_to * side], buffer[1, y * side : y_to * side], buffer[2, y * side : y_to * side]
            if order[v, 0] >= 0:
                for k in range(before, 4):
                    _colour(r, g, b, order[v, k], factors[v, order[v, k]], mean)
            if gray[v]:
                _to_gray(r, g, b)
            if turns[v] == 0:
                if channels_last:
                    _write_pixels(r, g, b, scale, offset, out, (v * n + y * side) * 3)
                else:
                    _write_planes(r, g, b, scale, offset, out, v * n * 3 + y * side, n)
        if turns[v] != 0:
            _turn(buffer, turns[v], side, spare)
            if channels_last:
                _write_pixels(spare[0], spare[1], spare[2], scale, offset, out, v * n * 3)
            else:
                _write_planes(spare[0], spare[1], spare[2], scale, offset, out, v * n * 3, n)
        if cutout[v, 2] > 0:
            _cut_out(out, v * n * 3, cutout[v], side, channels_last)
