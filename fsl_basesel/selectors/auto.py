"""`auto`: greedy, then swaps, then the dual; the best set found, always with its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice
from fsl_basesel.selectors.dual import LagrangianDual, solve
from fsl_basesel.selectors.greedy import greedy
from fsl_basesel.selectors.swap import improve_by_swaps


@dataclass(frozen=True)
class Auto(LagrangianDual):
    """What to use when in doubt: never below greedy, and proven near-optimal for the instance.

    It runs on the CPU, also where there is a GPU, like every method but `double-greedy`. `gap` and
    `max_steps` are those of `LagrangianDual`.
    """

    name: ClassVar[str] = "auto"

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        start = improve_by_swaps(problem, greedy(problem))
        return solve(problem, start, self.gap, self.max_steps)
