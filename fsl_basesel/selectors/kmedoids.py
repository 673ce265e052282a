"""The K-medoids baseline: cluster the candidates, take the medoids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector, space_of_centroids
from fsl_basesel.selectors.greedy import greedy_order


@dataclass(frozen=True)
class KMedoids(Selector):
    """FasterPAM on the distances among the candidates still to choose from.

    A distance is 1 minus the problem's similarity: cosine in the paper.

    The novel task plays no part: the paper's baseline for General Selection. The start is drawn
    from the generator; the medoids are listed in greedy order.
    """

    name: ClassVar[str] = "kmedoids"
    needs_centroids: ClassVar[bool] = True
    uses_k: ClassVar[bool] = False
    randomized: ClassVar[bool] = True
    guarantee: ClassVar[str] = "none"

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        _, unit = space_of_centroids(problem, self.name)
        if problem.m == 0:
            return Choice([])
        import kmedoids  # loads scikit-learn, a second or more that only this method needs

        distance = np.clip(1.0 - unit @ unit.T, 0.0, None)
        start = generator.permutation(len(unit))[: problem.m].astype(np.uint64)
        # One thread: the parallel version's answer depends on how the work is cut up.
        result = kmedoids.fasterpam(distance, start, max_iter=100, init="random", n_cpu=1)
        medoids = np.sort(np.asarray(result.medoids, np.int64))
        return Choice(greedy_order(problem, problem.unselected[medoids]))
