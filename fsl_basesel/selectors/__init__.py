"""Every algorithm by name: the paper's four, its rule, its baselines, and what goes beyond.

A method is imported when it is first asked for.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fsl_basesel.errors import InputError

if TYPE_CHECKING:
    from fsl_basesel.selectors.auto import Auto
    from fsl_basesel.selectors.base import Choice, Selector
    from fsl_basesel.selectors.domain_similarity import DomainSimilarity
    from fsl_basesel.selectors.double_greedy import ContinuousDoubleGreedy
    from fsl_basesel.selectors.dual import LagrangianDual
    from fsl_basesel.selectors.greedy import GreedyOnTarget
    from fsl_basesel.selectors.greedy_novel import GreedyOnNovelClass
    from fsl_basesel.selectors.kmedoids import KMedoids
    from fsl_basesel.selectors.paper_rule import PaperRule
    from fsl_basesel.selectors.random_greedy import RandomGreedy
    from fsl_basesel.selectors.random_selection import RandomSelection
    from fsl_basesel.selectors.swap import WithSwaps

# Class -> file, and the name of the method; those without a name take arguments.
FILES = {
    "Auto": ("auto", "auto"),
    "PaperRule": ("paper_rule", "paper"),
    "GreedyOnNovelClass": ("greedy_novel", "greedy-novel"),
    "GreedyOnTarget": ("greedy", "greedy-target"),
    "RandomGreedy": ("random_greedy", "random-greedy"),
    "ContinuousDoubleGreedy": ("double_greedy", "double-greedy"),
    "LagrangianDual": ("dual", "dual"),
    "RandomSelection": ("random_selection", "random"),
    "DomainSimilarity": ("domain_similarity", "domsim"),
    "KMedoids": ("kmedoids", "kmedoids"),
    "WithSwaps": ("swap", None),
    "Selector": ("base", None),
    "Choice": ("base", None),
}

_by_name: dict[str, str | type[Selector]] = {
    name: kind for kind, (_, name) in FILES.items() if name
}

__all__ = [
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
    "register",
    "selector_class",
    "selector_of",
]


def __getattr__(name: str) -> Any:
    if name not in FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{FILES[name][0]}"), name)


def methods() -> list[str]:
    """Names that `select(problem, method=...)` takes.

    Example:
        >>> methods()[:4]
        ['auto', 'paper', 'greedy-novel', 'greedy-target']
    """
    return list(_by_name)


def register(selector: type[Selector]) -> type[Selector]:
    """Add a selector of your own to the methods; also as a decorator of its class.

    Args:
        selector: A subclass of `Selector` with a `name` no other method has and a `guarantee`, that
            can be made without arguments.

    Example:
        >>> import fsl_basesel as fb
        >>> from fsl_basesel.selectors import Choice
        >>> @fb.register
        ... class First(fb.Selector):
        ...     name, guarantee = "first", "none"
        ...
        ...     def choose(self, problem, generator):
        ...         return Choice(problem.unselected[: problem.m].tolist())
        >>> fb.select(fb.SelectionProblem([[0.2, 0.9]], m=1, k=1), "first").indices
        [0]
    """
    if not (inspect.isclass(selector) and issubclass(selector, __getattr__("Selector"))):
        raise InputError(f"Expected a subclass of Selector but got {selector!r}.")
    name = getattr(selector, "name", None)
    if not isinstance(name, str) or not getattr(selector, "guarantee", None):
        raise InputError(
            f"Expected {selector.__name__} to have the class attributes `name` and `guarantee`; "
            "say 'none' where nothing is guaranteed."
        )
    known = _by_name.get(name)
    if known is not None and _identity(known) != _identity(selector):
        raise InputError(
            f"Expected the name of {selector.__name__} to be new but {name!r} is a method already."
        )
    _by_name[name] = selector
    return selector


def _identity(selector: str | type[Selector]) -> str:
    if isinstance(selector, str):
        return f"{__name__}.{FILES[selector][0]}.{selector}"
    return f"{selector.__module__}.{selector.__qualname__}"


def selector_class(method: str) -> type[Selector]:
    """The class of a method, whose attributes are its contract."""
    if not isinstance(method, str) or method not in _by_name:
        raise InputError(
            f"Expected `method` to be one of {', '.join(_by_name)} or a Selector but got "
            f"{method!r}."
        )
    found = _by_name[method]
    return __getattr__(found) if isinstance(found, str) else found


def selector_of(method: str | Selector) -> Selector:
    """The selector of a name with its default settings, or the selector itself."""
    if isinstance(method, __getattr__("Selector")):
        return method  # type: ignore[return-value]
    return selector_class(method)()  # type: ignore[arg-type]
