"""The numba kernel of the gradient: sixteen novel classes side by side through the W form.

A tile of `LANES` rows is walked position by position, one row a lane; the recursions themselves are
in `registers.py`.

Kernels are compiled for a number of states, told to them as the length of a tuple so that numba's
cache on disk serves each. Indices are unsigned, which spares a test for negative ones.
"""

from __future__ import annotations

import threading

import numpy as np

from fsl_basesel.compiled import kernel
from fsl_basesel.multilinear.registers import backward, forward, lift_blocks, skim
from fsl_basesel.multilinear.simd import LANES, load, prefetch, store

LINE = 64  # bytes of a cache line
STRIP = 16  # positions between two looks at how much probability is left
CHUNK_BYTES = 128 << 10  # of records: within the L2 cache, two threads of a core together
AHEAD = 128  # positions of the next tile to ask memory for
CLOSE = np.uint64(
    128
)  # positions of a tile that x or slopes are moved for at once, in the L1 cache

ZERO, ONE, TWO, THREE, FOUR = (np.uint64(number) for number in range(5))
WIDE, EIGHT = np.uint64(LANES), np.uint64(8)

_kept = threading.local()

States = tuple[int, ...]  # as many entries as the largest K the kernel serves
Scratch = tuple[np.ndarray, ...]


def scratch_for(states: States, length: int, dtype: np.dtype) -> Scratch:
    """What a thread needs to walk rows of `length`; it keeps what it used last.

    Records of a chunk, its slopes, p at the start of every chunk, x along the rows of a tile, and p
    or W where the walk stands: at |B| = 21000 and K = 5 some two megabytes in float32.
    """
    key = (len(states), length, dtype)
    if getattr(_kept, "key", None) != key:
        k = len(states)
        chunk = max(STRIP, CHUNK_BYTES // (k * LANES * dtype.itemsize) // 8 * 8)
        chunk = min(chunk, max(8, -(-length // 8) * 8))  # whole blocks of eight positions
        sizes = (chunk * k, chunk, (length // chunk + 1) * (k + 1), length, k + 1)
        _kept.arrays = tuple(_aligned(size * LANES, dtype) for size in sizes)
        _kept.key = key
    return _kept.arrays


def _aligned(size: int, dtype: np.dtype) -> np.ndarray:
    """An array that begins on a cache line: vectors that straddle two are slow."""
    room = np.empty(size + LINE // dtype.itemsize, dtype)
    skip = -room.ctypes.data % LINE // dtype.itemsize
    return room[skip : skip + size]


@kernel
def copy(source: np.ndarray, start: int, target: np.ndarray, to: int, size: int) -> None:
    """Copy whole vectors."""
    for s in range(ZERO, size, WIDE):
        store(target, to + s, load(source, start + s))


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


@kernel
def gather(
    x: np.ndarray,
    order: np.ndarray,
    first: int,
    size: int,
    live: int,
    along: np.ndarray,
    to: int,
    n: np.uint64,
) -> None:
    """x along `n` entries of each row, from entry `first` of the first row on, into its lane."""
    if live < WIDE:
        for i in range(n):
            for lane in range(live):
                along[to + i * WIDE + lane] = x[order[first + lane * size + i]]
            for lane in range(live, WIDE):  # lanes without a row finish at once
                along[to + i * WIDE + lane] = 1
        return
    for begin in range(ZERO, n, CLOSE):
        for lane in range(ZERO, WIDE, FOUR):  # four rows at a time: fewer lines per entry written
            a = first + lane * size
            b, c, d = a + size, a + TWO * size, a + THREE * size
            for i in range(begin, min(begin + CLOSE, n)):
                here = to + i * WIDE + lane
                along[here] = x[order[a + i]]
                along[here + ONE] = x[order[b + i]]
                along[here + TWO] = x[order[c + i]]
                along[here + THREE] = x[order[d + i]]


@kernel
def scatter(
    gradient: np.ndarray,
    order: np.ndarray,
    first: int,
    size: int,
    live: int,
    slopes: np.ndarray,
    n: np.uint64,
) -> None:
    """Slopes of `n` positions to the candidates they belong to."""
    for begin in range(ZERO, n, CLOSE):
        for lane in range(live):
            row = first + lane * size
            for i in range(begin, min(begin + CLOSE, n)):
                gradient[order[row + i]] += slopes[i * WIDE + lane]


@kernel
def lift(
    values: np.ndarray, first: int, size: int, live: int, floor: float, q: np.ndarray, n: int
) -> None:
    """Similarities above the floor along `n` entries of each row into its lane."""
    whole = ZERO
    if live == WIDE:
        whole = n // EIGHT * EIGHT
        lift_blocks(values, first, size, floor, q, whole)
    for lane in range(live):
        for i in range(whole, n):
            q[i * WIDE + lane] = values[first + lane * size + i] - floor


@kernel
def ask(array: np.ndarray, first: int, length: int, rows: int, n: int) -> None:
    """Prefetch `n` entries of each of `rows` rows, beginning at entry `first` of a flat array."""
    per_line = np.uint64(LINE // array.itemsize)
    for row in range(rows):
        for i in range(ZERO, n, per_line):
            prefetch(array, first + row * length + i)


@kernel
def walk(
    values: np.ndarray,
    order: np.ndarray,
    length: int,
    floor: float,
    points: np.ndarray,
    states: States,
    k: int,
    epsilon: float,
    start: int,
    stop: int,
    gradient: np.ndarray,
    sums: np.ndarray,
    scratch: Scratch,
) -> float:
    """Add the slopes of rows start..stop to `gradient` and their F_n to `sums`, for every point.

    A kernel for `len(states)` serves every smaller K exactly: the walk begins in the state that
    leaves K more to go.

    Args:
        values: flat, rows of `length` entries, like `order`.
        order: columns of the values.
        length: entries of a row.
        floor: what a missing entry counts as, in the type of the points.
        points: `[S, |B|]` probabilities.
        states: a tuple of any content as long as the largest K served.
        k: how many similarities count.
        epsilon: probability at which a row is done.
        start: first row.
        stop: row behind the last.
        gradient: `[S, |B|]` float64, added to.
        sums: `[S]` float64, added to.
        scratch: see `scratch_for`.

    Returns:
        The largest probability, over rows and points, of having at most K entries after the last
        position looked at: the error made by stopping is below it times the range of f.
    """
    size, end = np.uint64(length), np.uint64(stop)
    left, reach = 0.0, ZERO
    for row in range(np.uint64(start), end, WIDE):
        live = min(WIDE, end - row)
        if row + WIDE < end:  # ask memory for as much of the next tile as the last one needed
            ask(order, (row + WIDE) * size, size, WIDE, min(np.uint64(AHEAD), reach))
            ask(values, (row + WIDE) * size, size, WIDE, min(np.uint64(AHEAD), reach))
        for s in range(len(points)):
            total, rest, reach = walk_tile(
                values,
                order,
                row * size,
                size,
                live,
                floor,
                points[s],
                states,
                k,
                epsilon,
                gradient[s],
                scratch,
            )
            sums[s] += total
            left = max(left, rest)
    return left


@kernel
def walk_tile(
    values: np.ndarray,
    order: np.ndarray,
    base: int,
    size: int,
    live: int,
    floor: float,
    x: np.ndarray,
    states: States,
    k: int,
    epsilon: float,
    gradient: np.ndarray,
    scratch: Scratch,
) -> tuple[float, float, np.uint64]:
    """The sum of F_n over `live` rows from entry `base` on, what is left, and where the walk ended.

    Records are kept for one chunk of positions. A walk that goes on behind the first chunk notes p
    where each chunk begins, and goes through the chunk again on the way back: records stay in the
    L2 cache and scratch does not grow with K times |B|.
    """
    records, slopes, marks, along, now = scratch
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
        gather(x, order, base + at + n, size, live, along, place, todo)
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
        lift(values, base + at, size, live, floor, slopes, n)
        backward(states, now, records, along, at * WIDE, slopes, n)
        scatter(gradient, order, base + at, size, live, slopes, n)
        n = min(at, chunk)
        at -= n
        mark -= width
    total = 0.0
    for lane in range(live):
        for s in range(first + lane, last, WIDE):
            total += now[s]
    return total, left, reach


@kernel
def finish(
    total: np.ndarray,
    slopes: np.ndarray,
    scale: float,
    floor: float,
    value: np.ndarray,
    gradient: np.ndarray,
) -> None:
    """Sums of rows to means, rounded once: a call of its own, for numpy would need six."""
    for s in range(len(total)):
        value[s] = total[s] / scale + floor
        for u in range(slopes.shape[1]):
            gradient[s, u] = slopes[s, u] / scale
