"""Which classes should a few-shot learner be trained on?

`SelectionProblem` states the question, `select` answers it, `Selection` carries the answer with its
proof and its reasons. Nothing here knows of Lightning; `lightning_modules` does the training.

Example:
    >>> import fsl_basesel as fb
    >>> problem = fb.SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=2, k=1)
    >>> selection = fb.select(problem)
    >>> selection.indices, selection.gap
    ([0, 1], 0.0)
"""

from fsl_basesel.bounds import Certificate, Guarantee, certify, upper_bound
from fsl_basesel.data.pool import ClassPool
from fsl_basesel.errors import InputError
from fsl_basesel.explanation import Explanation
from fsl_basesel.grid import select_grid
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selecting import select
from fsl_basesel.selection import Selection, library_version
from fsl_basesel.selectors import (
    Auto,
    ContinuousDoubleGreedy,
    DomainSimilarity,
    GreedyOnNovelClass,
    GreedyOnTarget,
    KMedoids,
    LagrangianDual,
    PaperRule,
    RandomGreedy,
    RandomSelection,
    Selector,
    WithSwaps,
    methods,
)
from fsl_basesel.similarity import class_centroids

__version__ = library_version()

__all__ = [
    "Auto",
    "Certificate",
    "ClassPool",
    "ContinuousDoubleGreedy",
    "DomainSimilarity",
    "Explanation",
    "GreedyOnNovelClass",
    "GreedyOnTarget",
    "Guarantee",
    "InputError",
    "KMedoids",
    "LagrangianDual",
    "PaperRule",
    "RandomGreedy",
    "RandomSelection",
    "Selection",
    "SelectionProblem",
    "Selector",
    "WithSwaps",
    "certify",
    "class_centroids",
    "methods",
    "select",
    "select_grid",
    "upper_bound",
]
