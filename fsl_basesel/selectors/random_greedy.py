"""Algorithm 3: add a random one of the m classes with the largest gains, m times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel import topk
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.all_gains import AllGains
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
        kept = _drop(problem, generator)
        return Choice(greedy_order(problem, kept))


def _add(problem: SelectionProblem, generator: np.random.Generator) -> list[int]:
    selected = np.array(problem.selected, np.int64)
    gains = AllGains(problem, *problem.state_of(selected))
    taken = np.ones(problem.n_candidates, bool)
    taken[problem.unselected] = False
    picks = []
    for _ in range(problem.m):
        now = np.where(taken, -np.inf, gains.now())
        picks.append(_random_of_largest(now, problem.m, generator))
        taken[picks[-1]] = True
        gains.add(picks[-1])
    return picks


def _drop(problem: SelectionProblem, generator: np.random.Generator) -> np.ndarray:
    everything = np.concatenate([np.array(problem.selected, np.int64), problem.unselected])
    value, index = problem.state_of(everything, more=1)
    free = problem.unselected
    where = np.arange(problem.n_candidates)
    count = len(free) - problem.m
    present = np.zeros(problem.n_candidates, bool)
    present[everything] = True
    for _ in range(count):
        lost = topk.losses(value, index, where, problem.row_weights, problem.n_candidates)
        gains = np.full(problem.n_candidates, -np.inf)
        gains[free] = problem.modular[free] - problem.rows.sum(lost)[free] / problem.scale
        out = _random_of_largest(gains, count, generator)
        present[out] = False
        free = free[free != out]
        topk.remove(problem.by_candidate, out, np.flatnonzero(present), value, index, problem.floor)
    return free


def _random_of_largest(gains: np.ndarray, count: int, generator: np.random.Generator) -> int:
    """A uniform draw from the `count` columns of largest gain, ties at the edge by lowest index."""
    return int(generator.choice(largest(gains, count)))
