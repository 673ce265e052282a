"""A tile walked down and back up: the W form, right at every x.

Down goes p_i(j), the probability that j of the first i entries are in; back up comes W_i(j), by how
much less the entries behind i are expected to add if not j but j + 1 of the first i are in. A slope
is the sum over j < K of p_{i-1}(j) (q_i - W_i(j)). The recursions themselves are in `registers.py`.
"""

from __future__ import annotations

import numpy as np

from fsl_basesel.compiled import kernel
from fsl_basesel.multilinear.llvm import LANES
from fsl_basesel.multilinear.moves import ROOM, TWO, WIDE, ZERO, ask, copy, gather, lift, scatter
from fsl_basesel.multilinear.registers import backward, forward, skim
from fsl_basesel.multilinear.scratch import Scratch, kept
from fsl_basesel.multilinear.simd import load, store

STRIP = 16  # positions between two looks at how much probability is left
CHUNK_BYTES = 128 << 10  # of records: within the L2 cache, two threads of a core together

States = tuple[int, ...]  # as many entries as the largest K the kernel serves


def scratch_for(states: States, length: int, dtype: np.dtype) -> Scratch:
    """What a thread needs to walk rows of `length`.

    Records of a chunk, its slopes, p at the start of every chunk, x along the rows of a tile, p or
    W where the walk stands, and room for slopes on their way out: at |B| = 21000 and K = 5 some two
    megabytes in float32.
    """
    k = len(states)

    def sizes() -> list[int]:
        chunk = max(STRIP, CHUNK_BYTES // (k * LANES * dtype.itemsize) // 8 * 8)
        chunk = min(chunk, max(8, -(-length // 8) * 8))  # whole blocks of eight positions
        tiles = (chunk * k, chunk, (length // chunk + 1) * (k + 1), length, k + 1)
        return [*(LANES * tile for tile in tiles), ROOM]

    return kept("both_ways", (k, length), dtype, sizes)


@kernel
def largest_mass(states: np.ndarray, live: int, room: np.ndarray) -> float:
    """The largest probability, over the lanes with a row, of having at most K entries."""
    mass = load(states, ZERO)
    for j in range(WIDE, np.uint64(len(states)), WIDE):
        mass = mass + load(states, j)
    store(room, ZERO, mass)
    worst = 0.0
    for lane in range(live):
        worst = max(worst, room[lane])
    return worst


def tile_both_ways(
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
    """See `walk.walk_tile`; `terms` and `strip` are of no use here.

    Records are kept for one chunk of positions. A walk that goes on behind the first chunk notes p
    where each chunk begins, and goes through the chunk again on the way back: records stay in the
    L2 cache and scratch does not grow with K times |B|.
    """
    records, slopes, marks, along, now, room = scratch
    last = np.uint64(len(states)) * WIDE
    width = last + WIDE
    chunk = np.uint64(len(slopes)) // WIDE
    first = last - np.uint64(k) * WIDE
    for s in range(width):
        now[s] = 0
    for s in range(first, first + WIDE):
        now[s] = 1
    copy(now, ZERO, marks, ZERO, width)
    at, n, mark = ZERO, ZERO, ZERO  # where the chunk starts, how much of it is done, its states
    left = 1.0
    while at + n < size and left >= epsilon:
        if n == chunk:
            at += n
            n = ZERO
            mark += width
            copy(now, ZERO, marks, mark, width)
            ask(order, base + at + chunk, size, live, chunk)
        todo = min(max(np.uint64(STRIP), (at + n) >> TWO), min(chunk, size - at) - n)
        place = (at + n) * WIDE
        gather(x, order, values, base + at + n, size, live, 1, along, place, todo)
        if at == ZERO:
            forward(states, now, ZERO, records, n, along, place, todo)
        else:
            skim(states, now, records, along, place, todo)
        n += todo
        left = largest_mass(now, live, slopes)
    reach = at + n
    for s in range(width):
        now[s] = 0  # W behind the last position
    while n > ZERO:
        if reach > chunk:
            forward(states, marks, mark, records, ZERO, along, at * WIDE, n)
        if at > ZERO:
            ask(order, base + at - chunk, size, live, chunk)
            ask(values, base + at - chunk, size, live, chunk)
        lift(values, base + at, size, live, floor, slopes, ZERO, n)
        backward(states, now, records, along, at * WIDE, slopes, n)
        scatter(gradient, order, base + at, size, live, slopes, room, n)
        n = min(at, chunk)
        at -= n
        mark -= width
    total = 0.0
    for lane in range(live):
        for s in range(first + lane, last, WIDE):
            total += now[s]
    return total, left, reach
