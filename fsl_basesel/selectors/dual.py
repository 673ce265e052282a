"""The Lagrangian dual: a proof of how good a selection can be, and better selections on the way.

For any threshold t_n >= floor, one per novel class, and any U of size m,

    h(U) <= mean_n t_n + (sum over B_s and the m largest over B_u) of rho_u(t),
    rho_u(t) = 1/(|N| k) * sum_n max(f[n, u] - t_n, 0) - w_u,

because a top-k mean is at most t + (1/k) * sum of what exceeds t. The right side, D(t), is convex;
its minimum is the bound of the linear relaxation. `docs/paper.md` has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel import checks, topk
from fsl_basesel.problem import ROUNDING, SelectionProblem
from fsl_basesel.progress import report
from fsl_basesel.selectors.base import Choice, Selector, largest
from fsl_basesel.selectors.greedy import greedy, greedy_order, replace_unused
from fsl_basesel.selectors.swap import improve_by_swaps

# Scalings of the starting thresholds that are tried; the best one saves dozens of steps.
START_SCALES = (0.94, 0.96, 0.98, 1.0, 1.02)
# Steps without progress before the step length is halved and the best thresholds are restored.
PATIENCE = 15


@dataclass(frozen=True)
class LagrangianDual(Selector):
    """Minimise the dual by deflected subgradient steps, recover selections, fix variables.

    Starts from greedy, or from a set given to `solve`. Every top-m set met on the way is itself a
    selection; the best one, improved by swaps, is returned with the bound. Columns that provably
    are in no better selection (or in every one) are fixed, which shrinks the work and tightens the
    bound. Stops at the requested gap.

    Attributes:
        gap: Relative gap at which to stop; 0 asks for a proof of optimality.
        max_steps: Steps before giving up on the gap; None is `step_budget` of the problem.
    """

    name: ClassVar[str] = "dual"
    serves_limits: ClassVar[bool] = True
    guarantee: ClassVar[str] = "at least greedy's value; certified per instance by its upper bound"

    gap: float = 0.0
    max_steps: int | None = None

    def __post_init__(self) -> None:
        check_effort(self.gap, self.max_steps)

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        return proven(problem, greedy(problem), self.gap, self.max_steps)


@dataclass(frozen=True)
class DualResult:
    """The best selection met, its value, and the proven bound on every selection's value."""

    indices: list[int]
    value: float
    upper_bound: float
    steps: int = 0
    price: float | None = None


def proven(
    problem: SelectionProblem, start: np.ndarray, gap: float, max_steps: int | None
) -> Choice:
    """The best set that the dual of this kind of problem finds, with its bound."""
    from fsl_basesel.selectors.limited import solve_limited  # it imports this module

    solve = solve_dual if problem.limits is None else solve_limited
    result = solve(problem, start, gap, max_steps)
    return Choice(result.indices, result.upper_bound, result.price)


def solve_dual(
    problem: SelectionProblem,
    start: np.ndarray,
    gap: float = 0.0,
    max_steps: int | None = None,
) -> DualResult:
    """Bound the optimum and look for better selections, beginning at the set `start`.

    Args:
        problem: What to select from.
        start: A good selection of exactly m columns; the better, the faster.
        gap: Relative gap at which to stop.
        max_steps: Most subgradient steps; None is `step_budget(problem)`.
    """
    check_effort(gap, max_steps)
    search = _Search(problem, np.asarray(start, np.int64))
    budget = step_budget(problem) if max_steps is None else max_steps
    for step in range(budget):
        report("proving a bound", step, budget)
        if search.closed(gap) or not search.advance():
            break
    report("proving a bound", budget, budget)
    search.polish()
    return DualResult(
        indices=greedy_order(problem, search.best_set),
        value=search.best_value,
        upper_bound=search.upper_bound,
        steps=search.steps,
    )


def check_effort(gap: float, max_steps: int | None) -> None:
    """Refuse a gap or a number of steps that no search can have; without a step, no bound."""
    checks.non_negative(gap, "gap")
    if max_steps is not None:
        checks.integer(max_steps, "max_steps", 1, None, "")


def step_budget(problem: SelectionProblem) -> int:
    """Steps worth taking: as many as touch some 4e9 matrix entries, from 100 to 600.

    A count, not a time limit: the same problem gets the same answer on every machine.
    """
    return int(np.clip(4e9 / (problem.n_candidates * problem.n_novel), 100, 600))


class _Search:
    """State of the minimisation: thresholds, direction, fixed columns, best set and bound."""

    def __init__(self, problem: SelectionProblem, start: np.ndarray) -> None:
        self.problem = problem
        self.inside = np.array(problem.selected, np.int64)  # B_s and columns fixed in
        self.free = problem.unselected
        self.best_set = start
        members = np.concatenate([self.inside, start])
        value, _ = problem.state_of(members)
        self.best_value = problem.value_from(value, members)
        self.bound = np.inf
        self.bound_set = start  # the columns whose terms the bound consists of
        self.steps = 0
        self.step_length = 1.0
        self.idle = 0
        self.fixed_at = np.inf
        self.thresholds = self._start(value[:, -1])
        self.best_thresholds = self.thresholds
        self.direction = np.zeros_like(self.thresholds)
        self.squared = 0.0  # length of the direction

    @property
    def upper_bound(self) -> float:
        """The optimum is the best value met or lies below the bound of what is left."""
        return self.bound if self.bound - self.best_value > self._rounding() else self.best_value

    def closed(self, gap: float) -> bool:
        allowed = max(gap, ROUNDING) * abs(self.bound) + self._rounding()
        return self.bound < np.inf and self.bound - self.best_value <= allowed

    def advance(self) -> bool:
        """One evaluation and one step; False when nothing more can be gained."""
        self.steps += 1
        bound, reduced, top = self._evaluate(self.thresholds)
        chosen = self.free[top]
        if bound < self.bound - ROUNDING * abs(bound):
            self.bound, self.best_thresholds, self.idle = bound, self.thresholds, 0
            self.bound_set = self._with_fixed(chosen)
        else:
            self.idle += 1
        if self.idle == 0 or self.steps % 5 == 0:
            self._recover(self._with_fixed(chosen))
        if self._fix(bound, reduced, top):
            return True
        if self.idle >= PATIENCE:
            self.step_length /= 2
            self.idle = 0
            self.thresholds = self.best_thresholds
            self.direction = np.zeros_like(self.direction)
            return self.step_length > 1e-4
        return self._step(bound, chosen)

    def polish(self) -> None:
        """A swap pass on the best set, which the dual does not look at class by class.

        Where that leaves classes nobody needs, others that add nothing either take their places.
        """
        better = np.array(improve_by_swaps(self.problem, self.best_set), np.int64)
        self._recover(better)
        self.best_set = replace_unused(self.problem, self.best_set)
        self.best_value = max(self.best_value, self._value_of(self.best_set))

    def _start(self, kth: np.ndarray) -> np.ndarray:
        floor = self.problem.floor
        tries = [floor + scale * (kth - floor) for scale in START_SCALES]
        return min(tries, key=lambda thresholds: self._evaluate(thresholds)[0])

    def _count(self) -> int:
        """How many of the free columns are still to be chosen."""
        return self.problem.m - (len(self.inside) - len(self.problem.selected))

    def _evaluate(self, thresholds: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """D(t), rho of the free columns, and the positions of the largest of them."""
        problem = self.problem
        both = np.concatenate([self.free, self.inside])
        gains, mean = problem.gains_and_mean(thresholds, both)
        reduced, inside = gains[: len(self.free)], gains[len(self.free) :]
        top = largest(reduced, self._count())
        bound = mean + float(reduced[top].sum())
        if len(self.inside):
            bound += float(inside.sum())
        return bound, reduced, top

    def _step(self, bound: float, chosen: np.ndarray) -> bool:
        problem = self.problem
        chosen = np.concatenate([self.inside, chosen])
        above = topk.count_above(problem.by_candidate, chosen, self.thresholds)
        subgradient = problem.row_weights * (problem.k - above) / problem.scale
        # Deflection (Camerini, Fratta, Maffioli 1975): turn away from the last direction where the
        # two disagree, which stops the zigzag of plain subgradient steps.
        against = problem.rows.sum_of(self.direction * subgradient)
        weight = -1.5 * against / self.squared if against < 0 else 0.0
        self.direction = subgradient + weight * self.direction
        self.squared = problem.rows.sum_of(self.direction * self.direction)
        if self.squared == 0.0:
            return False  # a zero subgradient: the dual is at its minimum
        stride = self.step_length * (bound - self.best_value) / self.squared
        self.thresholds = np.maximum(problem.floor, self.thresholds - stride * self.direction)
        return True

    def _rounding(self) -> float:
        return self.problem.rounding(self.best_set, self.bound_set)

    def _with_fixed(self, chosen: np.ndarray) -> np.ndarray:
        return np.concatenate([self.inside[len(self.problem.selected) :], chosen])

    def _recover(self, candidate_set: np.ndarray) -> None:
        value = self._value_of(candidate_set)
        if value > self.best_value:
            self.best_value, self.best_set = value, candidate_set

    def _value_of(self, candidate_set: np.ndarray) -> float:
        selected = np.array(self.problem.selected, np.int64)
        return self.problem.value_of(np.concatenate([selected, candidate_set]))

    def _fix(self, bound: float, reduced: np.ndarray, top: np.ndarray) -> bool:
        """Fix columns that every better selection has, or none has; True if any was fixed.

        Forcing column u in (or out) lowers D by the difference to the column it displaces. If that
        falls below the best value met, no selection better than that one has u in (or out).
        """
        chosen = self._with_fixed(self.free[top])
        slack = bound - self.best_value + ROUNDING * abs(bound)
        slack += self.problem.rounding(self.best_set, chosen)
        if slack > 0.9 * self.fixed_at or not 0 < len(top) < len(self.free):
            return False
        self.fixed_at = slack
        in_top = np.zeros(len(self.free), bool)
        in_top[top] = True
        last_in, first_out = reduced[in_top].min(), reduced[~in_top].max()
        slack = slack + ROUNDING * np.abs(self.problem.modular[self.free])
        must_leave = ~in_top & (last_in - reduced > slack)
        must_stay = in_top & (reduced - first_out > slack)
        if not (must_leave.any() or must_stay.any()):
            return False
        self.inside = np.concatenate([self.inside, self.free[must_stay]])
        self.free = self.free[~(must_leave | must_stay)]
        return True
