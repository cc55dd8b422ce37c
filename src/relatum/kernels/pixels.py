"""Sixteen pixels at a time, for the views: conversion between RGB bytes and planes, and a lookup of neighbours.

Only `pick_neighbours` uses an instruction of one family of machines (AVX-512), with an equivalent for all others.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from relatum.kernels.simd import F32, I8, I32, Vector, VectorBuilder, array_data, intrinsic, lane_numbers

_UniTuple: Any = types.UniTuple  # not annotated
LANES = 16
PIXELS = Vector(LANES, finite=True)  # one colour of sixteen pixels
_INTS, _BYTES = ir.VectorType(I32, LANES), ir.VectorType(I8, LANES)


@intrinsic
def load_pixels(typing: Any, array: Any, index: Any) -> Any:
    """Sixteen RGB pixels from 48 bytes of a flat uint8 array, as three vectors with values from 0 to 255."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, vec = array_data(context, builder, array, args[0]), VectorBuilder(builder, PIXELS)
        parts = [vec.load(data, args[1], offset, I8) for offset in (0, LANES, 2 * LANES)]
        front = builder.shuffle_vector(parts[0], parts[1], lane_numbers(range(2 * LANES)))
        back = builder.shuffle_vector(parts[2], ir.Constant(_BYTES, ir.Undefined), lane_numbers(range(2 * LANES)))
        planes = []
        for channel in range(3):
            plane = builder.shuffle_vector(front, back, lane_numbers(range(channel, 3 * LANES, 3)))
            planes.append(builder.sitofp(builder.zext(plane, _INTS), PIXELS.llvm))
        return context.make_tuple(builder, signature.return_type, planes)

    return _UniTuple(PIXELS, 3)(array, types.intp), emit


@intrinsic
def store_pixels(typing: Any, array: Any, index: Any, red: Any, green: Any, blue: Any) -> Any:
    """Write three vectors as sixteen RGB pixels: 48 consecutive float32."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, index, red, green, blue = args
        data, vec = array_data(context, builder, array, args[0]), VectorBuilder(builder, PIXELS)
        front = builder.shuffle_vector(red, green, lane_numbers(range(2 * LANES)))
        back = builder.shuffle_vector(blue, ir.Constant(PIXELS.llvm, ir.Undefined), lane_numbers(range(2 * LANES)))
        order = [lane + LANES * channel for lane in range(LANES) for channel in range(3)]
        for start in (0, LANES, 2 * LANES):
            mixed = builder.shuffle_vector(front, back, lane_numbers(order[start : start + LANES]))
            vec.store(mixed, data, index, start)
        return context.get_dummy_value()

    return types.void(array, types.intp, PIXELS, PIXELS, PIXELS), emit


@intrinsic
def pick_neighbours(typing: Any, array: Any, start: Any, numbers: Any, at: Any) -> Any:
    """The vectors array[p] and array[p + 1], where p = start + numbers[at + lane].

    The numbers must be below 31, and the array must reach 32 beyond start.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = array_data(context, builder, array, args[0])
        vec = VectorBuilder(builder, PIXELS)
        first = vec.load(array_data(context, builder, numbers, args[2]), args[3], element=I32)
        second = builder.add(first, ir.Constant(_INTS, [1] * LANES))
        pick = _permute if "+avx512f" in getattr(context.codegen(), "_tm_features", "") else _one_by_one
        picked = [pick(vec, data, args[1], index) for index in (first, second)]
        return context.make_tuple(builder, signature.return_type, picked)

    return _UniTuple(PIXELS, 2)(array, types.intp, numbers, types.intp), emit


def _permute(vec: VectorBuilder, data: Any, start: Any, index: Any) -> Any:
    """data[start + index] by one instruction that looks up sixteen numbers in two registers."""
    kind = ir.FunctionType(PIXELS.llvm, [PIXELS.llvm, _INTS, PIXELS.llvm])
    permute = vec.builder.module.declare_intrinsic("llvm.x86.avx512.vpermi2var.ps.512", (), kind)
    return vec.builder.call(permute, [vec.load(data, start), index, vec.load(data, start, LANES)])


def _one_by_one(vec: VectorBuilder, data: Any, start: Any, index: Any) -> Any:
    """The same on any machine."""
    builder, result = vec.builder, ir.Constant(ir.VectorType(F32, LANES), ir.Undefined)
    for lane in range(LANES):
        place = builder.add(start, builder.zext(builder.extract_element(index, I32(lane)), start.type))
        result = builder.insert_element(result, builder.load(builder.gep(data, [place])), I32(lane))
    return result
