"""Which classes should a few-shot learner be trained on?

`SelectionProblem` states the question, `select` answers it, `Selection` carries the answer with its
proof and its reasons. This package does not use Lightning; `lightning_modules` does the training.
Names are imported when they are first used, and torch only if a tensor or a network is involved.

Example:
    >>> import fsl_basesel as fb
    >>> problem = fb.SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=2, k=1)
    >>> selection = fb.select(problem)
    >>> selection.indices, selection.gap
    ([0, 1], 0.0)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fsl_basesel.selectors import BUILT_IN

if TYPE_CHECKING:
    from fsl_basesel.backbones import load_backbone as load_backbone
    from fsl_basesel.bounds import Certificate as Certificate
    from fsl_basesel.bounds import certify as certify
    from fsl_basesel.bounds import upper_bound as upper_bound
    from fsl_basesel.data.pool import ClassPool as ClassPool
    from fsl_basesel.errors import InputError as InputError
    from fsl_basesel.photographs import EmbeddingJob as EmbeddingJob
    from fsl_basesel.photographs import embed as embed
    from fsl_basesel.photographs import embed_texts as embed_texts
    from fsl_basesel.problem import SelectionProblem as SelectionProblem
    from fsl_basesel.selecting import frontier as frontier
    from fsl_basesel.selecting import select as select
    from fsl_basesel.selecting import select_grid as select_grid
    from fsl_basesel.selection import Explanation as Explanation
    from fsl_basesel.selection import Selection as Selection
    from fsl_basesel.selectors import methods as methods
    from fsl_basesel.selectors import register as register
    from fsl_basesel.selectors.auto import Auto as Auto
    from fsl_basesel.selectors.base import Choice as Choice
    from fsl_basesel.selectors.base import Selector as Selector
    from fsl_basesel.selectors.baselines import DomainSimilarity as DomainSimilarity
    from fsl_basesel.selectors.baselines import KMedoids as KMedoids
    from fsl_basesel.selectors.baselines import RandomSelection as RandomSelection
    from fsl_basesel.selectors.double_greedy import ContinuousDoubleGreedy as ContinuousDoubleGreedy
    from fsl_basesel.selectors.dual import LagrangianDual as LagrangianDual
    from fsl_basesel.selectors.greedy import GreedyOnTarget as GreedyOnTarget
    from fsl_basesel.selectors.greedy_novel import GreedyOnNovelClass as GreedyOnNovelClass
    from fsl_basesel.selectors.paper_rule import PaperRule as PaperRule
    from fsl_basesel.selectors.random_greedy import RandomGreedy as RandomGreedy
    from fsl_basesel.selectors.swap import WithSwaps as WithSwaps
    from fsl_basesel.similarity import ClassCentroids as ClassCentroids
    from fsl_basesel.similarity import class_centroids as class_centroids

_NAMES = {
    "backbones": ("load_backbone",),
    "bounds": ("Certificate", "certify", "upper_bound"),
    "data.pool": ("ClassPool",),
    "errors": ("InputError",),
    "photographs": ("EmbeddingJob", "embed", "embed_texts"),
    "problem": ("SelectionProblem",),
    "selecting": ("frontier", "select", "select_grid"),
    "selection": ("Explanation", "Selection"),
    "selectors": ("methods", "register"),
    "selectors.base": ("Choice", "Selector"),
    "selectors.swap": ("WithSwaps",),
    "similarity": ("ClassCentroids", "class_centroids"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
_MODULES |= {name: f"selectors.{module}" for module, name in BUILT_IN.values()}

__all__ = list(_MODULES)


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
