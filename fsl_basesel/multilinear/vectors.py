"""Vectors of `LANES` float64 inside numba kernels: `load`, `store`, `+`, `-`, `*`.

LLVM turns scalar loops into SIMD code only when its heuristics agree, and these change with K and
with its version. A vector type leaves it no choice. Every lane is rounded as a scalar would be, so
results do not depend on the vector width of the machine.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 16


class Vector(types.Type):
    """`LANES` float64, as numba sees them."""

    def __init__(self) -> None:
        super().__init__(name=f"Vector({LANES})")


vector, registers = Vector(), ir.VectorType(ir.DoubleType(), LANES)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, registers)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Address of `array[index : index + LANES]` as a pointer to a vector."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index], inbounds=True), registers.as_pointer())


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """The `LANES` numbers from `array[index]` on; `array` is flat and contiguous."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_pointer(context, builder, signature.args[0], *args), typ=registers)
        value.align = 8
        return value

    return vector(array, types.intp), generate


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Write a vector to `array[index : index + LANES]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *args[:2])
        builder.store(args[2], pointer).align = 8
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


def _operator(symbol: Callable[..., Any], instruction: str) -> None:
    """Give two vectors an operator, lane by lane."""

    @infer_global(symbol)
    class _Typing(AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Any, kws: Any) -> Any:
            return signature(vector, *args) if args == (vector, vector) else None

    @lower_builtin(symbol, vector, vector)
    def _generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args)


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
