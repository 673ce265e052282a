"""The numba kernel of the gradient: `LANES` novel classes side by side down their sorted rows.

A lane is one row. With x_i the probability and q_i the similarity above the floor of the i-th
candidate of the row (`reference.py` derives this):

    forward    p_i(j) = p_{i-1}(j) + x_i (p_{i-1}(j-1) - p_{i-1}(j))    P(j of the first i are in)
    backward   W_{i-1}(j) = W_i(j) + x_i (W_i(j+1) - W_i(j)),  W_i(K) = q_i
    slope      dF_n/dx_i = sum over j < K of p_{i-1}(j) (q_i - W_i(j)),  F_n = sum over j of W_0(j)

The walk down ends where every row has more than K candidates in almost surely: what follows has no
influence. K states are not enough for this test, because a candidate taken out of an integral x
still leaves K of the others.

States p are kept for one chunk of positions. A longer walk notes them where each chunk begins and
repeats the chunk on the way back, so that they stay in the cache, whatever K and |B| are.
"""

from __future__ import annotations

import numpy as np

from fsl_basesel.compiled import inlined, kernel
from fsl_basesel.multilinear.vectors import LANES, load, store

STRIP = 8  # positions between two looks at how much probability is left
CHUNK = 64  # positions whose states are kept


def scratch(length: int, k: int) -> tuple[np.ndarray, ...]:
    """What `walk` works in: p of a chunk, p where chunks begin, W, and x and q along the rows."""
    states = (k + 1) * LANES
    return (
        np.empty((CHUNK + 1) * states),
        np.empty((length // CHUNK + 2) * states),
        np.empty(k * LANES),
        np.zeros(length * LANES),
        np.zeros(length * LANES),
    )


@kernel
def walk(
    values: np.ndarray,
    order: np.ndarray,
    floor: float,
    points: np.ndarray,
    k: int,
    epsilon: float,
    start: int,
    stop: int,
    gradient: np.ndarray,
    sums: np.ndarray,
    p: np.ndarray,
    marks: np.ndarray,
    w: np.ndarray,
    x: np.ndarray,
    q: np.ndarray,
) -> None:
    """Add the slopes of rows start..stop to `gradient` and their F_n to `sums`, for every point.

    `values` and `order` are those of `SortedRows`, `points` and `gradient` are `[S, |B|]`, `sums`
    is `[S]`; `p` and what follows is `scratch`. A row is done where at most K entries are in with a
    probability below `epsilon`; the error made by stopping there is below it times the range of f.
    """
    length, width = order.shape[1], (k + 1) * LANES
    for first in range(start, stop, LANES):
        rows = min(LANES, stop - first)
        for s in range(len(points)):
            point, slopes = points[s], gradient[s]
            for j in range(width):
                p[j] = marks[j] = 1.0 if j < LANES else 0.0
            at, n = 0, 0  # where the chunk begins, how much of it is done
            while at + n < length:
                if n == CHUNK:
                    at += CHUNK
                    n = 0
                    mark = at // CHUNK * width
                    for j in range(0, width, LANES):
                        state = load(p, CHUNK * width + j)
                        store(marks, mark + j, state)
                        store(p, j, state)
                end = min(n + STRIP, min(CHUNK, length - at))
                for lane in range(rows):  # q too: on the way back it would come too late
                    columns = order[first + lane, at + n : at + end]
                    similarities = values[first + lane, at + n : at + end]
                    chances, above = x[(at + n) * LANES + lane :], q[(at + n) * LANES + lane :]
                    for i in range(len(columns)):
                        chances[i * LANES] = point[columns[i]]
                        above[i * LANES] = similarities[i] - floor
                forward(p, x, at, n, end, width)
                n = end
                if all_done(p, n * width, width, rows, epsilon):
                    break
            w[:] = 0.0
            while True:
                backward(p, w, x, q, at, n, width)
                for lane in range(rows):
                    columns, found = order[first + lane, at : at + n], q[at * LANES + lane :]
                    for i in range(len(columns)):
                        slopes[columns[i]] += found[i * LANES]
                if at == 0:
                    break
                at -= CHUNK
                n = CHUNK
                mark = at // CHUNK * width
                for j in range(0, width, LANES):
                    store(p, j, load(marks, mark + j))
                forward(p, x, at, at - at, n, width)
            for lane in range(rows):
                for j in range(lane, k * LANES, LANES):
                    sums[s] += w[j]


@inlined
def forward(p: np.ndarray, x: np.ndarray, at: int, begin: int, end: int, width: int) -> None:
    """p of positions begin..end of the chunk that begins at `at`, each from the one before."""
    for i in range(begin, end):
        here, then = i * width, (i + 1) * width
        chance = load(x, (at + i) * LANES)
        below = load(p, here)
        store(p, then, below - chance * below)
        for j in range(LANES, width, LANES):
            state = load(p, here + j)
            store(p, then + j, state + chance * (below - state))
            below = state


@inlined
def backward(
    p: np.ndarray, w: np.ndarray, x: np.ndarray, q: np.ndarray, at: int, n: int, width: int
) -> None:
    """W back over the `n` positions of a chunk; the slopes take the place of q."""
    for i in range(n - 1, -1, -1):
        chance, value = load(x, (at + i) * LANES), load(q, (at + i) * LANES)
        here, last = i * width, width - 2 * LANES
        own = load(w, 0)
        slope = load(p, here) * (value - own)
        for j in range(0, last, LANES):
            above = load(w, j + LANES)
            store(w, j, own + chance * (above - own))
            own = above
            slope = slope + load(p, here + j + LANES) * (value - own)
        store(w, last, own + chance * (value - own))
        store(q, (at + i) * LANES, slope)


@inlined
def all_done(p: np.ndarray, at: int, width: int, rows: int, epsilon: float) -> bool:
    """Whether every row has more than K entries but for a probability below epsilon."""
    done = True
    lane = 0
    while done and lane < rows:
        left = 0.0
        for j in range(lane, width, LANES):
            left += p[at + j]
        done = left < epsilon
        lane += 1
    return done
