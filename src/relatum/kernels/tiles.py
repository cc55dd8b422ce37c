"""Vectors and register tiles for compiled kernels: what LLVM does not find by itself in a convolution's loops.

numba compiles through LLVM, and `intrinsic` lets a function write LLVM's vector instructions directly. Three things are
built on that: `Vec`, a numba type that is one vector of float32 (load, store, +, -, ×, ReLU's mask); `conv_tile`, which
keeps a tile of output pixels × output channels of a 3×3 convolution in registers; `wgrad_tile`, the same for its weight
gradient. Arrays are flat float32, channels innermost; the images that a convolution reads have a border of zeros.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import binding, ir
from numba import extending, types
from numba.core import cgutils as _cgutils
from numba.core.datamodel import models

intrinsic: Any = extending.intrinsic  # numba's types do not know what its decorators return
cgutils: Any = _cgutils
_FLOAT, _INT = ir.FloatType(), ir.IntType(64)
# Sixteen lanes and 32 registers with AVX-512; otherwise eight lanes, and tiles that fit into sixteen registers.
WIDE = bool(binding.get_host_cpu_features().get("avx512f", False))
LANES = 16 if WIDE else 8


class Vec(types.Type):
    """A numba type: one vector of float32."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(name=f"Vec({lanes})")


@extending.register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vec) -> None:
        super().__init__(manager, kind, ir.VectorType(_FLOAT, kind.lanes))  # type: ignore[no-untyped-call]


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, value=array).data


class _Emit:
    """Writes vector instructions of one width."""

    def __init__(self, builder: Any, lanes: int) -> None:
        self.builder, self.lanes, self.type = builder, lanes, ir.VectorType(_FLOAT, lanes)
        self.zero = ir.Constant(self.type, [0.0] * lanes)

    def at(self, pointer: Any, index: Any, constant: int) -> Any:
        return self.builder.gep(self.builder.gep(pointer, [index]), [_INT(constant)])

    def load(self, pointer: Any, index: Any, constant: int = 0) -> Any:
        where = self.builder.bitcast(self.at(pointer, index, constant), self.type.as_pointer())
        return self.builder.load(where, align=4)

    def store(self, value: Any, pointer: Any, index: Any, constant: int = 0) -> None:
        where = self.builder.bitcast(self.at(pointer, index, constant), self.type.as_pointer())
        self.builder.store(value, where, align=4)

    def splat(self, scalar: Any) -> Any:
        undefined = ir.Constant(self.type, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.IntType(32)(0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, lanes)

    def spread(self, pointer: Any, index: Any, constant: int) -> Any:
        """One float in all lanes; on x86 it becomes the multiply-add's own memory operand."""
        return self.splat(self.builder.load(self.at(pointer, index, constant)))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.builder.fadd(self.builder.fmul(a, b, flags=["contract"]), c, flags=["contract"])


@intrinsic(prefer_literal=True)
def load(typing: Any, array: Any, index: Any, lanes: Any) -> Any:
    """The vector of `lanes` floats at `array[index]`."""
    kind = Vec(lanes.literal_value)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _Emit(builder, kind.lanes).load(_data(context, builder, array, args[0]), args[1])

    return kind(array, types.intp, lanes), emit


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Write a vector to `array[index]`."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _Emit(builder, value.lanes).store(args[2], _data(context, builder, array, args[0]), args[1])
        return context.get_dummy_value()

    return types.void(array, types.intp, value), emit


@intrinsic(prefer_literal=True)
def splat(typing: Any, value: Any, lanes: Any) -> Any:
    """A float32 in all lanes."""
    kind = Vec(lanes.literal_value)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _Emit(builder, kind.lanes).splat(args[0])

    return kind(types.float32, lanes), emit


@intrinsic
def where_positive(typing: Any, condition: Any, value: Any) -> Any:
    """`value` where `condition` > 0, else 0: ReLU (of itself) and its derivative. A NaN passes, as in torch."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = _Emit(builder, value.lanes).zero
        return builder.select(builder.fcmp_ordered("<=", args[0], zero), zero, args[1])

    return value(condition, value), emit


def _operator(function: Any, name: str) -> None:
    @intrinsic
    def apply(typing: Any, a: Any, b: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, name)(*args, flags=["contract"])  # contract: a product and a sum may become one

        return a(a, b), emit

    @extending.overload(function)
    def vector_operator(a, b):  # type: ignore[no-untyped-def]
        return (lambda a, b: apply(a, b)) if isinstance(a, Vec) and isinstance(b, Vec) else None


for _function, _name in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _operator(_function, _name)


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of `array[index]` (which may lie outside) in the second-level cache."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.bitcast(
            builder.gep(_data(context, builder, array, args[0]), [args[1]]), ir.IntType(8).as_pointer()
        )
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, *[ir.IntType(32)] * 3])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, *(ir.IntType(32)(k) for k in (0, 2, 1))])  # read, L2, data
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


@intrinsic
def take(typing: Any, counter: Any) -> Any:
    """`counter[0]`, which grows by one atomically: how threads share out the parts of a job."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _data(context, builder, counter, args[0]), _INT(1), "monotonic")

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
        vec = _Emit(b, n_)
        xs, ws, ys, ss, ms = (_data(context, b, k, args[i]) for k, i in ((x, 0), (w, 3), (y, 5), (sums, 7), (shift, 8)))
        acc = [[cgutils.alloca_once_value(b, vec.zero) for _ in range(v_)] for _ in range(p_)]
        with cgutils.for_range(b, _INT(3)) as kernel_row:
            x_row = b.add(args[1], b.mul(kernel_row.index, args[2]))
            w_row = b.add(args[4], b.mul(kernel_row.index, _INT(3 * cin_ * cout_)))
            # Within a row, (column, channel) of the window is one run of 3·cin floats.
            with cgutils.for_range(b, _INT(3 * cin_ // unroll)) as run:
                t = b.mul(run.index, _INT(unroll))
                x_t, w_t = b.add(x_row, t), b.add(w_row, b.mul(t, _INT(cout_)))
                for u in range(unroll):
                    weights = [vec.load(ws, w_t, u * cout_ + v * n_) for v in range(v_)]
                    for p in range(p_):
                        value = vec.spread(xs, x_t, p * cin_ + u)
                        for v in range(v_):
                            b.store(vec.fma(value, weights[v], b.load(acc[p][v])), acc[p][v])
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
def wgrad_tile(
    typing: Any, x: Any, x0: Any, dy: Any, dy0: Any, images: Any, band: Any, width: Any, height: Any, dw: Any, dw0: Any,
    cin: Any, cout: Any, rows: Any, run: Any, lanes: Any,
) -> Any:  # fmt: skip
    """Weight gradient: dw gains Σ x·dy over `band` rows of `images` bordered images, for a tile of dw in registers.

    The tile is `rows` rows of the 3×3 window × `run` of its 3·cin floats × `lanes` output channels.
    x0, dy0: the first image's first pixel as the tile sees it. dw (3, 3·cin, cout) is flat, dw0 the tile's place.
    """
    cin_, cout_, rows_, run_, lanes_ = (k.literal_value for k in (cin, cout, rows, run, lanes))

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        vec = _Emit(b, lanes_)
        xs, ds, ws = (_data(context, b, k, args[i]) for k, i in ((x, 0), (dy, 2), (dw, 8)))
        _, x_0, _, dy_0, images_, band_, width_, height_, _, dw_0 = args[:10]
        line = b.add(width_, _INT(2))
        size = b.mul(line, b.add(height_, _INT(2)))
        acc = {(k, t): cgutils.alloca_once_value(b, vec.zero) for k in range(rows_) for t in range(run_)}
        with cgutils.for_range(b, images_) as image, cgutils.for_range(b, band_) as h:
            row = b.add(b.mul(image.index, size), b.mul(h.index, line))
            with cgutils.for_range(b, width_) as w:
                pixel = b.add(row, w.index)
                grad = vec.load(ds, b.add(dy_0, b.mul(pixel, _INT(cout_))))
                for k in range(rows_):
                    x_k = b.add(x_0, b.mul(b.add(pixel, b.mul(line, _INT(k))), _INT(cin_)))
                    for t in range(run_):
                        b.store(vec.fma(vec.spread(xs, x_k, t), grad, b.load(acc[k, t])), acc[k, t])
        for (k, t), total in acc.items():
            place = (k * 3 * cin_ + t) * cout_
            vec.store(b.fadd(vec.load(ws, dw_0, place), b.load(total)), ws, dw_0, place)
        return context.get_dummy_value()

    i = types.intp
    return types.void(x, i, dy, i, i, i, i, i, dw, i, cin, cout, rows, run, lanes), emit
