"""How good can a selection be? The certificate of one instance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selection import relative_gap
from fsl_basesel.selectors.auto import Auto
from fsl_basesel.selectors.base import Choice, seeded


class Certificate(NamedTuple):
    """A proven upper bound on h of any m classes, and how far the given set may be from it."""

    upper_bound: float
    gap: float


# The dual of a problem is worth keeping: comparing ten methods needs it once. Problems are
# immutable, so it never goes stale, and an entry leaves with its problem.
_proofs: WeakKeyDictionary[SelectionProblem, Choice] = WeakKeyDictionary()


def upper_bound(problem: SelectionProblem) -> float:
    """A proven upper bound on the value of any selection, by the Lagrangian dual."""
    bound = _proof(problem).upper_bound
    assert bound is not None
    return bound


def price_of(problem: SelectionProblem) -> float | None:
    """By how much a further unit of the budget raises the bound at most, None without a budget."""
    return _proof(problem).price if problem.budget is not None else None


def _proof(problem: SelectionProblem) -> Choice:
    if problem not in _proofs:
        _proofs[problem] = Auto().choose(problem, seeded(0))
    return _proofs[problem]


def certify(problem: SelectionProblem, indices: Iterable[int]) -> Certificate:
    """How good is this set, provably?

    Args:
        problem: The instance.
        indices: Any m columns of B_u, from whatever source.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=1, k=1)
        >>> certify(problem, [2]).gap, round(certify(problem, [0]).gap, 3)
        (0.0, 0.083)
    """
    chosen = tuple(indices)
    value = problem.value(chosen)
    problem.require_allowed(chosen)
    bound = upper_bound(problem)
    if bound - value <= problem.rounding(chosen, _proof(problem).indices):
        bound = value
    return Certificate(bound, relative_gap(value, bound, problem.floor))
