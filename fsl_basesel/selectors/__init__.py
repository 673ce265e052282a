"""Every algorithm by name: the paper's four, its rule, its baselines, and what goes beyond.

A method is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from fsl_basesel.errors import InputError

if TYPE_CHECKING:
    from fsl_basesel.selectors.base import Selector

# File and class of each method.
BUILT_IN = {
    "auto": ("auto", "Auto"),
    "paper": ("paper_rule", "PaperRule"),
    "greedy-novel": ("greedy_novel", "GreedyOnNovelClass"),
    "greedy-target": ("greedy", "GreedyOnTarget"),
    "random-greedy": ("random_greedy", "RandomGreedy"),
    "double-greedy": ("double_greedy", "ContinuousDoubleGreedy"),
    "dual": ("dual", "LagrangianDual"),
    "random": ("baselines", "RandomSelection"),
    "domsim": ("baselines", "DomainSimilarity"),
    "kmedoids": ("baselines", "KMedoids"),
}
_registered: dict[str, type[Selector]] = {}  # of the user's own


def methods() -> list[str]:
    """Names that `select(problem, method=...)` takes.

    Example:
        >>> methods()[:4]
        ['auto', 'paper', 'greedy-novel', 'greedy-target']
    """
    return [*BUILT_IN, *_registered]


def register(selector: type[Selector]) -> type[Selector]:
    """Add a selector of your own to the methods; also as a decorator of its class.

    Args:
        selector: A subclass of `Selector` with a `name` no other method has and a `guarantee`, that
            can be made without arguments.

    Example:
        >>> import fsl_basesel as fb
        >>> @fb.register
        ... class First(fb.Selector):
        ...     name, guarantee = "first", "none"
        ...
        ...     def choose(self, problem, generator):
        ...         return fb.Choice(problem.unselected[: problem.m].tolist())
        >>> fb.select(fb.SelectionProblem([[0.2, 0.9]], m=1, k=1), "first").indices
        [0]
    """
    from fsl_basesel.selectors.base import Selector

    if not (isinstance(selector, type) and issubclass(selector, Selector)):
        raise InputError(f"Expected a subclass of Selector but got {selector!r}.")
    name = getattr(selector, "name", None)
    if not isinstance(name, str) or not getattr(selector, "guarantee", None):
        raise InputError(
            f"Expected {selector.__name__} to have the class attributes `name` and `guarantee`; "
            "say 'none' where nothing is guaranteed."
        )
    # A module that is loaded again brings its selectors again.
    if name in BUILT_IN or _origin(_registered.get(name, selector)) != _origin(selector):
        raise InputError(
            f"Expected the name of {selector.__name__} to be new but {name!r} is a method already."
        )
    _registered[name] = selector
    return selector


def _origin(selector: type[Selector]) -> tuple[str, str]:
    return selector.__module__, selector.__qualname__


def selector_class(method: str) -> type[Selector]:
    """The class of a method, whose attributes are its contract."""
    if not isinstance(method, str) or method not in methods():
        raise InputError(
            f"Expected `method` to be one of {', '.join(methods())} or a Selector but got "
            f"{method!r}."
        )
    if method in _registered:
        return _registered[method]
    module, name = BUILT_IN[method]
    return getattr(import_module(f"{__name__}.{module}"), name)


def selector_of(method: str | Selector) -> Selector:
    """The selector of a name with its default settings, or the selector itself."""
    from fsl_basesel.selectors.base import Selector

    return method if isinstance(method, Selector) else selector_class(method)()
