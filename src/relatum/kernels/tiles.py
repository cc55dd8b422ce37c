"""Register tiles for Conv-4: a 3×3 convolution and its weight gradient, which LLVM does not vectorise well by itself.

`conv_tile` keeps a tile of output pixels × output channels in registers, `weight_gradient_tile` a tile of the weights.
Arrays are flat float32, channels innermost; the images that a convolution reads have a border of zeros.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils as _cgutils

from relatum.kernels.simd import I8, I32, I64, Vector, VectorBuilder, array_data, intrinsic

cgutils: Any = _cgutils
# Sixteen lanes and 32 registers with AVX-512; otherwise eight lanes, and tiles that fit into sixteen registers.
WIDE = bool(binding.get_host_cpu_features().get("avx512f", False))
MAX_LANES = 16 if WIDE else 8


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Fetch the cache line of `array[index]`, which may lie outside the array, into the second-level cache."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.bitcast(builder.gep(array_data(context, builder, array, args[0]), [args[1]]), I8.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, *[I32] * 3])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, *(I32(k) for k in (0, 2, 1))])  # read, L2, data
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


@intrinsic
def take_part(typing: Any, counter: Any) -> Any:
    """`counter[0]`, which is increased by one atomically: the number of the next part for a thread to work on."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", array_data(context, builder, counter, args[0]), I64(1), "monotonic")

    return types.intp(counter), emit


@intrinsic(prefer_literal=True)
def conv_tile(
    typing: Any, x: Any, x0: Any, line: Any, w: Any, w0: Any, y: Any, y0: Any, sums: Any, shift: Any,
    cin: Any, cout: Any, pixels: Any, vectors: Any, lanes: Any,
) -> Any:  # fmt: skip
    """A 3×3 convolution for `pixels` neighbours of one row and `vectors` × `lanes` output channels, in registers.

    x (rows of `line` floats, bordered), w (3, 3·cin, cout) and y are flat; x0, w0 (also the channel) and y0 are where
    the tile starts. `sums` (2·cout) gains Σ(y − shift) and Σ(y − shift)², the statistics that batch-norm wants.
    """
    cin_, cout_, p_, v_, n_ = (k.literal_value for k in (cin, cout, pixels, vectors, lanes))
    unroll = 4 if 3 * cin_ % 4 == 0 else 3

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        vec = VectorBuilder(b, Vector(n_))
        xs, ws, ys, ss, ms = (
            array_data(context, b, k, args[i]) for k, i in ((x, 0), (w, 3), (y, 5), (sums, 7), (shift, 8))
        )
        acc = [[cgutils.alloca_once_value(b, vec.zero) for _ in range(v_)] for _ in range(p_)]
        with cgutils.for_range(b, I64(3)) as kernel_row:
            x_row = b.add(args[1], b.mul(kernel_row.index, args[2]))
            w_row = b.add(args[4], b.mul(kernel_row.index, I64(3 * cin_ * cout_)))
            # Within a row, (column, channel) of the window is one run of 3·cin floats.
            with cgutils.for_range(b, I64(3 * cin_ // unroll)) as run:
                t = b.mul(run.index, I64(unroll))
                x_t, w_t = b.add(x_row, t), b.add(w_row, b.mul(t, I64(cout_)))
                for u in range(unroll):
                    weights = [vec.load(ws, w_t, u * cout_ + v * n_) for v in range(v_)]
                    for p in range(p_):
                        value = vec.load_splat(xs, x_t, p * cin_ + u)
                        for v in range(v_):
                            b.store(vec.multiply_add(value, weights[v], b.load(acc[p][v])), acc[p][v])
        for v in range(v_):
            mean = vec.load(ms, args[4], v * n_)
            totals, squares = [], []
            for p in range(p_):
                value = b.load(acc[p][v])
                vec.store(value, ys, args[6], p * cout_ + v * n_)
                value = b.fsub(value, mean)
                totals.append(value)
                squares.append(b.fmul(value, value))
            for k, terms in ((0, totals), (cout_, squares)):
                while len(terms) > 1:  # by halves: short chains of additions
                    terms = [b.fadd(one, two) for one, two in zip(terms[::2], terms[1::2], strict=True)]
                vec.store(b.fadd(vec.load(ss, args[4], k + v * n_), terms[0]), ss, args[4], k + v * n_)
        return context.get_dummy_value()

    i = types.intp
    return types.void(x, i, i, w, i, y, i, sums, shift, cin, cout, pixels, vectors, lanes), emit


@intrinsic(prefer_literal=True)
def weight_gradient_tile(
    typing: Any, x: Any, x0: Any, dy: Any, dy0: Any, images: Any, band: Any, width: Any, height: Any, dw: Any, dw0: Any,
    cin: Any, cout: Any, rows: Any, run: Any, vectors: Any, lanes: Any,
) -> Any:  # fmt: skip
    """Weight gradient: dw gains Σ x·dy over `band` rows of `images` bordered images, for a tile of dw in registers.

    The tile is `rows` rows of the 3×3 window × `run` of its 3·cin floats × `vectors` · `lanes` output channels.
    x0, dy0: the first image's first pixel as the tile sees it. dw (3, 3·cin, cout) is flat, dw0 the tile's place.
    """
    cin_, cout_, rows_, run_, v_, lanes_ = (k.literal_value for k in (cin, cout, rows, run, vectors, lanes))

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        vec = VectorBuilder(b, Vector(lanes_))
        xs, ds, ws = (array_data(context, b, k, args[i]) for k, i in ((x, 0), (dy, 2), (dw, 8)))
        _, x_0, _, dy_0, images_, band_, width_, height_, _, dw_0 = args[:10]
        line = b.add(width_, I64(2))
        size = b.mul(line, b.add(height_, I64(2)))
        places = [(k, t, v) for k in range(rows_) for t in range(run_) for v in range(v_)]
        acc = {place: cgutils.alloca_once_value(b, vec.zero) for place in places}
        with cgutils.for_range(b, images_) as image, cgutils.for_range(b, band_) as h:
            row = b.add(b.mul(image.index, size), b.mul(h.index, line))
            with cgutils.for_range(b, width_) as w:
                pixel = b.add(row, w.index)
                dy_w = b.add(dy_0, b.mul(pixel, I64(cout_)))
                grads = [vec.load(ds, dy_w, v * lanes_) for v in range(v_)]
                for k in range(rows_):
                    x_k = b.add(x_0, b.mul(b.add(pixel, b.mul(line, I64(k))), I64(cin_)))
                    for t in range(run_):
                        value = vec.load_splat(xs, x_k, t)
                        for v in range(v_):
                            b.store(vec.multiply_add(value, grads[v], b.load(acc[k, t, v])), acc[k, t, v])
        for (k, t, v), total in acc.items():
            place = (k * 3 * cin_ + t) * cout_ + v * lanes_
            vec.store(b.fadd(vec.load(ws, dw_0, place), b.load(total)), ws, dw_0, place)
        return context.get_dummy_value()

    i = types.intp
    return types.void(x, i, dy, i, i, i, i, i, dw, i, cin, cout, rows, run, vectors, lanes), emit
