"""The gradient at small x in one walk down each row, by odds instead of probabilities.

Let N_i count the entries that are in among the first i of a row, d_i = q_i - q_{i+1} be the steps
between sorted similarities, and c_i(j) = P(N_i <= j). A candidate at position u raises the top-K
sum at every step below it that has fewer than K other entries above, so

    dF_n/dx_u = sum_{i >= u} d_i P(N_i without u < K).

The forward-backward walk of `registers.py` finds this from both ends. Here u is divided out: with
the odds o = x_u / (1 - x_u),

    (1 - x_u) P(N_i without u <= K-1) = sum_r (-o)^r c_i(K-1-r),

so sums S_u(j) = sum_{i >= u} d_i c_i(j) are all that is needed, and those are totals minus running
sums. One walk forward does it: nothing is recorded, nothing walked twice. Running sums begin anew
every `SPAN` positions, lest small steps far down a row drown in what was summed at its head. In
odds the probabilities cost one fused operation a state, c_i(j) = Q_i E_i(j) with

    Q_i = Q_{i-1} (1 - x_i)        E_i(j) = E_{i-1}(j) + o_i E_{i-1}(j-1).

Dividing out is well conditioned while x is small (errors grow by 1 / (1 - 2 x)), and the series is
cut where o^r falls below what the walk neglects anyway. `terms_for` says where that is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fsl_basesel.compiled import kernel
from fsl_basesel.multilinear.both_ways import States
from fsl_basesel.multilinear.llvm import LANES, REGISTER_BITS, Buffer, fused, number, transposed
from fsl_basesel.multilinear.moves import (
    CLOSE,
    EIGHT,
    ONE,
    ROOM,
    TWO,
    WIDE,
    ZERO,
    add_rows,
    ask,
    copy,
    gather,
    lift,
)
from fsl_basesel.multilinear.registers import MOST_STATES, lanes_together
from fsl_basesel.multilinear.scratch import Scratch, kept
from fsl_basesel.multilinear.simd import load, store

LARGEST = 0.25  # probability up to which a candidate is divided out
FEW = 4  # terms of the series, where they are enough
SPAN = CLOSE  # positions of a running sum
LEAST_STRIP = 16  # a power of two, like SPAN
# Positions of a walk whose columns do not stay in the L2 cache until its end
LONG = np.uint64(4096)


def terms_for(largest: float, k: int, states: int, epsilon: float) -> int:
    """How many terms make the series exact to `epsilon`; 0 where it is not to be used.

    Args:
        largest: the largest probability of a point.
        k: how many similarities count.
        states: how many the kernel is compiled for, at least `k`.
        epsilon: share of a slope that may be neglected.

    Example:
        >>> terms_for(0.02, 3, 3, 1e-6), terms_for(0.02, 10, 10, 1e-6), terms_for(0.2, 9, 10, 1e-6)
        (3, 4, 10)
        >>> terms_for(0.5, 3, 3, 1e-6), terms_for(0.02, 32, 32, 1e-6)
        (0, 0)
    """
    if largest > LARGEST or states > MOST_STATES:
        return 0
    enough = k <= FEW or (largest / (1 - largest)) ** FEW <= epsilon
    return min(states, FEW) if enough else states


def strip_for(length: int, reach: int) -> int:
    """Positions to walk between two looks at how much probability is left.

    Args:
        length: entries of a row.
        reach: how far walks are expected to go, rather too far than too short.

    Example:
        >>> strip_for(1000, 1000), strip_for(1000, 300), strip_for(1000, 50)
        (128, 32, 16)
    """
    limit = length // 4 if reach >= length else reach // 8
    return 1 << min(max(limit, LEAST_STRIP), int(SPAN)).bit_length() - 1


def scratch_for(states: States, terms: States, length: int, dtype: np.dtype) -> Scratch:
    """What a thread needs to walk rows of `length`.

    x or odds along the rows of a tile, similarities and then running sums beside them, the states
    where the walk stands, the sums of every span, and room for slopes on their way out.
    """
    held, count = len(states) + len(terms) + 3, len(terms)

    def sizes() -> list[int]:
        spans = -(-length // int(SPAN))
        tiles = (spans * int(SPAN), spans * int(SPAN), held, (spans + 1) * count)
        return [*(LANES * tile for tile in tiles), ROOM]

    return kept("odds", (held, count, length), dtype, sizes)


def tile_by_odds(
    values: np.ndarray,
    order: np.ndarray,
    base: np.uint64,
    size: np.uint64,
    live: np.uint64,
    floor: float,
    x: np.ndarray,
    states: States,
    terms: States,
    k: int,
    strip: int,
    epsilon: float,
    gradient: np.ndarray,
    scratch: Scratch,
) -> tuple[float, float, np.uint64]:
    """See `walk.walk_tile`; slopes come times 1 - x.

    The states are E(0..K-1), the running sums, Q, the similarity before, and F_n so far.
    """
    along, q, now, spans, room = scratch
    sums = np.uint64(len(states)) * WIDE  # where in `now` the running sums are
    width = np.uint64(len(terms)) * WIDE
    out = sums + width  # Q, the probability that all are out
    for s in range(np.uint64(len(now))):
        now[s] = 0
    for s in range(sums - np.uint64(k) * WIDE, sums):
        now[s] = 1
    for s in range(out, out + WIDE):
        now[s] = 1
    at, left, span = ZERO, 1.0, ZERO
    while at < size and left >= epsilon:
        todo = min(np.uint64(strip), size - at)
        gather(x, order, values, base + at, size, live, 0, along, at * WIDE, todo)
        lift(values, base + at, size, live, floor, q, at * WIDE, todo)
        if at == ZERO:
            copy(q, ZERO, now, out + WIDE, WIDE)
        advance(states, terms, now, along, q, at * WIDE, todo)
        at += todo
        left = largest_mass(now, sums, out, live, room)
        if at % SPAN == ZERO:
            copy(now, sums, spans, span, width)
            span += width
            for s in range(sums, out):
                now[s] = 0
    if at == size:
        step_to_floor(now, sums, out)
    begin = at // SPAN * SPAN
    while True:
        here = min(SPAN, at - begin)
        whole = (here + EIGHT - ONE) // EIGHT * EIGHT
        if at > LONG and begin > ZERO:
            ask(order, base + begin - SPAN, size, live, SPAN)
        settle(states, terms, now, along, q, begin * WIDE, room, whole)
        add_rows(gradient, order, base + begin, size, live, room, here)
        if begin == ZERO:
            break
        begin -= SPAN
        span -= width
        for s in range(ZERO, width, WIDE):  # what lies below
            store(now, sums + s, load(now, sums + s) + load(spans, span + s))
    total = 0.0
    for lane in range(live):
        total += now[out + TWO * WIDE + lane]
    return total, left, at


@kernel
def largest_mass(now: np.ndarray, sums: int, out: int, live: int, room: np.ndarray) -> float:
    """The largest probability over rows of fewer than K entries, any candidate divided out."""
    store(room, ZERO, load(now, sums - WIDE) * load(now, out))
    worst = 0.0
    for lane in range(live):
        worst = max(worst, room[lane])
    return worst / (1.0 - LARGEST)


@kernel
def step_to_floor(now: np.ndarray, sums: np.uint64, out: np.uint64) -> None:
    """Complete the running sums: below the last similarity comes the floor."""
    step = load(now, out) * load(now, out + WIDE)
    state = sums
    for s in range(sums, out, WIDE):
        state -= WIDE
        store(now, s, load(now, s) + step * load(now, state))


def _series(builder: Any, sums: list[Any], minus_odds: Any) -> Any:
    """sum_r (-o)^r S(r)."""
    value = sums[-1]
    for part in reversed(sums[:-1]):
        value = fused(builder, minus_odds, value, part)
    return value


@intrinsic
def advance(
    typing: Any, states: Any, terms: Any, now: Any, along: Any, q: Any, first: Any, n: Any
) -> Any:
    """Walk over `n` positions; running sums take the place of q, odds that of x.

    Args:
        typing: numba's.
        states: a tuple as long as K.
        terms: a tuple as long as the series.
        now: flat array of states, taken forward in place.
        along: x of the tile, position by position.
        q: similarities above the floor, position by position.
        first: where in `along` and `q` the first position begins.
        n: how many positions.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        k, count = len(signature.args[0]), len(signature.args[1])
        kind = signature.args[2]
        width = lanes_together(kind.dtype.bitwidth, k + count)
        now, along, q = (Buffer(context, builder, kind, arg, width) for arg in args[2:5])
        first, n = args[5:]
        one = now.all(ir.Constant(now.vector.element, 1.0))
        with cgutils.for_range(builder, number(LANES // width)) as turns:
            lane = builder.mul(turns.index, number(width))
            held = [
                cgutils.alloca_once_value(builder, now.load(j * LANES, lane))
                for j in range(k + count + 3)
            ]
            with cgutils.for_range(builder, n) as loop:
                here = builder.add(first, builder.mul(loop.index, number(LANES)))
                x, similarity = along.load(here, lane), q.load(here, lane)
                *both, left_out, before, value = [builder.load(state) for state in held]
                e, sums = both[:k], both[k:]
                step = builder.fmul(builder.fsub(before, similarity), left_out)
                for r in range(count):
                    sums[r] = fused(builder, step, e[k - 1 - r], sums[r])
                    builder.store(sums[r], held[k + r])
                gain, chance = builder.fmul(similarity, x), builder.fmul(left_out, e[k - 1])
                builder.store(fused(builder, gain, chance, value), held[-1])
                builder.store(similarity, held[-2])
                out = builder.fsub(one, x)
                builder.store(builder.fmul(left_out, out), held[-3])
                if k == 1:
                    q.store(sums[0], here, lane)
                else:
                    odds = builder.fdiv(x, out)
                    along.store(odds, here, lane)
                    q.store(_series(builder, sums, builder.fneg(odds)), here, lane)
                    for j in range(1, k):
                        builder.store(fused(builder, odds, e[j - 1], e[j]), held[j])
            for j, state in enumerate(held):
                now.store(builder.load(state), j * LANES, lane)
        return context.get_dummy_value()

    u = types.uint64
    return types.void(states, terms, now, along, q, u, u), generate


@intrinsic
def settle(
    typing: Any,
    states: Any,
    terms: Any,
    now: Any,
    along: Any,
    q: Any,
    first: Any,
    room: Any,
    n: Any,
) -> Any:
    """Slopes, each times 1 - x, of `n` positions (a multiple of eight) in rows `CLOSE` apart.

    Args:
        typing: numba's.
        states: a tuple as long as K.
        terms: a tuple as long as the series.
        now: the states at the end, with totals.
        along: odds, position by position.
        q: running sums, position by position.
        first: where in `along` and `q` the first position begins.
        room: flat array to write to.
        n: how many positions.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        k, count = len(signature.args[0]), len(signature.args[1])
        kind = signature.args[2]
        side = REGISTER_BITS // kind.dtype.bitwidth
        now, along, q, room = (
            Buffer(context, builder, kind, args[place], side) for place in (2, 3, 4, 6)
        )
        first, n = args[5], args[7]
        for lane in range(0, LANES, side):
            totals = [now.load((k + r) * LANES, lane) for r in range(count)]
            with cgutils.for_range(builder, builder.udiv(n, number(side))) as loop:
                i = builder.mul(loop.index, number(side))
                block = []
                for step in range(side):
                    at = builder.mul(builder.add(i, number(step)), number(LANES))
                    total = totals[0]
                    if count > 1:
                        total = _series(builder, totals, builder.fneg(along.load(first, at, lane)))
                    block.append(builder.fsub(total, q.load(first, at, lane)))
                for row, slopes in enumerate(transposed(builder, block), start=lane):
                    room.store(slopes, i, row * int(CLOSE))
        return context.get_dummy_value()

    u = types.uint64
    return types.void(states, terms, now, along, q, u, room, u), generate
