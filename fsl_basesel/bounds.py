"""How good can a selection be? The paper's guarantees and the certificate of one instance.

The theorems bound every instance of a kind and are therefore modest. The certificate looks at the
instance at hand and usually proves a selection optimal to within a hundredth of a per cent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selection import relative_gap
from fsl_basesel.selectors.auto import Auto
from fsl_basesel.selectors.base import seeded


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
_dual_bounds: WeakKeyDictionary[SelectionProblem, float] = WeakKeyDictionary()


def upper_bound(problem: SelectionProblem) -> float:
    """A proven upper bound on the value of any selection, by the Lagrangian dual."""
    if problem not in _dual_bounds:
        choice = Auto().choose(problem, seeded(0))
        assert choice.upper_bound is not None
        _dual_bounds[problem] = choice.upper_bound
    return _dual_bounds[problem]


def certify(problem: SelectionProblem, indices: Iterable[int]) -> Certificate:
    """How good is this set, provably?

    Args:
        problem: The instance.
        indices: Any m columns of B_u, from whatever source.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.5], [0.2, 0.8, 0.6]], m=1, k=1)
        >>> certify(problem, [2])
        Certificate(upper_bound=0.55, gap=0.0)
    """
    value = problem.value(indices)
    bound = max(value, upper_bound(problem))
    return Certificate(bound, relative_gap(value, bound))


def exchange_bound(problem: SelectionProblem, indices: Iterable[int]) -> float:
    """A cheap upper bound from one look at a set: what exchanging j classes could gain at most.

    OPT <= h(U) + max over j of (the j largest gains given U + the j largest weights in U). One pass
    over the matrix; looser than `upper_bound`. Leaving the weights out, as one may for lam = 0,
    would be wrong for lam > 0.
    """
    chosen = np.array(list(indices), np.int64)
    gains = problem.gains(chosen).numpy()[problem.unselected]
    gains = np.sort(gains[np.isfinite(gains)])[::-1]
    weights = np.sort(problem.modular[chosen])[::-1]
    exchanges = min(len(gains), len(weights))
    change = np.cumsum(gains[:exchanges] + weights[:exchanges])
    return problem.value(chosen) + max(0.0, float(change.max(initial=0.0)))


def average_similarity(problem: SelectionProblem) -> float:
    """Q of the theorems: mean similarity between the classes to choose from and the novel ones."""
    return float(problem.column_means[problem.unselected].mean())


def theorem_1(problem: SelectionProblem) -> Guarantee | None:
    """Algorithm 1 is optimal for a monotone objective and m >= K |N|; None elsewhere."""
    plenty = problem.m >= problem.k * problem.n_novel
    return Guarantee(1.0, 0.0) if plenty and not problem.modular.any() else None


def theorem_2(problem: SelectionProblem) -> Guarantee:
    """Algorithm 2, corrected: h(U) >= (1 - g) h(OPT) + g h(A), g = (1 - 1/m)^(m - i).

    A is what greedy has after i picks, so h(A) >= Q for i = K, B_s empty and lam = 0. The printed
    theorem puts g = 1/e, its limit for m -> infinity; g is larger for every finite m, and the
    printed bound fails on three classes (correction 10 in docs/paper.md). For other instances i = 0
    is used, after a shift by the largest modular weight that makes the objective monotone.
    """
    m, k = problem.m, problem.k
    if not problem.selected and m <= k:
        return Guarantee(1.0, 0.0)  # no top-k is full yet, so h is modular and greedy optimal
    if not problem.selected and not problem.modular.any():
        rest = (1 - 1 / m) ** (m - k)
        return Guarantee(1 - rest, rest * average_similarity(problem))
    rest = (1 - 1 / m) ** m if m else 0.0
    shift = max(0.0, float(problem.modular[problem.unselected].max(initial=0.0)))
    return Guarantee(1 - rest, rest * (problem.value([]) - m * shift))


def theorem_2_as_printed(problem: SelectionProblem) -> Guarantee:
    """h(U) >= (1 - 1/e) h(OPT) + Q/e, as the paper has it; not true of every instance."""
    return Guarantee(1 - 1 / math.e, average_similarity(problem) / math.e)


def theorem_4_random_greedy(problem: SelectionProblem) -> Guarantee:
    """Algorithm 3: E h(U) >= (1 - m/(e r))/e h(OPT) + C1 Q, with r = |B_u| and B_s empty.

    C1 = 1/e + (1 - 1/e)(m/r - lam), positive for lam < 1/(e - 1) (correction 9 in docs/paper.md).
    """
    share = problem.m / len(problem.unselected)
    c1 = 1 / math.e + (1 - 1 / math.e) * (share - problem.lam)
    ratio = (1 - share / math.e) / math.e
    return Guarantee(ratio, c1 * average_similarity(problem), expected=True)


def theorem_4_double_greedy(problem: SelectionProblem) -> Guarantee:
    """Algorithm 4: h(U) >= (1 + r/(2 sqrt((r-m) m)))^-1 h(OPT) + C2 Q, with r = |B_u|, B_s empty.

    C2 = (1 - lam) r / (2 sqrt((r-m) m) + r). The paper drops K beside m and a term of order 1/T.
    """
    r, m = len(problem.unselected), problem.m
    if m in (0, r):
        return Guarantee(1.0, 0.0)
    root = 2 * math.sqrt((r - m) * m)
    c2 = (1 - problem.lam) * r / (root + r)
    return Guarantee(root / (root + r), c2 * average_similarity(problem))
