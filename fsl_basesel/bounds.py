"""How good can a selection be? The paper's guarantees and the certificate of one instance.

The theorems bound every instance of a kind and are therefore modest. The certificate looks at the
instance at hand and usually proves a selection optimal to within a hundredth of a per cent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selection import relative_gap
from fsl_basesel.selectors.auto import Auto
from fsl_basesel.selectors.base import Choice, seeded


class Certificate(NamedTuple):
    """A proven upper bound on h of any m classes, and how far the given set may be from it."""

    upper_bound: float
    gap: float


@dataclass(frozen=True)
class Guarantee:
    """A promise of the form h(U) >= ratio * h(OPT) + constant.

    Attributes:
        ratio: Factor of the optimum.
        constant: What is added.
        expected: Whether it speaks of the expectation over the algorithm's randomness.
    """

    ratio: float
    constant: float
    expected: bool = False

    def lower_bound(self, optimum: float) -> float:
        """The promised value, given the optimum (or a lower bound on it)."""
        return self.ratio * optimum + self.constant


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


def average_similarity(problem: SelectionProblem) -> float:
    """Q of the theorems: mean similarity between the classes to choose from and the novel ones."""
    return float(problem.column_means[problem.unselected].mean())


def theorem_1(problem: SelectionProblem) -> Guarantee | None:
    """Algorithm 1 is optimal for a monotone objective and m >= K |N|; None elsewhere."""
    plenty = problem.m >= problem.k * problem.n_novel
    return Guarantee(1.0, 0.0) if plenty and not problem.modular.any() else None


def theorem_2(problem: SelectionProblem) -> Guarantee:
    """Algorithm 2, corrected: h(U) >= (1 - g) h(OPT) + g Q with g = (1 - 1/m)^(m - K).

    For lam = 0, no cost and B_s empty; greedy has h(A) >= Q after K picks, and each of the other
    m - K picks closes 1/m of what is missing. The printed theorem has g = 1/e, the limit for large
    m, but g is larger for every m and the printed bound fails on three classes (correction 10 in
    docs/paper.md). Other instances get the bound of `monotone_shift`.
    """
    m, k = problem.m, problem.k
    if not problem.selected and m <= k:
        return Guarantee(1.0, 0.0)  # no top-k is full yet, so h is modular and greedy optimal
    if not problem.selected and not problem.modular.any():
        rest = (1 - 1 / m) ** (m - k)
        return Guarantee(1 - rest, rest * average_similarity(problem))
    return monotone_shift(problem)


def monotone_shift(problem: SelectionProblem) -> Guarantee:
    """Algorithms 2 and 3 (in expectation) for any lam and cost: a monotone objective in disguise.

    As |U| = m, adding the largest modular weight w to every class's gain changes no pick and shifts
    h(U) by m w; the shifted objective is monotone. Greedy (or a random one of the m best) closes
    1/m of what is missing with each pick: h(U) >= (1 - g) h(OPT) + g (h(0) - m w), g = (1 - 1/m)^m.
    """
    m = problem.m
    rest = (1 - 1 / m) ** m if m else 0.0
    weight = max(0.0, float(problem.modular[problem.unselected].max(initial=0.0)))
    return Guarantee(1 - rest, rest * (problem.value([]) - m * weight))


def theorem_4_random_greedy(problem: SelectionProblem) -> Guarantee:
    """Algorithm 3 in expectation, corrected: `monotone_shift`, or the same for the complement.

    For 2m > |B_u| the algorithm drops r - m classes; a drop costs at most the class's gain over
    nothing, which takes the place of the modular weight.
    """
    dropped = len(problem.unselected) - problem.m
    if problem.m <= dropped:
        return dataclasses.replace(monotone_shift(problem), expected=True)
    rest = (1 - 1 / dropped) ** dropped if dropped else 0.0
    start = np.array(problem.selected, np.int64)
    weight = max(
        0.0, float(problem.gains_over(problem.state_of(start)[0][:, -1], problem.unselected).max())
    )
    everything = problem.value(problem.unselected)
    return Guarantee(1 - rest, rest * (everything - dropped * weight), expected=True)


def theorem_4_double_greedy(problem: SelectionProblem) -> Guarantee:
    """Algorithm 4, corrected: a weighted mean of the optimum and both ends.

    The weights of h(OPT), h(0) and h(B_u) are 2 sqrt(m (r-m)), r-m and m, with r = |B_u|,
    up to a term of order 1/T for T steps. The paper replaces h(0) by Q, as if the algorithm began
    with K classes, but it begins with none (correction 11 in docs/paper.md).
    """
    r, m = len(problem.unselected), problem.m
    root = 2 * math.sqrt((r - m) * m)
    if not root:
        return Guarantee(1.0, 0.0)
    ends = (r - m) * problem.value([]) + m * problem.value(problem.unselected)
    return Guarantee(root / (root + r), ends / (root + r))
