"""The recursions of a walk with the states of its rows in processor registers.

In a numba loop a state is stored for every position and loaded again for the next, and waits for
both. Here the loops are written down for LLVM, unrolled over the states, which then stay where they
are computed: up to 1.7 times as fast. As many lanes go through a loop together as
leave registers for every state; a tile of `LANES` rows takes one to four such turns. More states
than registers hold go group by group.

All arrays are flat. A position of a tile is `LANES` numbers of x and of q, one a row. At rest the
states p(0..K) and W(0..K-1) are `LANES` numbers each. Records are the states p_{i-1}(0..K-1) before
every position of a chunk, kept turn by turn so that each turn reads whole cache lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fsl_basesel.multilinear.simd import LANES, fused, shuffled, vector_pointer

REGISTER_BITS = 256
MOST_STATES = 10  # that stay in registers together
TWO_REGISTERS = 3  # up to this K a state takes two registers: more work between dependent steps


def lanes_together(bits: int, k: int) -> int:
    """How many rows of numbers with `bits` go through a loop together."""
    return REGISTER_BITS // bits * (2 if k <= TWO_REGISTERS else 1)


def groups(k: int) -> list[range]:
    """The states 0..K-1 in groups that fit.

    Example:
        >>> groups(5), groups(16)
        ([range(0, 5)], [range(0, 8), range(8, 16)])
    """
    count = -(-k // MOST_STATES)
    ends = [k * number // count for number in range(count + 1)]
    return [range(start, stop) for start, stop in pairwise(ends)]


class _Buffer:
    """A flat array inside an intrinsic, read and written `width` numbers at a time."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any, width: int) -> None:
        self.context, self.builder, self.kind, self.array = context, builder, kind, array
        self.width, self.align = width, kind.dtype.bitwidth // 8
        self.vector = ir.VectorType(context.get_value_type(kind.dtype), width)

    def at(self, *parts: Any) -> Any:
        """Address of the entry at the sum of `parts`, each a number or a value of the program."""
        index = _number(0)
        for part in parts:
            index = self.builder.add(index, _number(part) if isinstance(part, int) else part)
        return vector_pointer(self.context, self.builder, self.kind, self.array, index, self.width)

    def load(self, *parts: Any) -> Any:
        value = self.builder.load(self.at(*parts), typ=self.vector)
        value.align = self.align
        return value

    def store(self, value: Any, *parts: Any) -> None:
        self.builder.store(value, self.at(*parts)).align = self.align

    def size(self) -> Any:
        """How many numbers the array holds."""
        return self.context.make_array(self.kind)(self.context, self.builder, self.array).nitems


@contextmanager
def _turns(records: _Buffer) -> Iterator[tuple[Any, Any]]:
    """Through the lanes: the first of each turn, and where its share of the records begins."""
    builder = records.builder
    with cgutils.for_range(builder, _number(LANES // records.width)) as loop:
        lane = builder.mul(loop.index, _number(records.width))
        yield lane, builder.mul(builder.udiv(records.size(), _number(LANES)), lane)


def _number(value: int) -> ir.Constant:
    return ir.Constant(ir.IntType(64), value)


def _ahead(
    builder: Any,
    k: int,
    states: _Buffer,
    from_: Any,
    records: _Buffer,
    position: Any,
    along: _Buffer,
    first: Any,
    n: Any,
    *,
    keep_all: bool,
) -> None:
    """p_i(j) = p_{i-1}(j) + x_i (p_{i-1}(j-1) - p_{i-1}(j)) over `n` positions.

    A group finds the state below its first in the records of the group before.
    """
    with _turns(records) as (lane, turn):
        for group in groups(k):
            last = group.stop == k
            held = range(group.start, k + 1) if last else group
            p = [
                cgutils.alloca_once_value(builder, states.load(from_, j * LANES, lane))
                for j in held
            ]
            with cgutils.for_range(builder, n) as loop:
                i = builder.mul(builder.add(position, loop.index), _number(k * states.width))
                x = along.load(first, builder.mul(loop.index, _number(LANES)), lane)
                below = records.load(turn, i, (group.start - 1) * states.width) if held[0] else None
                for j, state in zip(held, p, strict=True):
                    now = builder.load(state)
                    if j < k and (keep_all or (j + 1 == group.stop and not last)):
                        records.store(now, turn, i, j * states.width)
                    rise = builder.fsub(below, now) if below else builder.fneg(now)
                    builder.store(fused(builder, x, rise, now), state)
                    below = now
            for j, state in zip(held, p, strict=True):
                states.store(builder.load(state), from_, j * LANES, lane)


def _back(
    builder: Any,
    k: int,
    states: _Buffer,
    records: _Buffer,
    along: _Buffer,
    first: Any,
    q: _Buffer,
    n: Any,
) -> None:
    """W_{i-1}(j) = W_i(j) + x_i (W_i(j+1) - W_i(j)) with W(K) = q_i; slopes take the place of q.

    The last group goes first. What the next one needs of it, W at its first state and its part of
    the slope, takes the place of two states in the record that nobody reads any more.
    """
    with _turns(records) as (lane, turn):
        for group in reversed(groups(k)):
            w = [cgutils.alloca_once_value(builder, states.load(j * LANES, lane)) for j in group]
            with cgutils.for_range(builder, n) as loop:
                i = builder.sub(builder.sub(n, _number(1)), loop.index)
                record = builder.mul(i, _number(k * states.width))
                here = builder.add(builder.mul(i, _number(LANES)), lane)
                own, x = q.load(here), along.load(first, here)
                top, slope = own, None
                if group.stop < k:
                    top = records.load(turn, record, group.stop * states.width)
                    slope = records.load(turn, record, (k - 1) * states.width)
                after = [*(builder.load(state) for state in w), top]
                for number, j in enumerate(group):
                    p = records.load(turn, record, j * states.width)
                    gap = builder.fsub(own, after[number])
                    slope = fused(builder, p, gap, slope) if slope else builder.fmul(p, gap)
                    up = builder.fsub(after[number + 1], after[number])
                    builder.store(fused(builder, x, up, after[number]), w[number])
                if group.start:
                    records.store(after[0], turn, record, group.start * states.width)
                    records.store(slope, turn, record, (k - 1) * states.width)
                else:
                    q.store(slope, here)
            for j, state in zip(group, w, strict=True):
                states.store(builder.load(state), j * LANES, lane)


def _buffers(context: Any, builder: Any, signature: Any, args: Any) -> tuple[int, list[Any]]:
    """K from the first argument; the others, arrays as buffers."""
    k = len(signature.args[0])
    width = lanes_together(signature.args[1].dtype.bitwidth, k)
    return k, [
        _Buffer(context, builder, kind, arg, width) if isinstance(kind, types.Array) else arg
        for kind, arg in zip(signature.args[1:], args[1:], strict=True)
    ]


@intrinsic
def forward(
    typing: Any,
    k: Any,
    states: Any,
    from_: Any,
    records: Any,
    position: Any,
    along: Any,
    first: Any,
    n: Any,
) -> Any:
    """Take p over `n` positions and keep records of what it was before each.

    Args:
        typing: numba's.
        k: a tuple as long as K.
        states: flat array with p(0..K) from `from_` on, taken forward in place.
        from_: see there.
        records: flat array of a chunk's records.
        position: the first record to write.
        along: x of the tile, position by position.
        first: where in `along` the first position begins.
        n: how many positions.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        k, rest = _buffers(context, builder, signature, args)
        _ahead(builder, k, *rest, keep_all=True)
        return context.get_dummy_value()

    u = types.uint64
    return types.void(k, states, u, records, u, along, u, u), generate


@intrinsic
def skim(typing: Any, k: Any, states: Any, records: Any, along: Any, first: Any, n: Any) -> Any:
    """`forward` from the start of `states`, without records: the way there of a long walk.

    `records` is scratch here, for what one group tells the next.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        k, (states, records, *rest) = _buffers(context, builder, signature, args)
        _ahead(builder, k, states, _number(0), records, _number(0), *rest, keep_all=False)
        return context.get_dummy_value()

    return types.void(k, states, records, along, types.uint64, types.uint64), generate


@intrinsic
def backward(
    typing: Any, k: Any, states: Any, records: Any, along: Any, first: Any, q: Any, n: Any
) -> Any:
    """Take W over the first `n` records, last to first; the slopes take the place of q.

    Args:
        typing: numba's.
        k: a tuple as long as K.
        states: flat array that begins with W(0..K-1), taken back in place.
        records: what `forward` kept; not to be read again.
        along: x of the tile, position by position.
        first: where in `along` the first position begins.
        q: similarities above the floor, position by position from the first record on.
        n: how many positions.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        k, rest = _buffers(context, builder, signature, args)
        _back(builder, k, *rest)
        return context.get_dummy_value()

    u = types.uint64
    return types.void(k, states, records, along, u, q, u), generate


@intrinsic
def lift_blocks(
    typing: Any, values: Any, first: Any, stride: Any, floor: Any, q: Any, n: Any
) -> Any:
    """Similarities above the floor of `LANES` rows, position by position.

    Args:
        typing: numba's.
        values: flat array of rows.
        first: where the first row's first entry is.
        stride: entries from a row to the next.
        floor: taken off.
        q: flat array to write to.
        n: how many positions, a multiple of eight.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, first, stride, floor, q, n = args
        kinds = signature.args
        side = REGISTER_BITS // kinds[4].dtype.bitwidth
        source = _Buffer(context, builder, kinds[0], values, side)
        target = _Buffer(context, builder, kinds[4], q, side)
        nothing = ir.Constant(ir.VectorType(floor.type, side), ir.Undefined)
        lone = builder.insert_element(nothing, floor, ir.Constant(ir.IntType(32), 0))
        floors = shuffled(builder, lone, lone, [0] * side)
        wide = source.vector if kinds[0].dtype.bitwidth == 64 else target.vector

        def above(row: int, i: Any) -> Any:
            value = source.load(first, i, builder.mul(stride, _number(row)))
            gap = builder.fsub(_cast(builder, value, wide), _cast(builder, floors, wide))
            return _cast(builder, gap, target.vector)

        with cgutils.for_range(builder, builder.udiv(n, _number(side))) as loop:
            i = builder.mul(loop.index, _number(side))
            for lane in range(0, LANES, side):
                block = [above(row, i) for row in range(lane, lane + side)]
                for offset, column in enumerate(_transposed(builder, block)):
                    at = builder.mul(builder.add(i, _number(offset)), _number(LANES))
                    target.store(column, at, lane)
        return context.get_dummy_value()

    u = types.uint64
    return types.void(values, u, u, floor, q, u), generate


def _cast(builder: Any, vector: Any, kind: ir.VectorType) -> Any:
    """The same numbers in another width."""
    if vector.type == kind:
        return vector
    wider = isinstance(kind.element, ir.DoubleType)
    return builder.fpext(vector, kind) if wider else builder.fptrunc(vector, kind)


def _transposed(builder: Any, rows: Sequence[Any]) -> list[Any]:
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
