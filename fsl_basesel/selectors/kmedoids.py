"""The K-medoids baseline: cluster the candidates, take the medoids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel import checks
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector
from fsl_basesel.selectors.greedy_target import greedy_order
from fsl_basesel.similarity import unit_rows


@dataclass(frozen=True)
class KMedoids(Selector):
    """FasterPAM on the cosine distances among the candidates still to choose from.

    The novel task plays no part: the paper's baseline for General Selection. The start is drawn
    from the generator; the medoids are listed in greedy order.

    Attributes:
        max_iterations: Passes over all candidates before FasterPAM gives up improving.
    """

    name: ClassVar[str] = "kmedoids"
    randomized: ClassVar[bool] = True
    guarantee: ClassVar[str] = "none"

    max_iterations: int = 100

    def __post_init__(self) -> None:
        checks.integer(self.max_iterations, "max_iterations", 0, None, "")

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        if problem.centroids is None:
            raise InputError(
                "Expected a problem made by `SelectionProblem.from_centroids` for method "
                "'kmedoids', which clusters centroids, but got one made from a similarity matrix."
            )
        if problem.m == 0:
            return Choice([])
        import kmedoids  # loads scikit-learn, a second or more that only this method needs

        free = problem.unselected
        names = [problem.names[u] for u in free]
        unit = unit_rows(problem.centroids[0][free], "candidates", names)
        distance = np.clip(1.0 - unit @ unit.T, 0.0, None)
        start = generator.permutation(len(free))[: problem.m].astype(np.uint64)
        # One thread: the parallel version's answer depends on how the work is cut up.
        result = kmedoids.fasterpam(
            distance, start, max_iter=self.max_iterations, init="random", n_cpu=1
        )
        medoids = np.sort(np.asarray(result.medoids, np.int64))
        return Choice(greedy_order(problem, free[medoids]))
