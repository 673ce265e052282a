"""The numba kernel of the gradient: sixteen novel classes side by side through the W form.

A record of the work buffer is one sorted position of a tile of `LANES` rows: the states
p_{i-1}(0..K), then x_i, then q_i, each one vector wide. On the way back W_{i-1} takes the place of
p_{i-1}, and the slope of position i that of q_i.

Kernels are compiled for a number of states, told to them as the length of a tuple so that numba's
cache on disk serves each. Indices are unsigned, which spares a test for negative ones.
"""

from __future__ import annotations

import threading

import numpy as np

from fsl_basesel.compiled import kernel
from fsl_basesel.multilinear.simd import LANES, load, prefetch, store

LINE = 64  # bytes of a cache line
STRIP = 16  # positions between two looks at how much probability is left
CHUNK_BYTES = 56 << 10  # of records: well inside the L2 cache
AHEAD = 128  # positions of the next tile to ask memory for

ZERO, ONE, WIDE = np.uint64(0), np.uint64(1), np.uint64(LANES)

_kept = threading.local()

States = tuple[int, ...]  # as many entries as the largest K the kernel serves


def scratch_for(states: States, length: int, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """Records of a chunk, states at the start of every chunk, and x along rows of `length`.

    A thread keeps what it used last: at |B| = 21000 and K = 5 some two megabytes in float32.
    """
    key = (len(states), length, dtype)
    if getattr(_kept, "key", None) != key:
        width = (len(states) + 1) * LANES
        record = int(record_size(states))
        chunk = max(STRIP, CHUNK_BYTES // (record * dtype.itemsize))
        _kept.arrays = (
            _aligned((chunk + 1) * record, dtype),
            _aligned((length // chunk + 2) * width, dtype),
            _aligned(length * LANES, dtype),
        )
        _kept.key = key
    return _kept.arrays


def _aligned(size: int, dtype: np.dtype) -> np.ndarray:
    """An array that begins on a cache line: vectors that straddle two are slow."""
    room = np.empty(size + LINE // dtype.itemsize, dtype)
    skip = -room.ctypes.data % LINE // dtype.itemsize
    return room[skip : skip + size]


@kernel
def record_size(states: States) -> np.uint64:
    """Room of a record: an odd number of vectors, so that records do not fall on one cache set."""
    return np.uint64((len(states) + 3) | 1) * WIDE


@kernel
def forward(work: np.ndarray, states: States, begin: int, end: int) -> None:
    """p_i(j) = p_{i-1}(j) + x_i (p_{i-1}(j-1) - p_{i-1}(j)) for positions begin..end."""
    x_at = np.uint64(len(states) + 1) * WIDE
    record = record_size(states)
    for i in range(begin, end):
        here, then = i * record, i * record + record
        x = load(work, here + x_at)
        below = load(work, here)
        store(work, then, below - x * below)
        for j in range(WIDE, x_at, WIDE):
            state = load(work, here + j)
            store(work, then + j, state + x * (below - state))
            below = state


@kernel
def backward(work: np.ndarray, states: States, n: int) -> None:
    """W_{i-1}(j) = W_i(j) + x_i (W_i(j+1) - W_i(j)) with W(K) = q_i, and the slopes, n..0."""
    end = np.uint64(len(states)) * WIDE
    x_at, q_at = end + WIDE, end + WIDE + WIDE
    record = record_size(states)
    for i in range(n):
        here = (n - ONE - i) * record
        then = here + record
        x, q, w = load(work, here + x_at), load(work, here + q_at), load(work, then)
        slope = load(work, here) * (q - w)
        for j in range(WIDE, end, WIDE):
            above = load(work, then + j)
            store(work, here + j - WIDE, w + x * (above - w))
            w = above
            slope = slope + load(work, here + j) * (q - w)
        store(work, here + end - WIDE, w + x * (q - w))
        store(work, here + q_at, slope)


@kernel
def largest_mass(work: np.ndarray, states: States, at: int, live: int) -> float:
    """The largest probability, over the lanes with a row, of having at most K entries."""
    worst = 0.0
    for lane in range(live):
        mass = 0.0
        for j in range(ZERO, np.uint64(len(states) + 1) * WIDE, WIDE):
            mass += work[at + j + lane]
        worst = max(worst, mass)
    return worst


@kernel
def copy(source: np.ndarray, start: int, target: np.ndarray, to: int, size: int) -> None:
    """Copy whole vectors."""
    for s in range(ZERO, size, WIDE):
        store(target, to + s, load(source, start + s))


@kernel
def gather(
    x: np.ndarray, order: np.ndarray, first: int, work: np.ndarray, to: int, step: int, n: int
) -> None:
    """x along one row into one lane."""
    for i in range(n):
        work[to + i * step] = x[order[first + i]]


@kernel
def scatter(
    gradient: np.ndarray,
    order: np.ndarray,
    first: int,
    work: np.ndarray,
    start: int,
    step: int,
    n: int,
) -> None:
    """Slopes of one lane to the candidates they belong to."""
    for i in range(n):
        gradient[order[first + i]] += work[start + i * step]


@kernel
def lift(
    values: np.ndarray, first: int, floor: float, work: np.ndarray, to: int, step: int, n: int
) -> None:
    """Similarities above the floor along one row into one lane."""
    for i in range(n):
        work[to + i * step] = values[first + i] - floor


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
    scratch: tuple[np.ndarray, ...],
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
    scratch: tuple[np.ndarray, ...],
) -> tuple[float, float, np.uint64]:
    """The sum of F_n over `live` rows from entry `base` on, what is left, and where the walk ended.

    States are kept for one chunk of positions; a longer walk notes them where each chunk begins and
    replays the chunk on the way back, so the records stay in the L2 cache and scratch does not grow
    with K times |B|.
    """
    work, marks, along = scratch
    last = np.uint64(len(states)) * WIDE
    width = last + WIDE
    x_at, q_at, record = width, width + WIDE, record_size(states)
    chunk = np.uint64(len(work)) // record - ONE
    first = last - np.uint64(k) * WIDE
    for s in range(width):
        marks[s] = 0
    for s in range(first, first + WIDE):
        marks[s] = 1
    copy(marks, ZERO, work, ZERO, width)
    for lane in range(live, WIDE):  # lanes without a row finish at once
        for i in range(chunk):
            work[i * record + x_at + lane] = 1
    at, n, mark = ZERO, ZERO, ZERO  # where the chunk starts, how much of it is done, its states
    left = 1.0
    while at + n < size and left >= epsilon:
        if n == chunk:
            mark += width
            copy(work, n * record, marks, mark, width)
            copy(work, n * record, work, ZERO, width)
            at += n
            n = ZERO
            ask(order, base + at + chunk, size, live, chunk)
        todo = min(max(np.uint64(STRIP), (at + n) >> np.uint64(2)), min(chunk, size - at) - n)
        place = n * record + x_at
        for lane in range(live):
            gather(x, order, base + lane * size + at + n, work, place + lane, record, todo)
        for i in range(todo):
            store(along, (at + n + i) * WIDE, load(work, place + i * record))
        forward(work, states, n, n + todo)
        n += todo
        left = largest_mass(work, states, n * record, live)
    reach = at + n
    for s in range(width):
        work[n * record + s] = 0
    while True:
        if at > ZERO:
            ask(order, base + at - chunk, size, live, chunk)
            ask(values, base + at - chunk, size, live, chunk)
        for lane in range(live):
            lift(values, base + lane * size + at, floor, work, q_at + lane, record, n)
        backward(work, states, n)
        for lane in range(live):
            scatter(gradient, order, base + lane * size + at, work, q_at + lane, record, n)
        if at == ZERO:
            break
        at -= chunk
        n = chunk
        copy(work, ZERO, marks, mark, width)
        copy(marks, mark - width, work, ZERO, width)
        for i in range(n):
            store(work, i * record + x_at, load(along, (at + i) * WIDE))
        forward(work, states, ZERO, n)
        copy(marks, mark, work, n * record, width)
        mark -= width
    total = 0.0
    for lane in range(live):
        for s in range(first + lane, last, WIDE):
            total += work[s]
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
