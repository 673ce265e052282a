"""The Domain Similarity baseline: the m candidates closest to the centre of the novel task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel.limits import first_allowed
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector, space_of_centroids
from fsl_basesel.similarity import one_blas_thread


@dataclass(frozen=True)
class DomainSimilarity(Selector):
    """Rank candidates by similarity to the mean of the novel centroids (section 5.1).

    The similarity is the problem's: cosine in the paper. The novel centroids come from supports of
    equal size, so their mean is the centroid of the novel support set. Candidates crowd around that
    one point: good for a narrow task, poor for a diverse one. Weights of the novel classes are
    those of the mean.
    """

    name: ClassVar[str] = "domsim"
    needs_centroids: ClassVar[bool] = True
    uses_k: ClassVar[bool] = False
    serves_limits: ClassVar[bool] = True
    guarantee: ClassVar[str] = "none"

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        space, unit = space_of_centroids(problem, self.name)
        assert problem.centroids is not None
        weighted = problem.centroids[1].astype(np.float64)
        if problem.weights is not None:
            weighted *= problem.n_novel * problem.weights[:, None]
        centre = weighted.mean(axis=0, keepdims=True)
        with one_blas_thread():
            direction = space.unit(centre, "novel", ["the mean of all novel classes"])[0]
        ranked = np.argsort(-(unit @ direction), kind="stable")
        return Choice(first_allowed(problem, problem.unselected[ranked]))
