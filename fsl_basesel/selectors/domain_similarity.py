"""The Domain Similarity baseline: the m candidates closest to the centre of the novel task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector
from fsl_basesel.similarity import unit_rows


@dataclass(frozen=True)
class DomainSimilarity(Selector):
    """Rank candidates by the cosine to the mean of the novel centroids (section 5.1).

    The novel centroids come from supports of equal size, so their mean is the centroid of the novel
    support set. Candidates crowd around that one point: good for a narrow task, poor for a diverse
    one.
    """

    name: ClassVar[str] = "domsim"
    guarantee: ClassVar[str] = "none"

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        if problem.centroids is None:
            raise InputError(
                "Expected a problem made by `SelectionProblem.from_centroids` for method 'domsim', "
                "which compares centroids, but got one made from a similarity matrix."
            )
        candidates, novel = problem.centroids
        free = problem.unselected
        names = [problem.names[u] for u in free]
        centre = novel.astype(np.float64).mean(axis=0, keepdims=True)
        direction = unit_rows(centre, "novel", ["the mean of all novel classes"])[0]
        closeness = unit_rows(candidates[free], "candidates", names) @ direction
        ranked = np.argsort(-closeness, kind="stable")
        return Choice(free[ranked[: problem.m]].tolist())
