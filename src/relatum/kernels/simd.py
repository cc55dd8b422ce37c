"""A numba type for vectors of float32, with loads, stores and arithmetic.

numba leaves vectorisation to LLVM's loop analysis, which gives up on, or adds expensive checks to, short rows and
register tiles (measured for a 32 × 32 view: 42 against 6 ns for a row's vertical blend, 81 against 10 ns for its
horizontal one). `intrinsic` lets a function emit LLVM's vector instructions directly. They are the same on every
machine: sixteen lanes are one AVX-512 register, two of AVX2 or four of NEON.

`pixels` and `tiles` build the operations of the views and of Conv-4 on this module. Arrays are flat and contiguous.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core.datamodel import models

intrinsic: Any = extending.intrinsic  # numba has no type annotations for its decorators
I8, I32, I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()


class Vector(types.Type):
    """A numba type: a vector of float32.

    Multiplications and additions may be contracted to one instruction but are never reordered.

    Args:
        lanes: the number of floats.
        finite: whether the compiler may assume that no value is NaN or infinite and that the sign of a zero is
            irrelevant. Otherwise NaN and infinity propagate as they do in torch.
    """

    def __init__(self, lanes: int, finite: bool = False) -> None:
        self.lanes = lanes
        self.llvm = ir.VectorType(F32, lanes)
        self.flags = ("nnan", "ninf", "nsz", "contract") if finite else ("contract",)
        super().__init__(name=f"Vector({lanes}, {finite})")


@extending.register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, kind.llvm)  # type: ignore[no-untyped-call]


class VectorBuilder:
    """Emits the instructions for vectors of one type."""

    def __init__(self, builder: Any, kind: Vector) -> None:
        self.builder, self.kind = builder, kind
        self.zero = ir.Constant(kind.llvm, [0.0] * kind.lanes)

    def at(self, pointer: Any, index: Any, constant: int) -> Any:
        """The address of pointer[index + constant]."""
        return self.builder.gep(self.builder.gep(pointer, [index]), [I64(constant)])

    def load(self, pointer: Any, index: Any, constant: int = 0, element: Any = F32) -> Any:
        """As many elements as the vector has lanes, from pointer[index + constant] on."""
        vector = ir.VectorType(element, self.kind.lanes)
        address = self.builder.bitcast(self.at(pointer, index, constant), vector.as_pointer())
        return self.builder.load(address, align=1 if element is I8 else 4)

    def store(self, value: Any, pointer: Any, index: Any, constant: int = 0) -> None:
        """Write the vector to pointer[index + constant] and what follows."""
        address = self.builder.bitcast(self.at(pointer, index, constant), self.kind.llvm.as_pointer())
        self.builder.store(value, address, align=4)

    def splat(self, scalar: Any) -> Any:
        """The scalar in all lanes."""
        undefined = ir.Constant(self.kind.llvm, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, I32(0))
        return self.builder.shuffle_vector(first, undefined, lane_numbers([0] * self.kind.lanes))

    def load_splat(self, pointer: Any, index: Any, constant: int) -> Any:
        """pointer[index + constant] in all lanes; on x86 it becomes a memory operand of the multiply-add."""
        return self.splat(self.builder.load(self.at(pointer, index, constant)))

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """A · b + c."""
        flags = self.kind.flags
        return self.builder.fadd(self.builder.fmul(a, b, flags=flags), c, flags=flags)


def lane_numbers(numbers: Iterable[int]) -> Any:
    """A constant vector of int32: the argument of a shuffle."""
    numbers = list(numbers)
    return ir.Constant(ir.VectorType(I32, len(numbers)), numbers)


def array_data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """The address of an array's first element."""
    return context.make_array(kind)(context, builder, value=array).data


def _vector_type(kind: Any) -> Vector:
    """The type that the last argument of `load` and `splat` stands for."""
    return kind.instance_type if isinstance(kind, types.TypeRef) else Vector(kind.literal_value)


@intrinsic(prefer_literal=True)
def load(typing: Any, array: Any, index: Any, kind: Any) -> Any:
    """The vector that starts at `array[index]`; `kind` is a `Vector` type or a constant number of lanes."""
    vector = _vector_type(kind)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return VectorBuilder(builder, vector).load(array_data(context, builder, array, args[0]), args[1])

    return vector(array, types.intp, kind), emit


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Write a vector to `array[index]` and what follows."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        VectorBuilder(builder, value).store(args[2], array_data(context, builder, array, args[0]), args[1])
        return context.get_dummy_value()

    return types.void(array, types.intp, value), emit


@intrinsic(prefer_literal=True)
def splat(typing: Any, value: Any, kind: Any) -> Any:
    """A float32 in all lanes; `kind` as for `load`."""
    vector = _vector_type(kind)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return VectorBuilder(builder, vector).splat(args[0])

    return vector(types.float32, kind), emit


def _define_operator(function: Any, name: str) -> None:
    @intrinsic
    def apply(typing: Any, a: Any, b: Any) -> Any:
        vector = a if isinstance(a, Vector) else b
        kinds = [kind if isinstance(kind, Vector) else types.float32 for kind in (a, b)]

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            splat = VectorBuilder(builder, vector).splat
            operands = [arg if kind == vector else splat(arg) for kind, arg in zip(kinds, args, strict=True)]
            return getattr(builder, name)(*operands, flags=vector.flags)

        return vector(*kinds), emit

    @extending.overload(function, inline="always")
    def vector_operator(a, b):  # type: ignore[no-untyped-def]
        kinds = isinstance(a, Vector), isinstance(b, Vector)
        if a == b if all(kinds) else any(kinds) and isinstance(b if kinds[0] else a, types.Number):
            return lambda a, b: apply(a, b)
        return None


for _function, _name in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _define_operator(_function, _name)


@intrinsic
def where_positive(typing: Any, condition: Any, value: Any) -> Any:
    """`value` where `condition` > 0, else 0: ReLU (of itself) and its derivative. A NaN passes, as in torch."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = VectorBuilder(builder, value).zero
        return builder.select(builder.fcmp_ordered("<=", args[0], zero), zero, args[1])

    return value(condition, value), emit


@intrinsic
def where_less(typing: Any, a: Any, b: Any, value: Any, otherwise: Any) -> Any:
    """`value` where a < b, else `otherwise`, lane by lane."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", args[0], args[1], flags=a.flags), args[2], args[3])

    return value(a, b, value, otherwise), emit


@intrinsic
def absolute(typing: Any, value: Any) -> Any:
    """|value|."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(value.llvm, [value.llvm])
        return builder.call(builder.module.declare_intrinsic(f"llvm.fabs.v{value.lanes}f32", (), kind), args)

    return value(value), emit


@intrinsic
def sum_lanes(typing: Any, value: Any) -> Any:
    """The sum of the lanes, added by halves."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (vector,) = args
        count = value.lanes
        while count > 1:
            count //= 2
            low = builder.shuffle_vector(vector, vector, lane_numbers(range(count)))
            high = builder.shuffle_vector(vector, vector, lane_numbers(range(count, 2 * count)))
            vector = builder.fadd(low, high, flags=value.flags)
        return builder.extract_element(vector, I32(0))

    return types.float32(value), emit
