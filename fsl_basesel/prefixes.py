"""Slopes of single candidates, from the live prefixes of the rows they stand in.

The live prefix of a novel class is the beginning of its sorted row, down to where K of the
candidates before are in almost surely; what follows has no influence. A list of all live prefixes
without their zeros is short, and the slope of one candidate needs only the rows whose list it is
in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsl_basesel.compiled import kernel
from fsl_basesel.multilinear.vectors import LANES, load, store
from fsl_basesel.problem import SelectionProblem

EPSILON = 1e-13  # probability of fewer than K entries below which the rest of a row is ignored
SLACK = 1e-20  # the same when prefixes are listed: they must still reach after many exchanges


class Prefixes(NamedTuple):
    """Live prefixes without their zeros, by row and by column; 16 bytes an entry in float32.

    Attributes:
        starts: `[|N| + 1]` where the entries of each row begin in `columns` and `values`.
        columns: candidate of each entry.
        values: its similarity.
        whole: `[|N|]` whether the list of the row has every candidate with x > 0.
        column_starts: `[|B| + 1]` where the entries of each candidate begin in `positions`, `rows`.
        positions: position of each entry in the list of its row.
        rows: its row, ascending for each candidate.
        floor: what similarities are counted from.
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    whole: np.ndarray
    column_starts: np.ndarray
    positions: np.ndarray
    rows: np.ndarray
    floor: float


class Scratch(NamedTuple):
    """Memory to compute slopes in.

    Attributes:
        states: one vector for each state.
        x: probabilities along the lists of a tile of rows.
        q: values along them.
        todo: entries to compute.
        slopes: `[2, rows]` slopes of the two candidates of an exchange.
        met: `[2]` the candidate whose change each of them has to hear of; all is new if negative.
    """

    states: np.ndarray
    x: np.ndarray
    q: np.ndarray
    todo: np.ndarray
    slopes: np.ndarray
    met: np.ndarray

    @classmethod
    def of(cls, lists: Prefixes, k: int) -> Scratch:
        """Scratch for these lists."""
        longest = int(np.diff(lists.starts).max(initial=0)) * LANES
        widest = int(np.diff(lists.column_starts).max(initial=0))
        return cls(
            np.empty(k * LANES),
            np.empty(longest),
            np.empty(longest),
            np.empty(widest, np.int64),
            np.empty((2, widest)),
            np.full(2, -1),
        )


def live_prefixes(problem: SelectionProblem, x: np.ndarray, slack: float) -> Prefixes:
    """The live prefix of every row, those on other processes included.

    Args:
        problem: the objective.
        x: `[|B|]` probabilities.
        slack: probability of fewer than k entries at which a list ends.
    """
    rows = problem.sorted_rows
    counts, whole = live_lengths(rows.order, x, min(problem.k, len(x)), slack)
    here = np.concatenate(([0], np.cumsum(counts)))
    columns, values = np.empty(here[-1], np.uint32), np.empty(here[-1], rows.values.dtype)
    _fill(rows.values, rows.order, x, here, columns, values)
    counts, whole, columns, values = (
        problem.rows.all(part) for part in (counts, whole, columns, values)
    )
    starts = np.concatenate(([0], np.cumsum(counts)))
    column_starts = np.zeros(len(x) + 1, np.int64)
    np.cumsum(np.bincount(columns, minlength=len(x)), out=column_starts[1:])
    positions, row_of = np.empty(len(columns), np.uint32), np.empty(len(columns), np.uint32)
    _by_column(starts, columns, column_starts[:-1].copy(), positions, row_of)
    floor = rows.floor
    return Prefixes(starts, columns, values, whole, column_starts, positions, row_of, floor)


def live_lengths(
    order: np.ndarray, x: np.ndarray, k: int, slack: float
) -> tuple[np.ndarray, np.ndarray]:
    """How many columns with x > 0 the live prefix of each row has, and whether it has all."""
    counts, whole = np.zeros(len(order), np.int64), np.ones(len(order), np.bool_)
    _count(order, x, slack, np.empty(k), counts, whole)
    return counts, whole


@kernel
def _count(
    order: np.ndarray,
    x: np.ndarray,
    slack: float,
    states: np.ndarray,
    counts: np.ndarray,
    whole: np.ndarray,
) -> None:
    """`live_lengths`; `states` is scratch for K states."""
    for row in range(order.shape[0]):
        for j in range(len(states)):
            states[j] = 1.0 if j == 0 else 0.0
        for i in range(order.shape[1]):
            probability = x[order[row, i]]
            if probability == 0.0:
                continue
            counts[row] += 1
            left, below = 0.0, 0.0
            for j in range(len(states)):
                here = states[j]
                states[j] = here + probability * (below - here)
                left += states[j]
                below = here
            if left < slack:
                whole[row] = False
                break


@kernel
def _fill(
    values: np.ndarray,
    order: np.ndarray,
    x: np.ndarray,
    starts: np.ndarray,
    columns: np.ndarray,
    similarities: np.ndarray,
) -> None:
    """Copy the entries with x > 0 of every live prefix."""
    for row in range(order.shape[0]):
        at, i = starts[row], 0
        while at < starts[row + 1]:
            if x[order[row, i]] > 0.0:
                columns[at] = order[row, i]
                similarities[at] = values[row, i]
                at += 1
            i += 1


@kernel
def _by_column(
    starts: np.ndarray, columns: np.ndarray, to: np.ndarray, positions: np.ndarray, rows: np.ndarray
) -> None:
    """Position and row of every entry, candidate by candidate."""
    for row in range(len(starts) - 1):
        for entry in range(starts[row], starts[row + 1]):
            u = columns[entry]
            positions[to[u]] = entry - starts[row]
            rows[to[u]] = row
            to[u] += 1


@kernel
def refresh(
    x: np.ndarray, k: int, u: int, other: int, lists: Prefixes, scratch: Scratch, side: int
) -> bool:
    """Recompute the slopes of candidate `u` in the rows where it meets `other` (all if negative).

    Up to `LANES` rows are done side by side, by one sweep from the end of their lists. Behind the
    entry of `u` the sweep carries W(j), what one more entry before is worth in state j. At the
    entry it becomes D(j) = q - W(j), the slope if j entries come before; ahead of it D follows the
    same recursion with D(K) = 0, and D(0) is the slope.

    `scratch.slopes[side, i]` belongs to the i-th row of `u`. False if a list no longer reaches far
    enough.
    """
    states, along, q, todo = scratch.states, scratch.x, scratch.q, scratch.todo
    begin, end, size = lists.column_starts[u], lists.column_starts[u + 1], k * LANES
    at, stop = lists.column_starts[max(0, other)], lists.column_starts[max(0, other) + 1]
    total = 0
    for i in range(begin, end):
        while other >= 0 and at < stop and lists.rows[at] < lists.rows[i]:
            at += 1
        if other < 0 or (at < stop and lists.rows[at] == lists.rows[i]):
            todo[total] = i
            total += 1
    for first in range(0, total, LANES):
        count = min(LANES, total - first)
        longest = 0
        for lane in range(count):
            row = lists.rows[todo[first + lane]]
            longest = max(longest, lists.starts[row + 1] - lists.starts[row])
        for lane in range(LANES):
            n = 0
            if lane < count:
                row, own = lists.rows[todo[first + lane]], lists.positions[todo[first + lane]]
                start = lists.starts[row]
                n = lists.starts[row + 1] - start
                for i in range(n):
                    along[i * LANES + lane] = x[lists.columns[start + i]]
                for i in range(own):
                    q[i * LANES + lane] = 0.0
                for i in range(own, n):
                    q[i * LANES + lane] = lists.values[start + i] - lists.floor
                along[own * LANES + lane] = 0.0
            for i in range(n, longest):
                along[i * LANES + lane] = 0.0
                q[i * LANES + lane] = 0.0
        for j in range(size):
            states[j] = 1.0 if j < LANES else 0.0
        for i in range(longest):  # p(j) += x (p(j-1) - p(j))
            chance, below = load(along, i * LANES), load(states, 0)
            store(states, 0, below - chance * below)
            for j in range(LANES, size, LANES):
                here = load(states, j)
                store(states, j, here + chance * (below - here))
                below = here
        for lane in range(count):
            left = 0.0
            for j in range(lane, size, LANES):
                left += states[j]
            if left >= EPSILON and not lists.whole[lists.rows[todo[first + lane]]]:
                return False
        for j in range(size):
            states[j] = 0.0
        upper = longest
        while upper > 0:
            lower = 0  # the next entry on the way down
            for lane in range(count):
                own = lists.positions[todo[first + lane]]
                if own < upper:
                    lower = max(lower, own)
            for i in range(upper - 1, lower - 1, -1):  # W(j) += x (W(j+1) - W(j)) with W(K) = q
                chance, here = load(along, i * LANES), load(states, 0)
                for j in range(LANES, size, LANES):
                    above = load(states, j)
                    store(states, j - LANES, here + chance * (above - here))
                    here = above
                store(states, size - LANES, here + chance * (load(q, i * LANES) - here))
            for lane in range(count):
                if lists.positions[todo[first + lane]] == lower:
                    for j in range(lane, size, LANES):
                        states[j] = q[lower * LANES + lane] - states[j]
            upper = lower
        for lane in range(count):
            scratch.slopes[side, todo[first + lane] - begin] = states[lane]
    return True
