"""The paper's baselines: Random, Domain Similarity and K-medoids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel.controls import random_set
from fsl_basesel.errors import InputError
from fsl_basesel.limits import first_allowed
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector, space_of_centroids
from fsl_basesel.selectors.greedy import greedy_order
from fsl_basesel.similarity import one_blas_thread


@dataclass(frozen=True)
class RandomSelection(Selector):
    """m candidates drawn uniformly without replacement; also the first stage of a cold start."""

    name: ClassVar[str] = "random"
    uses_k: ClassVar[bool] = False
    serves_limits: ClassVar[bool] = True
    randomized: ClassVar[bool] = True
    guarantee: ClassVar[str] = "none"

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        return Choice(random_set(problem, generator))


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
            try:
                direction = space.unit(centre, "novel", ["the mean of all novel classes"])[0]
            except InputError:
                raise InputError(
                    f"Expected the mean of the novel classes to have a direction for method "
                    f"{self.name!r} but similarity {space.name!r} makes it zero; use similarity "
                    "'cosine' or another method."
                ) from None
            ranked = np.argsort(-(unit @ direction), kind="stable")
        return Choice(first_allowed(problem, problem.unselected[ranked]))


@dataclass(frozen=True)
class KMedoids(Selector):
    """The medoids of FasterPAM on the distances among the candidates still to choose from.

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

        with one_blas_thread():
            # Single precision hides the last bits, in which machines differ, from near ties.
            distance = np.clip(1.0 - (unit @ unit.T).astype(np.float32), 0.0, None)
        start = generator.permutation(len(unit))[: problem.m].astype(np.uint64)
        # One thread: the parallel version's answer depends on how the work is cut up.
        result = kmedoids.fasterpam(distance, start, max_iter=100, init="random", n_cpu=1)
        medoids = np.sort(np.asarray(result.medoids, np.int64))
        return Choice(greedy_order(problem, problem.unselected[medoids]))
