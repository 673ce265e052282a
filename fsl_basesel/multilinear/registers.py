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

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from fsl_basesel.multilinear.llvm import LANES, REGISTER_BITS, Buffer, fused, number

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
    ends = [k * index // count for index in range(count + 1)]
    return [range(start, stop) for start, stop in pairwise(ends)]


@contextmanager
def _turns(records: Buffer) -> Iterator[tuple[Any, Any]]:
    """Through the lanes: the first of each turn, and where its share of the records begins."""
    builder = records.builder
    with cgutils.for_range(builder, number(LANES // records.width)) as loop:
        lane = builder.mul(loop.index, number(records.width))
        yield lane, builder.mul(builder.udiv(records.size(), number(LANES)), lane)


def _ahead(
    builder: Any,
    k: int,
    states: Buffer,
    from_: Any,
    records: Buffer,
    position: Any,
    along: Buffer,
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
                i = builder.mul(builder.add(position, loop.index), number(k * states.width))
                x = along.load(first, builder.mul(loop.index, number(LANES)), lane)
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
    states: Buffer,
    records: Buffer,
    along: Buffer,
    first: Any,
    q: Buffer,
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
                i = builder.sub(builder.sub(n, number(1)), loop.index)
                record = builder.mul(i, number(k * states.width))
                here = builder.add(builder.mul(i, number(LANES)), lane)
                own, x = q.load(here), along.load(first, here)
                top, slope = own, None
                if group.stop < k:
                    top = records.load(turn, record, group.stop * states.width)
                    slope = records.load(turn, record, (k - 1) * states.width)
                after = [*(builder.load(state) for state in w), top]
                for place, j in enumerate(group):
                    p = records.load(turn, record, j * states.width)
                    gap = builder.fsub(own, after[place])
                    slope = fused(builder, p, gap, slope) if slope else builder.fmul(p, gap)
                    up = builder.fsub(after[place + 1], after[place])
                    builder.store(fused(builder, x, up, after[place]), w[place])
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
        Buffer(context, builder, kind, arg, width) if isinstance(kind, types.Array) else arg
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
        _ahead(builder, k, states, number(0), records, number(0), *rest, keep_all=False)
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
