"""Which classes should a few-shot learner be trained on?

`SelectionProblem` states the question, `select` answers it, `Selection` carries the answer with its
proof and its reasons. Nothing here knows of Lightning; `lightning_modules` does the training. Names
are imported when they are first used, and torch only where a tensor or a network is involved.

Example:
    >>> import fsl_basesel as fb
    >>> problem = fb.SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=2, k=1)
    >>> selection = fb.select(problem)
    >>> selection.indices, selection.gap
    ([0, 1], 0.0)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsl_basesel.backbones import load_backbone
    from fsl_basesel.bounds import Certificate, certify, upper_bound
    from fsl_basesel.data.pool import ClassPool
    from fsl_basesel.errors import InputError
    from fsl_basesel.photographs import EmbeddingJob, embed, embed_texts
    from fsl_basesel.problem import SelectionProblem
    from fsl_basesel.selecting import FrontierRow, frontier, select, select_grid
    from fsl_basesel.selection import Explanation, Selection
    from fsl_basesel.selectors import (
        Auto,
        Choice,
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
        register,
    )
    from fsl_basesel.similarity import ClassCentroids, class_centroids

_NAMES = {
    "bounds": ("Certificate", "certify", "upper_bound"),
    "data.pool": ("ClassPool",),
    "errors": ("InputError",),
    "backbones": ("load_backbone",),
    "photographs": ("EmbeddingJob", "embed", "embed_texts"),
    "problem": ("SelectionProblem",),
    "selecting": ("FrontierRow", "frontier", "select", "select_grid"),
    "selection": ("Explanation", "Selection"),
    "selectors": (
        *("Auto", "Choice", "ContinuousDoubleGreedy", "DomainSimilarity", "GreedyOnNovelClass"),
        *("GreedyOnTarget", "KMedoids", "LagrangianDual", "PaperRule", "RandomGreedy"),
        *("RandomSelection", "Selector", "WithSwaps", "methods", "register"),
    ),
    "similarity": ("ClassCentroids", "class_centroids"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Auto",
    "Certificate",
    "Choice",
    "ClassCentroids",
    "ClassPool",
    "ContinuousDoubleGreedy",
    "DomainSimilarity",
    "EmbeddingJob",
    "Explanation",
    "FrontierRow",
    "GreedyOnNovelClass",
    "GreedyOnTarget",
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
    "embed",
    "embed_texts",
    "frontier",
    "load_backbone",
    "methods",
    "register",
    "select",
    "select_grid",
    "upper_bound",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_MODULES, "__version__"]


def _version() -> str:
    """The installed version, or "unknown" when run from a folder that was never installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fsl-basesel")
    except PackageNotFoundError:
        return "unknown"
