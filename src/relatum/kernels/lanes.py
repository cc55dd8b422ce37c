"""Sixteen float32 at a time, for numba: a vector type with arithmetic, and loads and stores from flat arrays.

numba leaves vectorisation to LLVM's loop analysis, which gives up, or adds checks that cost more than they save, on the
short rows of a 32 x 32 view (measured: 42 against 6 ns for a row's vertical blend, 81 against 10 ns for its horizontal
one). Here a vector is a vector from the start. It is plain LLVM: one AVX-512 register, two of AVX2 or four of NEON.
Only `pick_pairs` uses an instruction of one family, where the machine has it.
"""
# mypy: ignore-errors

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

LANES = 16
_I8, _I32, _F32 = ir.IntType(8), ir.IntType(32), ir.FloatType()
_FLOATS, _INTS, _BYTES = ir.VectorType(_F32, LANES), ir.VectorType(_I32, LANES), ir.VectorType(_I8, LANES)
_FAST = ("nnan", "ninf", "nsz", "contract")  # no reassociation: a sum has the order in which it is written


class LanesType(types.Type):
    """numba's name for sixteen float32."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes_type = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS)


def _mask(numbers: Any) -> ir.Constant:
    numbers = list(numbers)
    return ir.Constant(ir.VectorType(_I32, len(numbers)), numbers)


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _read(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: Any) -> Any:
    value = builder.load(_address(context, builder, kind, array, index, vector))
    value.align = vector.element.width // 8 if isinstance(vector.element, ir.IntType) else 4
    return value


def _write(context: Any, builder: Any, kind: Any, array: Any, index: Any, value: Any) -> None:
    builder.store(value, _address(context, builder, kind, array, index, value.type)).align = 4


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """array[index : index + 16] of a flat float32 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _read(context, builder, signature.args[0], args[0], args[1], _FLOATS)

    return lanes_type(array, types.intp), codegen


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index : index + 16] = value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _write(context, builder, signature.args[0], args[0], args[1], args[2])
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes_type), codegen


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """The same float32 in every lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        undefined = ir.Constant(_FLOATS, ir.Undefined)
        first = builder.insert_element(undefined, args[0], _I32(0))
        return builder.shuffle_vector(first, undefined, _mask([0] * LANES))

    return lanes_type(types.float32), codegen


def _binary(name: str) -> Any:
    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, name)(*args, flags=_FAST)

        return lanes_type(lanes_type, lanes_type), codegen

    return operation


def _arithmetic(symbol: Any, name: str) -> None:
    both = _binary(name)

    @overload(symbol, inline="always")
    def vectors(a, b):  # numba wants the lambda's signature to the letter
        if isinstance(a, LanesType) and isinstance(b, LanesType):
            return lambda a, b: both(a, b)
        if isinstance(a, LanesType) and isinstance(b, types.Number):
            return lambda a, b: both(a, splat(b))
        if isinstance(a, types.Number) and isinstance(b, LanesType):
            return lambda a, b: both(splat(a), b)
        return None


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")


@intrinsic
def choose(typing: Any, a: Any, b: Any, less: Any, otherwise: Any) -> Any:
    """`less` where a < b, else `otherwise`, lane by lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", args[0], args[1], flags=_FAST), args[2], args[3])

    return lanes_type(lanes_type, lanes_type, lanes_type, lanes_type), codegen


@intrinsic
def absolute(typing: Any, value: Any) -> Any:
    """|value|."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_FLOATS, [_FLOATS])
        return builder.call(builder.module.declare_intrinsic(f"llvm.fabs.v{LANES}f32", (), kind), args)

    return lanes_type(lanes_type), codegen


@intrinsic
def pick_pairs(typing: Any, array: Any, start: Any, numbers: Any, at: Any) -> Any:
    """Neighbours array[p] and array[p + 1] with p = start + numbers[at + lane].

    The numbers must be below 31, and the array must reach 32 beyond start.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind, _, kind_numbers, _ = signature.args
        array, start, numbers, at = args
        first = _read(context, builder, kind_numbers, numbers, at, _INTS)
        indices = [first, builder.add(first, ir.Constant(_INTS, [1] * LANES))]
        if "+avx512f" in getattr(context.codegen(), "_tm_features", ""):
            picked = [_permute(context, builder, kind, array, start, index) for index in indices]
        else:
            picked = [_one_by_one(context, builder, kind, array, start, index) for index in indices]
        return context.make_tuple(builder, signature.return_type, picked)

    return types.UniTuple(lanes_type, 2)(array, types.intp, numbers, types.intp), codegen


def _permute(context: Any, builder: Any, kind: Any, array: Any, start: Any, index: Any) -> Any:
    """array[start + index] by one instruction that looks sixteen numbers up in two registers."""
    low = _read(context, builder, kind, array, start, _FLOATS)
    high = _read(context, builder, kind, array, builder.add(start, ir.Constant(start.type, LANES)), _FLOATS)
    signature = ir.FunctionType(_FLOATS, [_FLOATS, _INTS, _FLOATS])
    permute = builder.module.declare_intrinsic("llvm.x86.avx512.vpermi2var.ps.512", (), signature)
    return builder.call(permute, [low, index, high])


def _one_by_one(context: Any, builder: Any, kind: Any, array: Any, start: Any, index: Any) -> Any:
    """The same on any machine."""
    data = context.make_array(kind)(context, builder, array).data
    result = ir.Constant(_FLOATS, ir.Undefined)
    for lane in range(LANES):
        place = builder.add(start, builder.zext(builder.extract_element(index, _I32(lane)), start.type))
        result = builder.insert_element(result, builder.load(builder.gep(data, [place])), _I32(lane))
    return result


@intrinsic
def total(typing: Any, value: Any) -> Any:
    """The sum of the lanes: halves are added until one is left."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (vector,) = args
        count = LANES
        while count > 1:
            count //= 2
            low = builder.shuffle_vector(vector, vector, _mask(range(count)))
            high = builder.shuffle_vector(vector, vector, _mask(range(count, 2 * count)))
            vector = builder.fadd(low, high, flags=_FAST)
        return builder.extract_element(vector, _I32(0))

    return types.float32(lanes_type), codegen


@intrinsic
def load_pixels(typing: Any, array: Any, index: Any) -> Any:
    """Sixteen RGB pixels from 48 bytes of a flat uint8 array: three planes of lanes, 0 to 255."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        parts = [
            _read(
                context,
                builder,
                signature.args[0],
                args[0],
                builder.add(args[1], ir.Constant(args[1].type, offset)),
                _BYTES,
            )
            for offset in (0, LANES, 2 * LANES)
        ]
        front = builder.shuffle_vector(parts[0], parts[1], _mask(range(2 * LANES)))
        back = builder.shuffle_vector(parts[2], ir.Constant(_BYTES, ir.Undefined), _mask(range(2 * LANES)))
        planes = []
        for channel in range(3):
            narrow = builder.shuffle_vector(front, back, _mask(range(channel, 3 * LANES, 3)))
            planes.append(builder.sitofp(builder.zext(narrow, _INTS), _FLOATS))
        return context.make_tuple(builder, signature.return_type, planes)

    return types.UniTuple(lanes_type, 3)(array, types.intp), codegen


@intrinsic
def store_pixels(typing: Any, array: Any, index: Any, red: Any, green: Any, blue: Any) -> Any:
    """Three planes of lanes as sixteen RGB pixels, 48 consecutive float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, index, red, green, blue = args
        both = builder.shuffle_vector(red, green, _mask(range(2 * LANES)))
        wide = builder.shuffle_vector(blue, ir.Constant(_FLOATS, ir.Undefined), _mask(range(2 * LANES)))
        order = [lane + LANES * channel for lane in range(LANES) for channel in range(3)]
        for part in range(3):
            mixed = builder.shuffle_vector(both, wide, _mask(order[LANES * part : LANES * (part + 1)]))
            place = builder.add(index, ir.Constant(index.type, LANES * part))
            _write(context, builder, signature.args[0], array, place, mixed)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes_type, lanes_type, lanes_type), codegen
