"""Between rows in falling order and lanes: x and similarities in, slopes out.

Every entry of a walk passes through its column once on the way in and once on the way out. At small
K these two moves take most of the time, so they go by what a processor does best: columns are read
eight bytes at a time, x is stored for four rows at once, and what crosses between rows and lanes in
order is transposed in registers. A strip of `CLOSE` positions at a time stays in the L1 cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fsl_basesel.compiled import kernel
from fsl_basesel.multilinear.llvm import (
    LANES,
    REGISTER_BITS,
    Buffer,
    ask_for,
    cast,
    number,
    transposed,
)
from fsl_basesel.multilinear.scratch import LINE
from fsl_basesel.multilinear.simd import load, prefetch, store

CLOSE = np.uint64(128)  # positions of a tile that are moved at once, in the L1 cache
ROOM = int(CLOSE) * LANES  # numbers that `scatter` needs to work with

ZERO, ONE, TWO, FOUR, EIGHT = (np.uint64(count) for count in (0, 1, 2, 4, 8))
WIDE = np.uint64(LANES)


@kernel
def gather(
    x: np.ndarray,
    order: np.ndarray,
    values: np.ndarray,
    first: int,
    size: int,
    live: int,
    without: float,
    along: np.ndarray,
    to: int,
    n: np.uint64,
) -> None:
    """x along `n` entries of each row, from entry `first` of the first row on, into its lane.

    Lanes without a row get `without`. On the way, memory is asked for the next `n` entries of
    `order` and `values`.
    """
    if live < WIDE:
        for place in range(to, to + n * WIDE):
            along[place] = without
    fours = live // FOUR * FOUR
    for begin in range(ZERO, n, CLOSE):
        here = min(CLOSE, n - begin)
        whole = here // EIGHT * EIGHT
        for lane in range(ZERO, fours, FOUR):  # fewer lines per entry written than row by row
            row = first + lane * size + begin
            start = to + begin * WIDE + lane
            _gather_four(x, order, values, row, size, n, along, start, whole)
        for lane in range(live):
            row, start = first + lane * size + begin, to + begin * WIDE + lane
            for i in range(whole if lane < fours else ZERO, here):
                along[start + i * WIDE] = x[order[row + i]]


@kernel
def lift(
    values: np.ndarray,
    first: int,
    size: int,
    live: int,
    floor: float,
    q: np.ndarray,
    to: int,
    n: int,
) -> None:
    """Similarities above the floor along `n` entries of each row into its lane."""
    whole = ZERO
    if live == WIDE:
        whole = n // EIGHT * EIGHT
        _lift_blocks(values, first, size, floor, q, to, whole)
    for lane in range(live):
        for i in range(whole, n):
            q[to + i * WIDE + lane] = values[first + lane * size + i] - floor


@kernel
def scatter(
    gradient: np.ndarray,
    order: np.ndarray,
    first: int,
    size: int,
    live: int,
    slopes: np.ndarray,
    room: np.ndarray,
    n: np.uint64,
) -> None:
    """Slopes of `n` positions to the candidates they belong to; `room` is to work in."""
    for begin in range(ZERO, n, CLOSE):
        here = min(CLOSE, n - begin)
        whole = here // EIGHT * EIGHT
        _lower_blocks(slopes, begin * WIDE, room, whole)
        for lane in range(live):
            for i in range(whole, here):
                room[lane * CLOSE + i] = slopes[(begin + i) * WIDE + lane]
        add_rows(gradient, order, first + begin, size, live, room, here)


@kernel
def add_rows(
    gradient: np.ndarray,
    order: np.ndarray,
    first: int,
    size: int,
    live: int,
    room: np.ndarray,
    n: np.uint64,
) -> None:
    """Add `n` slopes of each row, `CLOSE` apart in `room`, to their candidates."""
    whole = n // EIGHT * EIGHT
    for lane in range(live):  # row after row: like rows would wait for each other's sums
        row = first + lane * size
        _add_row(gradient, order, row, room, lane * CLOSE, whole)
        for i in range(whole, n):
            gradient[order[row + i]] += room[lane * CLOSE + i]


@kernel
def copy(source: np.ndarray, start: int, target: np.ndarray, to: int, size: int) -> None:
    """Copy whole vectors."""
    for s in range(ZERO, size, WIDE):
        store(target, to + s, load(source, start + s))


@kernel
def ask(array: np.ndarray, first: int, length: int, rows: int, n: int) -> None:
    """Prefetch `n` entries of each of `rows` rows, beginning at entry `first` of a flat array."""
    per_line = np.uint64(LINE // array.itemsize)
    for row in range(rows):
        for i in range(ZERO, n, per_line):
            prefetch(array, first + row * length + i)


class _Columns:
    """Columns of a row inside an intrinsic, as many at a time as eight bytes hold."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any) -> None:
        self.builder, self.bits = builder, kind.dtype.bitwidth
        self.count = 64 // self.bits
        self.data = context.make_array(kind)(context, builder, array).data

    def load(self, index: Any) -> list[Any]:
        """The columns from `index` on."""
        place = self.builder.gep(self.data, [index], inbounds=True)
        whole = ir.IntType(64)
        packed = self.builder.load(self.builder.bitcast(place, whole.as_pointer()), typ=whole)
        packed.align = self.bits // 8
        mask = number((1 << self.bits) - 1)
        return [
            self.builder.and_(self.builder.lshr(packed, number(part * self.bits)), mask)
            for part in range(self.count)
        ]


@intrinsic
def _gather_four(
    typing: Any,
    x: Any,
    order: Any,
    values: Any,
    row: Any,
    stride: Any,
    ahead: Any,
    along: Any,
    to: Any,
    n: Any,
) -> Any:
    """x along `n` positions of four rows into four lanes that are side by side.

    Args:
        typing: numba's.
        x: probability of each column.
        order: flat array of rows.
        values: the same, only asked for.
        row: where the first row's first entry is.
        stride: entries from a row to the next.
        ahead: how many entries ahead to ask memory.
        along: flat array to write to.
        to: where in `along` the first position of the first row goes.
        n: how many positions, a multiple of eight.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, order, values, row, stride, ahead, along, to, n = args
        kinds = signature.args
        columns = _Columns(context, builder, kinds[1], order)
        source = context.make_array(kinds[0])(context, builder, x).data
        target = Buffer(context, builder, kinds[6], along, 4)
        with cgutils.for_range(builder, builder.udiv(n, number(columns.count))) as loop:
            i = builder.mul(loop.index, number(columns.count))
            rows = [
                columns.load(builder.add(builder.add(row, i), builder.mul(stride, number(lane))))
                for lane in range(4)
            ]
            # A line of one row at a time, rows by turns: all at once would have to queue.
            turn = builder.and_(loop.index, number(3))
            far = builder.add(builder.add(builder.add(row, i), ahead), builder.mul(turn, stride))
            ask_for(context, builder, kinds[1], order, far)
            ask_for(context, builder, kinds[2], values, far)
            for step, four in enumerate(zip(*rows, strict=True)):
                together = ir.Constant(target.vector, ir.Undefined)
                for lane, column in enumerate(four):
                    value = builder.load(builder.gep(source, [column]), typ=target.vector.element)
                    place = ir.Constant(ir.IntType(32), lane)
                    together = builder.insert_element(together, value, place)
                target.store(together, to, builder.mul(builder.add(i, number(step)), number(LANES)))
        return context.get_dummy_value()

    u = types.uint64
    return types.void(x, order, values, u, u, u, along, u, u), generate


@intrinsic
def _add_row(
    typing: Any, gradient: Any, order: Any, row: Any, slopes: Any, first: Any, n: Any
) -> Any:
    """`gradient[order[row + i]] += slopes[first + i]` for `n` positions."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        gradient, order, row, slopes, first, n = args
        kinds = signature.args
        columns = _Columns(context, builder, kinds[1], order)
        target = context.make_array(kinds[0])(context, builder, gradient).data
        source = context.make_array(kinds[3])(context, builder, slopes).data
        kept, moved = (context.get_value_type(kinds[at].dtype) for at in (0, 3))
        with cgutils.for_range(builder, builder.udiv(n, number(columns.count))) as loop:
            i = builder.mul(loop.index, number(columns.count))
            for step, column in enumerate(columns.load(builder.add(row, i))):
                at = builder.add(builder.add(first, i), number(step))
                slope = cast(builder, builder.load(builder.gep(source, [at]), typ=moved), kept)
                place = builder.gep(target, [column])
                builder.store(builder.fadd(builder.load(place, typ=kept), slope), place)
        return context.get_dummy_value()

    u = types.uint64
    return types.void(gradient, order, u, slopes, u, u), generate


@intrinsic
def _lift_blocks(
    typing: Any, values: Any, first: Any, stride: Any, floor: Any, q: Any, to: Any, n: Any
) -> Any:
    """Similarities above the floor of `LANES` rows, position by position.

    Args:
        typing: numba's.
        values: flat array of rows.
        first: where the first row's first entry is.
        stride: entries from a row to the next.
        floor: taken off.
        q: flat array to write to.
        to: where in `q`.
        n: how many positions, a multiple of eight.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, first, stride, floor, q, to, n = args
        kinds = signature.args
        side = REGISTER_BITS // kinds[4].dtype.bitwidth
        source = Buffer(context, builder, kinds[0], values, side)
        target = Buffer(context, builder, kinds[4], q, side)
        floors = target.all(floor)
        wide = source.vector if kinds[0].dtype.bitwidth == 64 else target.vector

        def above(row: int, i: Any) -> Any:
            value = source.load(first, i, builder.mul(stride, number(row)))
            gap = builder.fsub(cast(builder, value, wide), cast(builder, floors, wide))
            return cast(builder, gap, target.vector)

        with cgutils.for_range(builder, builder.udiv(n, number(side))) as loop:
            i = builder.mul(loop.index, number(side))
            for lane in range(0, LANES, side):
                block = [above(row, i) for row in range(lane, lane + side)]
                for offset, column in enumerate(transposed(builder, block)):
                    at = builder.mul(builder.add(i, number(offset)), number(LANES))
                    target.store(column, to, at, lane)
        return context.get_dummy_value()

    u = types.uint64
    return types.void(values, u, u, floor, q, u, u), generate


@intrinsic
def _lower_blocks(typing: Any, slopes: Any, first: Any, room: Any, n: Any) -> Any:
    """`n` positions of `LANES` rows, a multiple of eight, to rows that are `CLOSE` apart."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        slopes, first, room, n = args
        kind = signature.args[0]
        side = REGISTER_BITS // kind.dtype.bitwidth
        source = Buffer(context, builder, kind, slopes, side)
        target = Buffer(context, builder, signature.args[2], room, side)
        with cgutils.for_range(builder, builder.udiv(n, number(side))) as loop:
            i = builder.mul(loop.index, number(side))
            for lane in range(0, LANES, side):
                block = [
                    source.load(
                        first, builder.mul(builder.add(i, number(step)), number(LANES)), lane
                    )
                    for step in range(side)
                ]
                for row, values in enumerate(transposed(builder, block), start=lane):
                    target.store(values, i, row * int(CLOSE))
        return context.get_dummy_value()

    u = types.uint64
    return types.void(slopes, u, room, u), generate
