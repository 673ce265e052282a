"""Algorithm 3: add a random one of the m classes with the largest gains, m times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel import topk
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector, largest
from fsl_basesel.selectors.greedy import greedy_order


@dataclass(frozen=True)
class RandomGreedy(Selector):
    """Algorithm 3, made for lam > 0 and few (or nearly all) classes.

    If more than half of B_u is asked for, the complement is chosen instead (appendix 2.1): classes
    are dropped from the full set, each time a random one of the |B_u| - m whose loss is smallest.
    Exactly m are returned either way; a complement's set comes in greedy order.
    """

    name: ClassVar[str] = "random-greedy"
    randomized: ClassVar[bool] = True
    guarantee: ClassVar[str] = "E h(U) >= (1 - 1/e) h(OPT) + constant of the instance (Theorem 4)"

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        if 2 * problem.m <= len(problem.unselected):
            return Choice(_add(problem, generator))
        return Choice(greedy_order(problem, _drop(problem, generator)))


def _add(problem: SelectionProblem, generator: np.random.Generator) -> list[int]:
    free, m = problem.unselected, problem.m
    value, index = problem.state_of(problem.with_selected([]))
    gains = problem.gains_over(value[:, -1], free)
    picks: list[int] = []
    while len(picks) < m:
        # Gains never grow, so old ones are bounds, and only those near the largest are renewed.
        old = np.ones(len(free), bool)
        top = largest(gains, m)
        while old[top].any():
            near = largest(gains, min(2 * m, len(free)))
            again = near[old[near]]
            gains[again] = problem.gains_over(value[:, -1], free[again])
            old[again] = False
            top = largest(gains, m)
        pick = int(generator.choice(top))
        picks.append(int(free[pick]))
        free, gains = np.delete(free, pick), np.delete(gains, pick)
        topk.insert(problem.by_candidate, picks[-1:], value, index)
    return picks


def _drop(problem: SelectionProblem, generator: np.random.Generator) -> np.ndarray:
    free = problem.unselected
    value, index = problem.state_of(problem.with_selected(free), more=1)
    count = len(free) - problem.m
    for _ in range(count):
        loss = problem.losses(value, index)[free] / problem.scale
        at = int(generator.choice(largest(problem.modular[free] - loss, count)))
        out, free = int(free[at]), np.delete(free, at)
        left = problem.with_selected(free)
        topk.remove(problem.by_candidate, out, left, value, index, problem.floor)
    return free
