"""Algorithm 1: novel classes take turns at their most similar class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel import topk
from fsl_basesel.compiled import kernel
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector

# Best columns remembered for each novel class; a row that uses them up looks through itself again.
REMEMBERED = 16


@dataclass(frozen=True)
class GreedyOnNovelClass(Selector):
    """Algorithm 1: in each round every novel class is served once, the closest pair first.

    It looks at similarities alone, so `lam` and `cost` do not influence it, and of the weights only
    those of 0, whose novel classes have no turn. Ties go to the lowest candidate, then to the
    lowest novel class.
    """

    name: ClassVar[str] = "greedy-novel"
    needs_all_rows: ClassVar[bool] = True
    guarantee: ClassVar[str] = "optimal for lam = 0, no cost and m >= K |N| (Theorem 1)"

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        free = problem.unselected
        depth = min(REMEMBERED, max(1, len(free)))
        value, index = topk.empty_state(problem.n_novel, depth, problem.floor)
        topk.insert(problem.by_candidate, free, value, index)
        picks = np.empty(problem.m, np.int64)
        available = np.zeros(problem.n_candidates, bool)
        available[free] = True
        counts = problem.row_weights > 0.0
        _take_turns(problem.by_candidate, available, counts, value, index, picks)
        return Choice(picks.tolist())


@kernel
def _remember_again(
    columns: np.ndarray, available: np.ndarray, n: int, value: np.ndarray, index: np.ndarray
) -> None:
    """Fill row `n` of the state with its best available columns."""
    depth = value.shape[1]
    index[n, :] = -1
    for u in range(columns.shape[0]):
        if not available[u]:
            continue
        similarity = np.float64(columns[u, n])
        at = depth - 1
        # Columns come in rising order, so a tie never displaces an earlier one.
        if index[n, at] >= 0 and similarity <= value[n, at]:
            continue
        while at > 0 and (index[n, at - 1] < 0 or similarity > value[n, at - 1]):
            value[n, at] = value[n, at - 1]
            index[n, at] = index[n, at - 1]
            at -= 1
        value[n, at] = similarity
        index[n, at] = u


@kernel
def _take_turns(
    columns: np.ndarray,
    available: np.ndarray,
    counts: np.ndarray,
    value: np.ndarray,
    index: np.ndarray,
    picks: np.ndarray,
) -> None:
    n_novel, depth = value.shape
    position = np.zeros(n_novel, np.int64)
    waiting = counts.copy()
    n_waiting = counts.sum()
    for step in range(picks.shape[0]):
        best_row = -1
        for n in range(n_novel):
            if not waiting[n]:
                continue
            while position[n] < depth and not available[index[n, position[n]]]:
                position[n] += 1
            if position[n] == depth:
                _remember_again(columns, available, n, value, index)
                position[n] = 0
            if best_row < 0:
                best_row = n
                continue
            similarity = value[n, position[n]]
            leader = value[best_row, position[best_row]]
            if similarity > leader or (
                similarity == leader and index[n, position[n]] < index[best_row, position[best_row]]
            ):
                best_row = n
        pick = index[best_row, position[best_row]]
        picks[step] = pick
        available[pick] = False
        waiting[best_row] = False
        n_waiting -= 1
        if n_waiting == 0:
            waiting[:] = counts
            n_waiting = counts.sum()
