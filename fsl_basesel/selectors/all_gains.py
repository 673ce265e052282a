"""`AllGains`: the gains of all candidates, kept up to date pick by pick."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsl_basesel import topk
from fsl_basesel.compiled import kernel
from fsl_basesel.parallel import ROWS
from fsl_basesel.problem import SelectionProblem

# Share of the matrix that may be listed a second time, row by row.
LISTED = 0.3


class Lists(NamedTuple):
    """What of every row exceeds its k-th value; as k-th values only rise, the rest is done with.

    Attributes:
        starts: `[|N|]` where each row's entries begin.
        counts: `[|N|]` how many they are.
        columns: The candidate of each entry.
        values: Its similarity.
    """

    starts: np.ndarray
    counts: np.ndarray
    columns: np.ndarray
    values: np.ndarray


class AllGains:
    """All gains, kept up to date pick by pick; every process corrects them for its own rows.

    The first picks move nearly every row, and all gains are computed afresh. Once little of the
    matrix exceeds the k-th values, that part is listed row by row, and a pick costs the lists of
    the rows it moves: less than half a copy of the matrix is held besides it. One vector of |B|
    numbers is summed over the processes for each look at the gains.

    Args:
        problem: The objective.
        value: `[|N|, depth]` state to begin with (see `fsl_basesel.topk`); it is changed.
        index: Of the state.
    """

    def __init__(self, problem: SelectionProblem, value: np.ndarray, index: np.ndarray) -> None:
        self.problem = problem
        self.value, self.index = value, index
        self.kth = value[:, -1].copy()
        self.sums = self._afresh()
        self.lists: Lists | None = None
        self.picks = 0

    def now(self) -> np.ndarray:
        """Gain of every column, `[|B|]`; what is already in is not masked."""
        return self.problem.rows.sum(self.sums) / self.problem.scale - self.problem.modular

    def add(self, pick: int) -> None:
        """Bring a column in."""
        topk.insert(self.problem.by_candidate, [pick], self.value, self.index)
        before, self.kth = self.kth, self.value[:, -1].copy()
        self.picks += 1
        if self.lists is not None:
            _correct(self.lists, before, self.kth, self.problem.row_weights, self.sums)
        elif (before != self.kth).any():
            self.sums = self._afresh()
        if self.lists is None and self.picks & (self.picks - 1) == 0:  # after 1, 2, 4, 8, ... picks
            self.lists = above(self.problem, self.kth)

    def _afresh(self) -> np.ndarray:
        return self.problem.excess(self.kth, np.arange(self.problem.n_candidates))


def above(problem: SelectionProblem, kth: np.ndarray) -> Lists | None:
    """The entries that exceed their row's `kth`, or None if they are more than `LISTED` of all.

    Example:
        >>> problem = SelectionProblem([[0.1, 0.2, 0.4], [0.9, 0.3, 0.1]], m=1)
        >>> lists = above(problem, np.array([0.3, 0.9]))
        >>> lists.counts, lists.columns, lists.values
        (array([1, 0]), array([2], dtype=int32), array([0.4]))
    """
    columns = problem.by_candidate
    counts = topk.count_above(columns, np.arange(len(columns)), kth)
    total = int(counts.sum())
    if sum(problem.rows.gather(total)) > LISTED * problem.n_candidates * problem.n_novel:
        return None  # on every process
    starts = np.cumsum(counts) - counts
    lists = Lists(starts, counts, np.empty(total, np.int32), np.empty(total, columns.dtype))
    _list(columns, kth, starts.copy(), lists)
    return lists


@kernel
def _list(columns: np.ndarray, kth: np.ndarray, to: np.ndarray, lists: Lists) -> None:
    for u in range(columns.shape[0]):
        for n in range(columns.shape[1]):
            if columns[u, n] > kth[n]:
                lists.columns[to[n]] = u
                lists.values[to[n]] = columns[u, n]
                to[n] += 1


@kernel
def _correct(
    lists: Lists, old: np.ndarray, new: np.ndarray, weight: np.ndarray, sums: np.ndarray
) -> None:
    """Take from `sums` what rows give whose k-th value rose; drop what no longer exceeds it."""
    for n in range(old.shape[0]):
        before, after = old[n], new[n]
        if after == before:
            continue
        kept, block = lists.starts[n], sums[n // ROWS]
        for at in range(lists.starts[n], lists.starts[n] + lists.counts[n]):
            u, similarity = lists.columns[at], np.float64(lists.values[at])
            if similarity > after:
                block[u] -= weight[n] * (after - before)
                lists.columns[kept] = u
                lists.values[kept] = lists.values[at]
                kept += 1
            else:
                block[u] -= weight[n] * (similarity - before)
        lists.counts[n] = kept - lists.starts[n]
