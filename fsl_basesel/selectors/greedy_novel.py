"""Algorithm 1: novel classes take turns at their most similar class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel import topk
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
        columns, floor = problem.by_candidate, problem.floor
        value, index = topk.state_of(columns, problem.unselected, REMEMBERED, floor)
        available = np.zeros(problem.n_candidates + 1, bool)  # the last one for -1, no column
        available[problem.unselected] = True
        waiting = problem.row_weights > 0.0
        picks: list[int] = []
        while len(picks) < problem.m:
            if not waiting.any():
                waiting = problem.row_weights > 0.0
            rows = np.flatnonzero(waiting)
            left = available[index[rows]]
            exhausted = rows[~left.any(axis=1)]
            if len(exhausted):
                value[exhausted], index[exhausted] = floor, -1
                topk.insert(columns, np.flatnonzero(available), value, index, exhausted)
                left = available[index[rows]]
            place = left.argmax(axis=1)
            nearest, similarity = index[rows, place], value[rows, place]
            closest = np.lexsort((nearest, -similarity))[0]
            picks.append(int(nearest[closest]))
            available[picks[-1]] = False
            waiting[rows[closest]] = False
        return Choice(picks)
