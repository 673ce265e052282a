"""The Lagrangian dual: a proof of how good a selection can be, and better selections on the way.

For any threshold t_n >= floor, one per novel class, any price nu >= 0 of a unit of the budget, and
any allowed U,

    h(U) <= mean_n t_n + nu * budget + (sum over B_s) of rho_u(t)
            + best sum over an allowed U of (rho_u(t) - nu * cost_u),
    rho_u(t) = 1/(|N| k) * sum_n max(f[n, u] - t_n, 0) - w_u,

because a top-k mean is at most t + (1/k) * sum of what exceeds t, and nu * (budget - cost(U)) >= 0.
Without a budget nu is 0; with m as the only limit, the best U are the m largest rho. The right side
is convex; its minimum is the bound of the linear relaxation. `docs/paper.md` has the proof.

Limits, and signed similarities, leave a gap between that bound and the best set. Branching closes
it where it can: a class is put in, or left out, the bound is improved for both cases, and the
larger of the two holds.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from fsl_basesel import checks, topk
from fsl_basesel.limits import SLACK, Limits
from fsl_basesel.problem import ROUNDING, SelectionProblem
from fsl_basesel.progress import report
from fsl_basesel.selectors.base import Choice, Selector, largest
from fsl_basesel.selectors.greedy import fill, greedy, greedy_order, replace_unused
from fsl_basesel.selectors.swap import improve_by_swaps

# Scalings of the starting thresholds that are tried; the best one saves dozens of steps.
START_SCALES = (0.94, 0.96, 0.98, 1.0, 1.02)
# Steps without progress before the step length is halved and the best thresholds are restored.
PATIENCE = 15
BRANCHING = 3  # steps of all branches, in those of the first bound
BRANCH_STEPS = 24  # steps for one branch
BRANCHED = 1_000_000  # entries of a matrix that is not large


@dataclass(frozen=True)
class LagrangianDual(Selector):
    """Minimise the dual by deflected subgradient steps, recover selections, fix variables, branch.

    Starts from greedy. Every best set met on the way is itself a selection; the best one, improved
    by swaps, is returned with the bound. Columns that provably are in no better selection (or in
    every one) are fixed, which shrinks the work and tightens the bound. Stops at the requested gap.

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
        checks.non_negative(self.gap, "gap")
        if self.max_steps is not None:  # without a step, no bound
            checks.integer(self.max_steps, "max_steps", 1)

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        return solve(problem, greedy(problem), self.gap, self.max_steps)


def solve(
    problem: SelectionProblem,
    start: np.ndarray | list[int],
    gap: float = 0.0,
    max_steps: int | None = None,
) -> Choice:
    """Bound the optimum and look for better selections, beginning at the set `start`."""
    search = _Search(problem, np.asarray(start, np.int64), gap)
    return search.run(step_budget(problem) if max_steps is None else max_steps)


def step_budget(problem: SelectionProblem) -> int:
    """Steps worth taking: as many as touch some 4e9 matrix entries, from 100 to 600.

    A count, not a time limit: the same problem gets the same answer on every machine.
    """
    return int(np.clip(4e9 / (problem.n_candidates * problem.n_novel), 100, 600))


@dataclass
class Node:
    """A part of all choices: some classes are in, some are out, the others are free."""

    inside: np.ndarray  # columns that are in, besides B_s
    free: np.ndarray  # columns that may be chosen, ascending
    thresholds: np.ndarray  # the best ones met
    terms: np.ndarray  # columns of the set that the bound belongs to
    price: float = 0.0  # the best nu met
    bound: float = np.inf  # on the value of every choice of this part
    often: np.ndarray | None = None  # share of the last best sets that have each free column

    def keep(self, which: np.ndarray) -> None:
        """Leave only some of the free columns."""
        self.free = self.free[which]
        self.often = None if self.often is None else self.often[which]


class Point(NamedTuple):
    """A bound at given thresholds and price, and the allowed set that it belongs to."""

    bound: float
    scores: np.ndarray
    top: np.ndarray  # positions in `free`


class _Search:
    """The best set and its value, and how the bounds of nodes are improved."""

    def __init__(self, problem: SelectionProblem, start: np.ndarray, gap: float) -> None:
        self.problem, self.gap = problem, gap
        self.limits = problem.limits or Limits.of(problem)
        self.include = np.array(self.limits.include, np.int64)
        self.free = np.setdiff1d(problem.unselected, self.include)
        self.best_set = start
        self.best_value = self._value(start)
        self.budget = self.limits.budget * (1 + SLACK) if self.limits.has_budget else 0.0
        costs = self.limits.cost[start]
        usual = float(costs.mean()) if self.limits.has_budget and costs.any() else 1.0
        self.unit = 1.0 / (usual * problem.scale)  # nu in the scale of the thresholds

    def run(self, steps: int) -> Choice:
        root = self._root()
        self._improve_bound(root, steps, "proving a bound")
        report("proving a bound", steps, steps)
        price = self._price(root.thresholds) if self.limits.has_budget else None
        self._recover(improve_by_swaps(self.problem, self.best_set))
        nodes = self._branch(root, steps)
        # Classes in no top k are replaced by what greedy adds to the others.
        self.best_set = replace_unused(self.problem, self.best_set)
        self.best_value = max(self.best_value, self._value(self.best_set))
        left = (
            one for one in nodes if one.bound - self.best_value > self._rounding(one, one.terms)
        )
        bound = max([self.best_value, *(one.bound for one in left)])
        return Choice(greedy_order(self.problem, self.best_set), bound, price)

    def _branch(self, root: Node, steps: int) -> list[Node]:
        """Parts that together hold every better choice, the one with the largest bound split.

        Only where the first bound is loose: with limits, and with signed similarities unless the
        matrix is large, where a step is expensive. `steps` are those of the first bound.
        """
        problem = self.problem
        large = problem.n_novel * problem.n_candidates > BRANCHED
        if problem.limits is None and (large or problem.floor >= 0.0):
            return [root]
        steps *= 1 if large else BRANCHING
        numbers = itertools.count()
        waiting = [(-root.bound, next(numbers), root)]
        left = steps
        while waiting and left > 0 and not self._closed(waiting[0][2], self.gap):
            node = heapq.heappop(waiting)[2]
            report("branching", steps - left, steps)
            if not len(node.free):  # what is in is the one choice of this part
                self._recover(node.inside)
                continue
            for child in self._branches(node):
                left -= self._improve_bound(child, min(BRANCH_STEPS, left), None)
                if not self._closed(child, 0.0):
                    heapq.heappush(waiting, (-child.bound, next(numbers), child))
        report("branching", steps, steps)
        return [node for *_, node in waiting if not self._closed(node, 0.0)]

    def _price(self, thresholds: np.ndarray) -> float:
        """The nu that gives the best bound with these thresholds, no class being fixed.

        With it, a further unit of the budget raises that bound by nu, and the optimum by no more.
        """
        node = Node(self.include, self.free, thresholds, self.best_set)

        def at(price: float) -> tuple[float, bool]:
            point = self._evaluate(node, thresholds, price)
            chosen = np.concatenate([self.include, self.free[point.top]])
            return point.bound, self.limits.affords(self.limits.spent(chosen))

        bound, affordable = at(0.0)
        if affordable:
            return 0.0
        best, low, high = (bound, 0.0), 0.0, self.unit
        while not at(high)[1] and high < 1e300:
            low, high = high, 4 * high
        for _ in range(40):
            middle = 0.5 * (low + high)
            bound, affordable = at(middle)
            best = min(best, (bound, middle))
            low, high = (low, middle) if affordable else (middle, high)
        return best[1]

    def _root(self) -> Node:
        problem, limits = self.problem, self.limits
        value, _ = problem.state_of(problem.with_selected(self.best_set))
        kth = value[:, -1]
        prices = [0.0]
        if limits.has_budget:
            outside = np.setdiff1d(self.free, self.best_set)
            ratio = problem.gains_over(kth, outside) / np.maximum(limits.cost[outside], 1e-300)
            finite = np.sort(ratio[np.isfinite(ratio) & (ratio > 0)])[::-1]
            if len(finite):
                usual = float(finite[min(2, len(finite) - 1)])
                prices += [0.5 * usual, usual, 2.0 * usual]
        node = Node(self.include, self.free, kth, self.best_set)
        self._tighten(node)
        tries = [
            (problem.floor + scale * (kth - problem.floor), price)
            for scale in START_SCALES
            for price in prices
        ]
        node.thresholds, node.price = min(tries, key=lambda at: self._evaluate(node, *at).bound)
        return node

    def _closed(self, node: Node, gap: float) -> bool:
        """Whether nothing in this part is better than the best set, but for rounding and gap."""
        if not np.isfinite(node.bound):
            return bool(node.bound < 0.0)  # -inf: there is no choice in this part
        share = gap * abs(node.bound - self.problem.floor)  # as in `relative_gap`
        allowed = max(share, ROUNDING * abs(node.bound)) + self._rounding(node, node.terms)
        return node.bound - self.best_value <= allowed

    def _rounding(self, node: Node, terms: np.ndarray) -> float:
        price = node.price * self.limits.spent(terms) if self.limits.has_budget else 0.0
        return self.problem.rounding(self.best_set, terms) + ROUNDING * price

    def _evaluate(self, node: Node, thresholds: np.ndarray, price: float) -> Point:
        problem, limits = self.problem, self.limits
        fixed = problem.with_selected(node.inside)
        gains, mean = problem.gains_and_mean(thresholds, np.concatenate([node.free, fixed]))
        scores, inside = gains[: len(node.free)], gains[len(node.free) :]
        if limits.has_budget:
            scores = scores - price * limits.cost[node.free]
        count = limits.m - len(node.inside)
        if problem.limits is None:
            top = largest(scores, min(count, len(scores)))
        else:
            have = limits.counts(node.inside)
            most, least = limits.most - have, np.maximum(limits.least - have, 0)
            top = limits.best(scores, node.free, count, most, least)
        bound = mean + float(scores[top].sum()) + float(inside.sum())
        if limits.has_budget:
            bound += price * (self.budget - limits.spent(node.inside))
        return Point(bound, scores, top)

    def _tighten(self, node: Node) -> None:
        """Leave out what cannot be added: too expensive, or too many of its group or at all.

        The bound is -inf if no choice of what is left keeps to the limits.
        """
        limits = self.limits
        have, count = limits.counts(node.inside), limits.m - len(node.inside)
        spent = limits.spent(node.inside)
        keep = (have < limits.most)[limits.group[node.free]] & (count > 0)
        if limits.has_budget:
            room = self.budget - spent
            keep &= limits.cost[node.free] <= room + SLACK * limits.budget
        if not keep.all():
            node.keep(keep)
        need = np.maximum(limits.least - have, 0)
        reach = np.minimum(limits.counts(node.free), limits.most - have)
        short = reach.sum() < count and not limits.has_budget
        if count < need.sum() or (reach < need).any() or short or not limits.affords(spent):
            node.bound = -np.inf

    def _improve_bound(self, node: Node, steps: int, task: str | None) -> int:
        """Subgradient steps from the node's thresholds; returns how many were made."""
        problem, limits = self.problem, self.limits
        thresholds, price = node.thresholds, node.price
        direction, price_direction = np.zeros_like(thresholds), 0.0
        length, idle, fixed_at, size = 1.0, 0, np.inf, 0.0
        for step in range(steps):
            if task is not None:
                report(task, step, steps)
            if node.bound == -np.inf:
                return step
            at = self._evaluate(node, thresholds, price)
            chosen = np.concatenate([node.inside, node.free[at.top]])
            if at.bound < node.bound - ROUNDING * abs(at.bound):
                node.bound, node.thresholds, node.price = at.bound, thresholds, price
                node.terms, idle = chosen, 0
            else:
                idle += 1
            if idle == 0 or (step + 1) % 5 == 0:
                self._recover(self._repaired(chosen, thresholds))
            if self._closed(node, self.gap):
                return step + 1
            often = np.zeros(len(node.free))
            often[at.top] = 1.0
            node.often = 0.8 * (often if node.often is None else node.often) + 0.2 * often
            slack = at.bound - self.best_value + ROUNDING * abs(at.bound)
            slack += self._rounding(node, chosen)
            if slack <= 0.9 * fixed_at and (0 < len(at.top) < len(node.free) or limits.has_budget):
                fixed_at = slack
                if self._fix(node, at, slack):
                    continue
            if idle >= PATIENCE:
                length, idle = length / 2, 0
                thresholds, price = node.thresholds, node.price
                direction, price_direction = np.zeros_like(thresholds), 0.0
                if length < 1e-4:
                    return step + 1
                continue
            members = problem.with_selected(chosen)
            above = topk.count_above(problem.by_candidate, members, thresholds)
            gradient = problem.row_weights * (problem.k - above) / problem.scale
            price_gradient = 0.0
            if limits.has_budget:
                price_gradient = (self.budget - limits.spent(chosen)) * self.unit
                if price == 0.0 and price_gradient > 0.0:
                    price_gradient = 0.0  # nu stays at 0
            # Deflection (Camerini, Fratta, Maffioli 1975): turn away from the last direction where
            # the two disagree, which stops the zigzag of plain subgradient steps.
            against = problem.rows.sum_of(direction * gradient) + price_direction * price_gradient
            weight = -1.5 * against / size if against < 0 else 0.0
            direction = gradient + weight * direction
            price_direction = price_gradient + weight * price_direction
            size = problem.rows.sum_of(direction * direction) + price_direction**2
            if size == 0.0:
                return step + 1  # a zero subgradient: the dual is at its minimum
            stride = length * max(at.bound - self.best_value, 0.0) / size
            thresholds = np.maximum(problem.floor, thresholds - stride * direction)
            price = max(0.0, price - stride * price_direction * self.unit)
        return steps

    def _fix(self, node: Node, at: Point, slack: float) -> bool:
        """Fix columns that every better choice of this part has, or none has; True if any was.

        Forcing a column in (or out) lowers the bound by an exchange. If that falls below the best
        value met, no choice better than that one has the column in (or out).
        """
        loss_in, loss_out, inside = exchange_losses(self.limits, node, at)
        own = ROUNDING * np.abs(self.problem.modular[node.free])
        own = own + ROUNDING * node.price * self.limits.cost[node.free]
        leave = ~inside & (loss_in > slack + own)
        stay = inside & (loss_out > slack + own)
        if not (leave.any() or stay.any()):
            return False
        node.inside = np.concatenate([node.inside, node.free[stay]])
        node.keep(~(leave | stay))
        self._tighten(node)
        return True

    def _branches(self, node: Node) -> list[Node]:
        """The node cut in two by the free class that the steps could least decide on."""
        assert node.often is not None  # a part is branched after steps on it, or on its parent
        at = self._evaluate(node, node.thresholds, node.price)
        size = np.abs(at.scores + node.price * self.limits.cost[node.free])
        doubt = np.minimum(node.often, 1.0 - node.often) * (size + 1e-300)
        if not doubt.any():
            loss_in, loss_out, inside = exchange_losses(self.limits, node, at)
            doubt = -np.where(inside, loss_out, loss_in)
        pick = int(doubt.argmax())
        others, often = np.delete(node.free, pick), np.delete(node.often, pick)
        children = []
        for more in (node.free[pick : pick + 1], node.free[:0]):
            inside = np.concatenate([node.inside, more])
            child = replace(node, inside=inside, free=others, often=often)
            self._tighten(child)
            children.append(child)
        return children

    def _repaired(self, chosen: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        """An allowed set near `chosen`, which keeps to all limits but perhaps the budget."""
        limits = self.limits
        if not limits.has_budget:
            return chosen
        spent = limits.spent(chosen)
        if not limits.affords(spent):
            cost, group = limits.cost[chosen], limits.group[chosen]
            worth = self.problem.gains_over(thresholds, chosen) / np.maximum(cost, 1e-300)
            keep = (cost <= 0.0) | np.isin(chosen, limits.include)
            counts = limits.counts(chosen)
            for at in np.argsort(worth, kind="stable"):
                must_stay = keep[at] or counts[group[at]] <= limits.least[group[at]]
                keep[at] = must_stay or limits.affords(spent)
                if not keep[at]:
                    counts[group[at]] -= 1
                    spent -= float(cost[at])
            chosen = chosen[keep]
            if limits.fault(chosen.tolist()) is not None:
                return self.best_set
        return fill(self.problem, chosen)

    def _recover(self, candidate_set: np.ndarray | list[int]) -> None:
        found = np.asarray(candidate_set, np.int64)
        value = self._value(found)
        if value > self.best_value:
            self.best_value, self.best_set = value, found

    def _value(self, chosen: np.ndarray) -> float:
        return self.problem.value_of(self.problem.with_selected(chosen))


def exchange_losses(
    limits: Limits, node: Node, at: Point
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the sum of scores loses at least if a column is forced in, or out; and which are in.

    Allowed sets are the bases of a matroid, so forcing one column costs one exchange.
    """
    inside = np.zeros(len(node.free), bool)
    inside[at.top] = True
    group, scores = limits.group[node.free], at.scores
    worst_in = np.full(len(limits.most), np.inf)  # of each group
    np.minimum.at(worst_in, group[inside], scores[inside])
    best_out = np.full(len(limits.most), -np.inf)
    np.maximum.at(best_out, group[~inside], scores[~inside])
    counts = limits.counts(np.concatenate([node.inside, node.free[inside]]))
    spare, room = counts > limits.least, counts < limits.most
    worst_spare = worst_in[spare].min(initial=np.inf)
    best_room = best_out[room].max(initial=-np.inf)
    if limits.has_budget:
        best_room = max(best_room, 0.0)  # nobody takes the place
        if counts.sum() < limits.m:
            worst_spare = min(worst_spare, 0.0)  # there is a place
    partner_in = np.where(room[group], np.minimum(worst_in[group], worst_spare), worst_in[group])
    partner_out = np.where(spare[group], np.maximum(best_out[group], best_room), best_out[group])
    return partner_in - scores, scores - partner_out, inside
