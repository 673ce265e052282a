"""Words for loops that are written down in LLVM's terms, inside numba intrinsics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

LANES = 16  # rows that go through a kernel side by side
REGISTER_BITS = 256


def vector_pointer(
    context: Any, builder: Any, kind: Any, array: Any, index: Any, width: int = LANES
) -> Any:
    """Address of `array[index : index + width]` as a pointer to a vector."""
    data = context.make_array(kind)(context, builder, array).data
    start = builder.gep(data, [index], inbounds=True)
    vector = ir.VectorType(context.get_value_type(kind.dtype), width)
    return builder.bitcast(start, vector.as_pointer())


def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c, rounded once where the processor can."""
    kind = a.type
    letter = "f32" if isinstance(kind.element, ir.FloatType) else "f64"
    signature = ir.FunctionType(kind, [kind, kind, kind])
    name = f"llvm.fmuladd.v{kind.count}{letter}"
    call = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(call, [a, b, c])


def shuffled(builder: Any, left: Any, right: Any, mask: Sequence[int]) -> Any:
    """The entries of `left` and `right`, one behind the other, that `mask` names."""
    entry = ir.IntType(32)
    chosen = ir.Constant(ir.VectorType(entry, len(mask)), [ir.Constant(entry, i) for i in mask])
    return builder.shuffle_vector(left, right, chosen)


def number(value: int) -> ir.Constant:
    """A number of the program, for addresses and counts."""
    return ir.Constant(ir.IntType(64), value)


def ask_for(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> None:
    """Have the cache line of `array[index]` brought into the L2 cache; harmless wherever it is."""
    data = context.make_array(kind)(context, builder, array).data
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    pointer = builder.bitcast(builder.gep(data, [index]), byte)
    signature = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    call = builder.module.declare_intrinsic("llvm.prefetch", [byte], signature)
    builder.call(call, [pointer, flag(0), flag(2), flag(1)])  # to read, not into L1, data


class Buffer:
    """A flat array inside an intrinsic, read and written `width` numbers at a time."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any, width: int) -> None:
        self.context, self.builder, self.kind, self.array = context, builder, kind, array
        self.width, self.align = width, kind.dtype.bitwidth // 8
        self.vector = ir.VectorType(context.get_value_type(kind.dtype), width)

    def at(self, *parts: Any) -> Any:
        """Address of the entry at the sum of `parts`, each a number or a value of the program."""
        index = number(0)
        for part in parts:
            index = self.builder.add(index, number(part) if isinstance(part, int) else part)
        return vector_pointer(self.context, self.builder, self.kind, self.array, index, self.width)

    def load(self, *parts: Any) -> Any:
        """The numbers from there on."""
        value = self.builder.load(self.at(*parts), typ=self.vector)
        value.align = self.align
        return value

    def store(self, value: Any, *parts: Any) -> None:
        """Write numbers from there on."""
        self.builder.store(value, self.at(*parts)).align = self.align

    def all(self, value: Any) -> Any:
        """A vector with `value` in every place."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        lone = self.builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
        return shuffled(self.builder, lone, lone, [0] * self.width)

    def size(self) -> Any:
        """How many numbers the array holds."""
        return self.context.make_array(self.kind)(self.context, self.builder, self.array).nitems


def cast(builder: Any, value: Any, kind: Any) -> Any:
    """The same float, or vector of floats, in another width."""
    if value.type == kind:
        return value
    wider = isinstance(getattr(kind, "element", kind), ir.DoubleType)
    return builder.fpext(value, kind) if wider else builder.fptrunc(value, kind)


def transposed(builder: Any, rows: Sequence[Any]) -> list[Any]:
    """Rows of a square block to columns, by the shuffles that processors have instructions for.

    Those work within halves of a register: the four quarters of the block are transposed in place,
    then halves change places.
    """
    side, half = len(rows), len(rows) // 2

    def pick(left: Any, right: Any, begin: int, run: int) -> Any:
        """From each half, by turns `run` numbers of the left and of the right from `begin` on."""
        mask = [
            source + base + start + step
            for base in (0, half)
            for start in range(begin, begin + half // 2, run)
            for source in (0, side)
            for step in range(run)
        ]
        return shuffled(builder, left, right, mask)

    def quarters(four: Sequence[Any]) -> list[Any]:
        pairs, run = list(four), 1
        while run < half:  # interleave neighbours, then pairs of neighbours
            count = len(pairs)
            pairs = [
                pick(pairs[a], pairs[a + run], begin, run)
                for a in range(count)
                if not a & run
                for begin in (0, half // 2)
            ]
            run *= 2
        return pairs

    upper, lower = quarters(rows[:half]), quarters(rows[half:])
    first, second = list(range(half)), list(range(half, side))
    return [
        shuffled(builder, a, b, [*part, *(side + entry for entry in part)])
        for part in (first, second)
        for a, b in zip(upper, lower, strict=True)
    ]
