"""Slopes of single candidates, from the live prefixes of the rows that contain them.

The live prefix of a novel class is the beginning of its sorted row, down to where K of the
candidates before are in almost surely; what follows has no influence. A list of all live prefixes
without their zeros is short, and the slope of one candidate needs only the rows whose list it is
in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsl_basesel.compiled import inlined, kernel
from fsl_basesel.multilinear.vectors import LANES, load, store
from fsl_basesel.problem import SelectionProblem

EPSILON = 1e-13  # probability of fewer than K entries below which the rest of a row is ignored
SLACK = 1e-20  # the same when prefixes are listed: they must still reach after many exchanges


class Prefixes(NamedTuple):
    """Live prefixes without their zeros, by row and by column; 16 bytes per entry in float32.

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
    """Memory to compute the slopes of two candidates in.

    Attributes:
        states: one vector for each state.
        x: probabilities along the lists of a tile of rows.
        q: values along them.
        todo: entries to compute.
        places: where their slopes go.
        slopes: those of one candidate in the first half, of the other in the second.
    """

    states: np.ndarray
    x: np.ndarray
    q: np.ndarray
    todo: np.ndarray
    places: np.ndarray
    slopes: np.ndarray

    @classmethod
    def of(cls, lists: Prefixes, k: int) -> Scratch:
        """Scratch for these lists."""
        longest = int(np.diff(lists.starts).max(initial=0)) * LANES
        widest = int(np.diff(lists.column_starts).max(initial=0))
        return cls(
            np.empty(k * LANES),
            np.empty(longest),
            np.empty(longest),
            np.empty(2 * widest, np.int64),
            np.empty(2 * widest, np.int64),
            np.empty(2 * widest),
        )


def live_prefixes(problem: SelectionProblem, x: np.ndarray, slack: float) -> Prefixes:
    """The live prefix of every row, those on other processes included.

    A list ends where fewer than k entries are in with a probability below `slack`.
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


@inlined
def refresh(x: np.ndarray, k: int, total: int, lists: Prefixes, scratch: Scratch) -> bool:
    """Recompute the slopes of the first `total` entries of `scratch.todo`.

    Up to `LANES` of them are done side by side, by one sweep from the end of their rows' lists.
    Behind the entry the sweep carries W(j), what one more entry before is worth in state j. At the
    entry it becomes D(j) = q - W(j), the slope if j entries come before; ahead of it D follows the
    same recursion with D(K) = 0, and D(0) is the slope.

    False if a list no longer reaches far enough.
    """
    starts, columns, values, whole, _, positions, rows, floor = lists
    states, along, q, todo, places, slopes = scratch
    size = k * LANES
    reaches = True
    first = 0
    while reaches and first < total:
        count = min(LANES, total - first)
        longest = 0
        for lane in range(count):
            row = rows[todo[first + lane]]
            longest = max(longest, starts[row + 1] - starts[row])
        for i in range(longest * LANES):
            along[i] = q[i] = 0.0
        for lane in range(count):
            entry = todo[first + lane]
            row, own = rows[entry], positions[entry]
            start = starts[row]
            for i in range(starts[row + 1] - start):
                along[i * LANES + lane] = x[columns[start + i]]
            for i in range(own, starts[row + 1] - start):
                q[i * LANES + lane] = values[start + i] - floor
            along[own * LANES + lane] = 0.0
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
            if left >= EPSILON and not whole[rows[todo[first + lane]]]:
                reaches = False
        for j in range(size):
            states[j] = 0.0
        upper = longest
        while upper > 0:
            lower = 0  # the next entry on the way down
            for lane in range(count):
                own = positions[todo[first + lane]]
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
                if positions[todo[first + lane]] == lower:
                    for j in range(lane, size, LANES):
                        states[j] = q[lower * LANES + lane] - states[j]
            upper = lower
        for lane in range(count):
            slopes[places[first + lane]] = states[lane]
        first += LANES
    return reaches
