"""`paper`: the algorithm that Table 1 of the paper recommends for the instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector
from fsl_basesel.selectors.double_greedy import ContinuousDoubleGreedy
from fsl_basesel.selectors.greedy import GreedyOnTarget
from fsl_basesel.selectors.greedy_novel import GreedyOnNovelClass
from fsl_basesel.selectors.random_greedy import RandomGreedy


@dataclass(frozen=True)
class PaperRule(Selector):
    """Table 1: Alg. 1 or 2 where the objective is monotone, Alg. 3 or 4 where it is not.

    A cost term (appendix 2.5) makes the objective non-monotone just as lam > 0 does.
    """

    name: ClassVar[str] = "paper"
    randomized: ClassVar[bool] = True
    guarantee: ClassVar[str] = "that of the algorithm it picks (Theorems 1, 2 and 4)"

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        selector = recommended(problem)
        selector.require(problem)
        return selector.choose(problem, generator)


def recommended(problem: SelectionProblem) -> Selector:
    """The selector of Table 1 for this problem.

    Example:
        >>> problem = SelectionProblem(np.eye(3, 50), m=4, k=1)
        >>> recommended(problem).name
        'greedy-novel'
        >>> recommended(problem.replace(m=3)).name
        'greedy-target'
        >>> recommended(problem.replace(lam=0.2)).name
        'double-greedy'
        >>> recommended(problem.replace(lam=0.2, m=3)).name
        'random-greedy'
    """
    monotone = problem.lam == 0 and (problem.mu == 0 or problem.cost is None)
    if monotone:
        plenty = problem.m > problem.k * problem.n_novel
        return GreedyOnNovelClass() if plenty else GreedyOnTarget()
    free = len(problem.unselected)
    middle = 0.08 * free <= problem.m <= 0.92 * free
    return ContinuousDoubleGreedy() if middle else RandomGreedy()
