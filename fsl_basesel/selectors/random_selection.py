"""The Random baseline: m candidates drawn uniformly without replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel.limits import first_allowed
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector


@dataclass(frozen=True)
class RandomSelection(Selector):
    """What happens without a selection method; also the first stage of a cold start."""

    name: ClassVar[str] = "random"
    uses_k: ClassVar[bool] = False
    serves_limits: ClassVar[bool] = True
    randomized: ClassVar[bool] = True
    guarantee: ClassVar[str] = "none"

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        return Choice(first_allowed(problem, generator.permutation(problem.unselected)))
