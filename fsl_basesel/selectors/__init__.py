"""Every algorithm by name: the paper's four, its rule, its baselines, and what goes beyond."""

from __future__ import annotations

from fsl_basesel.errors import InputError
from fsl_basesel.selectors.auto import Auto
from fsl_basesel.selectors.base import Choice, Selector
from fsl_basesel.selectors.domain_similarity import DomainSimilarity
from fsl_basesel.selectors.double_greedy import ContinuousDoubleGreedy
from fsl_basesel.selectors.dual import LagrangianDual
from fsl_basesel.selectors.greedy_novel import GreedyOnNovelClass
from fsl_basesel.selectors.greedy_target import GreedyOnTarget
from fsl_basesel.selectors.kmedoids import KMedoids
from fsl_basesel.selectors.paper_rule import PaperRule
from fsl_basesel.selectors.random_greedy import RandomGreedy
from fsl_basesel.selectors.random_selection import RandomSelection
from fsl_basesel.selectors.swap import WithSwaps

SELECTORS: dict[str, type[Selector]] = {
    selector.name: selector
    for selector in (
        Auto,
        PaperRule,
        GreedyOnNovelClass,
        GreedyOnTarget,
        RandomGreedy,
        ContinuousDoubleGreedy,
        LagrangianDual,
        RandomSelection,
        DomainSimilarity,
        KMedoids,
    )
}


def methods() -> list[str]:
    """Names that `select(problem, method=...)` takes.

    Example:
        >>> methods()[:4]
        ['auto', 'paper', 'greedy-novel', 'greedy-target']
    """
    return list(SELECTORS)


def selector_of(method: str | Selector) -> Selector:
    """The selector of a name with its default settings, or the selector itself."""
    if isinstance(method, Selector):
        return method
    if not isinstance(method, str) or method not in SELECTORS:
        raise InputError(
            f"Expected `method` to be one of {', '.join(SELECTORS)} or a Selector but got "
            f"{method!r}."
        )
    return SELECTORS[method]()


__all__ = [
    "SELECTORS",
    "Auto",
    "Choice",
    "ContinuousDoubleGreedy",
    "DomainSimilarity",
    "GreedyOnNovelClass",
    "GreedyOnTarget",
    "KMedoids",
    "LagrangianDual",
    "PaperRule",
    "RandomGreedy",
    "RandomSelection",
    "Selector",
    "WithSwaps",
    "methods",
    "selector_of",
]
