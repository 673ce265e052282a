"""Vectors of `LANES` floats inside numba kernels: `load`, `store`, `+`, `-`, `*`.

LLVM turns scalar loops into SIMD code only when its heuristics agree, which changes with K and with
its version; a vector type leaves it no choice. Every lane is rounded as its scalar would be, so
results do not depend on the machine's vector width.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, overload, register_model

from fsl_basesel.multilinear.llvm import LANES, ask_for, vector_pointer

__all__ = ["LANES", "Vector", "lane", "larger", "load", "prefetch", "store"]


class Vector(types.Type):
    """`LANES` floats of one type, as numba sees them."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype}, {LANES})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        element = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(element, LANES))


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """The `LANES` numbers from `array[index]` on; `array` is flat and contiguous."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = vector_pointer(context, builder, signature.args[0], *args)
        value = builder.load(pointer, typ=context.get_value_type(signature.return_type))
        value.align = signature.args[0].dtype.bitwidth // 8
        return value

    return Vector(array.dtype)(array, types.uint64), generate


@intrinsic
def store(typing: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write a vector to `array[index : index + LANES]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = vector_pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], pointer).align = signature.args[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.uint64, vector), generate


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of `array[index]`; harmless wherever it points."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ask_for(context, builder, signature.args[0], *args)
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@intrinsic
def larger(typing: Any, left: Any, right: Any) -> Any:
    """The larger of two vectors, lane by lane; `right` where `left` is NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return left(left, right), generate


@intrinsic
def lane(typing: Any, vector: Any, index: Any) -> Any:
    """The number in one lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_element(*args)

    return vector.dtype(vector, types.uint64), generate


def _arithmetic(symbol: Callable, instruction: str) -> None:
    """Give two vectors an operator, lane by lane."""

    @intrinsic
    def apply(typing: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, instruction)(*args)

        return left(left, right), generate

    @overload(symbol)
    def operate(left: Any, right: Any) -> Any:
        def implementation(left: Any, right: Any) -> Any:
            return apply(left, right)

        return implementation if isinstance(left, Vector) and left == right else None


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
