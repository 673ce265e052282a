"""Slopes of single candidates, from the live prefixes of the rows they stand in.

The live prefix of a novel class is the head of its sorted row, down to where K of the candidates
before are in almost surely; what follows has no influence. A list of all live prefixes without
their zeros is short, and the slope of one candidate needs only the rows whose list it is in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsl_basesel.compiled import kernel
from fsl_basesel.multilinear.order import order_dtype
from fsl_basesel.multilinear.simd import LANES, load, store

EPSILON = 1e-13  # probability of fewer than K entries below which the rest of a row is ignored
SLACK = 1e-20  # the same when prefixes are listed: they must still reach after many exchanges

ZERO, ONE, WIDE = np.uint64(0), np.uint64(1), np.uint64(LANES)


class Prefixes(NamedTuple):
    """Live prefixes without their zeros, by row and by column; 10 bytes an entry in float32.

    Attributes:
        starts: `[|N| + 1]` where each row's entries begin in `columns` and `values`.
        columns: candidate of each entry.
        values: its similarity.
        whole: `[|N|]` whether the row's list has every candidate with x > 0.
        column_starts: `[|B| + 1]` where each candidate's entries begin in `places` and `rows`.
        places: place of each entry in its row's list.
        rows: its row, ascending for each candidate.
        floor: what similarities are counted from.
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    whole: np.ndarray
    column_starts: np.ndarray
    places: np.ndarray
    rows: np.ndarray
    floor: float


class Room(NamedTuple):
    """Scratch for slopes.

    Attributes:
        states: one vector a state.
        x: probabilities along the lists of a tile of rows.
        q: values along them.
        todo: entries to compute.
    """

    states: np.ndarray
    x: np.ndarray
    q: np.ndarray
    todo: np.ndarray

    @classmethod
    def of(cls, lists: Prefixes, k: int) -> Room:
        """Scratch for these lists."""
        longest = int(np.diff(lists.starts).max(initial=0)) * LANES
        widest = int(np.diff(lists.column_starts).max(initial=0))
        return cls(
            np.empty(k * LANES), np.empty(longest), np.empty(longest), np.empty(widest, np.int64)
        )


def live_prefixes(
    values: np.ndarray, order: np.ndarray, floor: float, x: np.ndarray, k: int, slack: float
) -> Prefixes:
    """The live prefix of every row as a list of its columns with x > 0.

    Args:
        values: `[|N|, L]` sorted similarities.
        order: `[|N|, L]` their columns.
        floor: what a missing entry counts as.
        x: `[|B|]` probabilities.
        k: how many similarities count.
        slack: probability of fewer than k entries at which a list ends.
    """
    counts, whole = live_lengths(order, x, k, slack)
    starts = np.concatenate(([0], np.cumsum(counts)))
    columns, similarities = np.empty(starts[-1], order.dtype), np.empty(starts[-1], values.dtype)
    column_counts = np.zeros(len(x), np.int64)
    _fill(values, order, x, starts, columns, similarities, column_counts)
    column_starts = np.concatenate(([0], np.cumsum(column_counts)))
    places = np.empty(starts[-1], order.dtype)
    rows = np.empty(starts[-1], order_dtype(len(order)))
    _by_column(starts, columns, column_starts[:-1].copy(), places, rows)
    return Prefixes(starts, columns, similarities, whole, column_starts, places, rows, float(floor))


@kernel
def live_lengths(
    order: np.ndarray, x: np.ndarray, k: int, slack: float
) -> tuple[np.ndarray, np.ndarray]:
    """How many columns with x > 0 the live prefix of each row has, and whether it has all."""
    counts = np.zeros(order.shape[0], np.int64)
    whole = np.zeros(order.shape[0], np.bool_)
    states = np.empty(k)
    for row in range(order.shape[0]):
        states[:] = 0.0
        states[0] = 1.0
        whole[row] = True
        for i in range(order.shape[1]):
            probability = x[order[row, i]]
            if probability == 0.0:
                continue
            counts[row] += 1
            left, below = 0.0, 0.0
            for j in range(k):
                here = states[j]
                states[j] = here + probability * (below - here)
                left += states[j]
                below = here
            if left < slack:
                whole[row] = False
                break
    return counts, whole


@kernel
def _fill(
    values: np.ndarray,
    order: np.ndarray,
    x: np.ndarray,
    starts: np.ndarray,
    columns: np.ndarray,
    similarities: np.ndarray,
    column_counts: np.ndarray,
) -> None:
    for row in range(order.shape[0]):
        at, i = starts[row], 0
        while at < starts[row + 1]:
            if x[order[row, i]] > 0.0:
                columns[at] = order[row, i]
                similarities[at] = values[row, i]
                column_counts[order[row, i]] += 1
                at += 1
            i += 1


@kernel
def _by_column(
    starts: np.ndarray, columns: np.ndarray, to: np.ndarray, places: np.ndarray, rows: np.ndarray
) -> None:
    for row in range(len(starts) - 1):
        for entry in range(starts[row], starts[row + 1]):
            u = columns[entry]
            places[to[u]] = entry - starts[row]
            rows[to[u]] = row
            to[u] += 1


@kernel
def refresh(
    x: np.ndarray, k: int, u: int, other: int, lists: Prefixes, room: Room, slopes: np.ndarray
) -> bool:
    """Recompute the slopes of candidate `u` in the rows where it meets `other` (all if negative).

    `slopes[i]` belongs to the i-th row of `u`. False if a list no longer reaches far enough.
    """
    begin, end = lists.column_starts[u], lists.column_starts[u + 1]
    n = 0
    if other < 0:
        for i in range(begin, end):
            room.todo[i - begin] = i
        n = end - begin
    else:
        at, stop = lists.column_starts[other], lists.column_starts[other + 1]
        for i in range(begin, end):
            while at < stop and lists.rows[at] < lists.rows[i]:
                at += 1
            if at < stop and lists.rows[at] == lists.rows[i]:
                room.todo[n] = i
                n += 1
    for first in range(0, n, LANES):
        if not _tile(x, k, lists, room, room.todo[first : min(first + LANES, n)], begin, slopes):
            return False
    return True


@kernel
def _tile(
    x: np.ndarray,
    k: int,
    lists: Prefixes,
    room: Room,
    which: np.ndarray,
    begin: int,
    slopes: np.ndarray,
) -> bool:
    """Slopes of up to `LANES` entries side by side, by one sweep from the end of their lists.

    Behind the entry the sweep carries W(j), what one more entry before is worth in state j. At the
    entry it becomes D(j) = q - W(j), the slope if j entries come before; ahead of it D follows the
    same recursion with D(K) = 0, and D(0) is the slope.
    """
    size = np.uint64(k) * WIDE
    longest = 0
    for lane in range(len(which)):
        row = lists.rows[which[lane]]
        longest = max(longest, lists.starts[row + 1] - lists.starts[row])
    deep = np.uint64(longest)
    for lane in range(LANES):
        to = np.uint64(lane)
        n = ZERO
        if lane < len(which):
            row, before = lists.rows[which[lane]], np.uint64(lists.places[which[lane]])
            start = np.uint64(lists.starts[row])
            n = np.uint64(lists.starts[row + 1]) - start
            for i in range(n):
                room.x[i * WIDE + to] = x[lists.columns[start + i]]
            for i in range(before):
                room.q[i * WIDE + to] = 0.0
            for i in range(before, n):
                room.q[i * WIDE + to] = np.float64(lists.values[start + i]) - lists.floor
            room.x[before * WIDE + to] = 0.0
        for i in range(n, deep):
            room.x[i * WIDE + to] = 0.0
            room.q[i * WIDE + to] = 0.0
    states = room.states
    states[:] = 0.0
    states[:LANES] = 1.0
    _forward(states, room.x, size, deep)
    for lane in range(len(which)):
        if not lists.whole[lists.rows[which[lane]]]:
            left = 0.0
            for j in range(k):
                left += states[j * LANES + lane]
            if left >= EPSILON:
                return False
    states[:] = 0.0
    upper = np.int64(longest)
    while upper > 0:
        lower = np.int64(0)  # the next entry on the way down
        for lane in range(len(which)):
            place = np.int64(lists.places[which[lane]])
            if place < upper:
                lower = max(lower, place)
        _backward(states, room.x, room.q, size, np.uint64(lower), np.uint64(upper))
        for lane in range(len(which)):
            if lists.places[which[lane]] == lower:
                own = np.float64(lists.values[lists.starts[lists.rows[which[lane]]] + lower])
                for j in range(k):
                    states[j * LANES + lane] = own - lists.floor - states[j * LANES + lane]
        upper = lower
    for lane in range(len(which)):
        slopes[which[lane] - begin] = states[lane]
    return True


@kernel
def _forward(states: np.ndarray, x: np.ndarray, size: int, n: int) -> None:
    """p(j) += x (p(j-1) - p(j)) for every position."""
    for i in range(n):
        probability = load(x, i * WIDE)
        below = load(states, ZERO)
        store(states, ZERO, below - probability * below)
        for j in range(WIDE, size, WIDE):
            here = load(states, j)
            store(states, j, here + probability * (below - here))
            below = here


@kernel
def _backward(
    states: np.ndarray, x: np.ndarray, q: np.ndarray, size: int, lower: int, upper: int
) -> None:
    """W(j) += x (W(j+1) - W(j)) with W(K) = q, for positions upper to lower."""
    for i in range(upper - lower):
        place = (upper - ONE - i) * WIDE
        probability = load(x, place)
        here = load(states, ZERO)
        for j in range(WIDE, size, WIDE):
            above = load(states, j)
            store(states, j - WIDE, here + probability * (above - here))
            here = above
        store(states, size - WIDE, here + probability * (load(q, place) - here))
