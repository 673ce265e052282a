"""Algorithm 2: add the class with the largest gain, m times; and what follows once none gains.

Without a diversity or cost term the objective is used up as soon as every novel class has its K
best candidates: no further class adds anything, and any of them could fill the places that are
left, with the same h. A next neighbour makes a better learner than the lowest index
(docs/concepts.md), so greedy goes on with the same objective for K + 1, then K + 2, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import ClassVar

import numpy as np

from fsl_basesel import topk
from fsl_basesel.compiled import kernel
from fsl_basesel.limits import Remaining
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector

FEWEST, MOST = 16, 64  # old gains that are computed afresh at once
LEVELS = 16  # values of K tried with all classes that are left, before rows are sorted


@dataclass(frozen=True)
class GreedyOnTarget(Selector):
    """Algorithm 2 by lazy evaluation.

    Old gains are kept as upper bounds in a heap, and only those that surface are computed afresh, a
    few at a time. Gains never grow, and the float64 sums are taken in one fixed order, so a gain
    never exceeds its bound and the picks are those of the plain algorithm.

    Works for lam > 0 too: |U| = m is fixed, so a constant added to every modular weight turns the
    objective into a monotone one with the same picks.

    With limits, it passes over what no longer fits; with a budget it also goes by gain per cost and
    takes the better set of the two.
    """

    name: ClassVar[str] = "greedy-target"
    serves_limits: ClassVar[bool] = True
    guarantee: ClassVar[str] = (
        "h(U) >= (1 - g) h(OPT) + g Q, g = (1 - 1/m)^(m - K), lam = 0 (Theorem 2)"
    )

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        return Choice(greedy(problem).tolist())


def greedy(problem: SelectionProblem) -> np.ndarray:
    """The m picks of greedy, or as many as the limits allow."""
    if problem.limits is None:
        return _extend(problem, np.empty(0, np.int64), problem.unselected, problem.m)
    must = np.array(problem.limits.include, np.int64)
    found = fill(problem, must)
    if problem.limits.has_budget:
        other = fill(problem, must, per_cost=True)
        if _value(problem, other) > _value(problem, found):
            found = other
    return np.array(greedy_order(problem, found), np.int64)


def fill(problem: SelectionProblem, chosen: np.ndarray, per_cost: bool = False) -> np.ndarray:
    """`chosen` with what greedy adds to it within the limits.

    With a budget only what gains something, and what groups must have.

    Args:
        problem: The objective, with limits.
        chosen: A set that can be completed.
        per_cost: Whether to go by gain per cost.
    """
    limits = problem.limits
    assert limits is not None
    candidates = np.setdiff1d(problem.unselected, chosen)
    room = Remaining(limits, candidates, chosen)
    candidates = room.without_misfits(candidates)
    if limits.exact:
        more = _extend(problem, chosen, candidates, limits.m - len(chosen), room)
        return np.concatenate([chosen, more])
    price = None
    if per_cost:  # what is free comes first
        least = limits.cost[limits.cost > 0.0].min(initial=1.0)
        price = np.where(limits.cost > 0.0, limits.cost, 1e-3 * least)
    members = np.concatenate([np.array(problem.selected, np.int64), chosen])
    value, index = problem.state_of(members)
    count = limits.m - len(chosen)
    picks = _picks(problem, value, index, candidates, count, room, price, 0.0)
    while room.needs.any():
        needed = (room.needs > 0)[limits.group[candidates]]
        left = np.setdiff1d(candidates[needed], picks)
        more = _picks(problem, value, index, left, 1, room, price, -np.inf)
        picks = np.concatenate([picks, more])
    return np.concatenate([chosen, picks])


def _value(problem: SelectionProblem, chosen: np.ndarray) -> float:
    return problem.value_of(np.concatenate([np.array(problem.selected, np.int64), chosen]))


def greedy_order(problem: SelectionProblem, members: np.ndarray) -> list[int]:
    """`members` in the order greedy would add them, for sets that were found as a whole.

    So the first classes of any selection are those that matter most, and a prefix of it is a good
    smaller selection.
    """
    candidates = np.sort(np.asarray(members, np.int64))
    return _extend(problem, candidates[:0], candidates, len(candidates)).tolist()


def replace_unused(problem: SelectionProblem, members: np.ndarray) -> np.ndarray:
    """`members` with those that are in nobody's top k replaced by what greedy adds to the others.

    No row's top k gets worse by it, so h does not fall. A no-op where classes have a price of their
    own: there a class that nobody lists may have been chosen for its price.
    """
    chosen = np.asarray(members, np.int64)
    if gain_threshold(problem) < 0.0 or problem.limits is not None:
        return chosen
    both = np.concatenate([np.array(problem.selected, np.int64), chosen])
    used = np.sort(chosen[is_used(problem, problem.state_of(both)[1])[chosen]])
    if len(used) == len(chosen):
        return chosen
    others = np.setdiff1d(problem.unselected, used)
    return np.concatenate([used, _extend(problem, used, others, len(chosen) - len(used))])


def is_used(problem: SelectionProblem, index: np.ndarray) -> np.ndarray:
    """`[|B|]` bool: columns in the top k of some novel class that counts, given a state's index."""
    index = index[problem.row_weights > 0.0, : problem.depth]
    listed = np.zeros(problem.n_candidates)
    listed[index[index >= 0]] = 1.0
    return problem.rows.sum(listed[None]) > 0.0


def gain_threshold(problem: SelectionProblem) -> float:
    """What a gain has to exceed: 0, or nothing where a class has a price whatever else is in."""
    return -np.inf if problem.modular.any() else 0.0


def _extend(
    problem: SelectionProblem,
    start: np.ndarray,
    candidates: np.ndarray,
    count: int,
    room: Remaining | None = None,
) -> np.ndarray:
    """`count` greedy picks, by the objective while it tells classes apart, then by a larger K.

    Args:
        problem: The objective.
        start: Columns that are in before the first pick, besides B_s.
        candidates: Ascending columns to pick from, none of them in `start` or B_s.
        count: How many to pick.
        room: What the limits allow.
    """
    members = np.concatenate([np.array(problem.selected, np.int64), start])
    value, index = problem.state_of(members)
    picks = _picks(problem, value, index, candidates, count, room)
    k, kth = problem.depth, value[:, -1].copy()
    neighbours: _Neighbours | None = None
    # With a K beyond |members| entries of every row are missing: what adds nothing then never does.
    while len(picks) < count and k <= len(members) + len(picks):
        # No class left exceeds the k-th value of any row, or it had been picked. So whatever enters
        # a row with k + 1 becomes its last value, and a state of one value is enough.
        if k < problem.depth + LEVELS:
            base = np.sort(np.concatenate([members, picks]))  # in order of memory
            left = np.setdiff1d(candidates, picks, assume_unique=True)
            value = _next_values(problem.by_candidate, base, k, kth, problem.floor)[:, None]
        else:
            if neighbours is None:
                neighbours = _Neighbours(problem, members, candidates)
            left, value = neighbours.beyond(k, picks)
        index = np.full(value.shape, -1, np.int64)
        more = _picks(problem, value, index, left, count - len(picks), room)
        picks, k, kth = np.concatenate([picks, more]), k + 1, value[:, 0].copy()
    rest: list[int] = []
    for u in np.setdiff1d(candidates, picks, assume_unique=True).tolist():
        if len(picks) + len(rest) == count:
            break
        if room is None or room.fits(u):
            rest.append(u)
            if room is not None:
                room.add(u)
    return np.concatenate([picks, np.array(rest, np.int64)])


def _picks(
    problem: SelectionProblem,
    value: np.ndarray,
    index: np.ndarray,
    candidates: np.ndarray,
    count: int,
    room: Remaining | None = None,
    price: np.ndarray | None = None,
    threshold: float | None = None,
) -> np.ndarray:
    """Greedy picks for one K, beginning at a state (see `fsl_basesel.topk`), which changes.

    Ends early where no gain exceeds the threshold, by default `gain_threshold`, or nothing fits.

    Args:
        problem: The objective.
        value: Of the state.
        index: Of the state.
        candidates: Columns to pick from, ascending.
        count: How many to pick at most.
        room: What the limits allow.
        price: What to divide gains by.
        threshold: What a gain has to exceed.
    """

    def worth(which: np.ndarray) -> np.ndarray:
        gains = problem.gains_over(value[:, -1], which)
        return gains if price is None else gains / price[which]

    threshold = gain_threshold(problem) if threshold is None else threshold
    # Minus the bound, so that the largest comes first; the class; the pick at which it was exact.
    bounds = (-worth(candidates)).tolist()
    heap = [(bound, u, 0) for bound, u in zip(bounds, candidates.tolist(), strict=True)]
    heapify(heap)
    picks: list[int] = []
    while len(picks) < count and heap:
        now, at_once = len(picks), FEWEST
        while heap and heap[0][2] < now:
            old: list[int] = []
            while heap and heap[0][2] < now and len(old) < at_once:
                old.append(heappop(heap)[1])
            which = np.array(old) if room is None else room.without_misfits(np.array(old))
            for bound, u in zip((-worth(which)).tolist(), which.tolist(), strict=True):
                heappush(heap, (bound, u, now))
            at_once = min(2 * at_once, MOST)
        if not heap:
            break
        bound, best, _ = heap[0]
        if -bound <= threshold:
            break
        heappop(heap)
        if room is not None:
            if not room.fits(best):
                continue
            room.add(best)
        picks.append(best)
        topk.insert(problem.by_candidate, [best], value, index)
    return np.array(picks, np.int64)


class _Neighbours:
    """Every row's classes in falling order: for large K, few of those left can gain anything."""

    def __init__(
        self, problem: SelectionProblem, members: np.ndarray, candidates: np.ndarray
    ) -> None:
        self.problem = problem
        pool = np.sort(np.concatenate([members, candidates]))
        self.order = np.empty((problem.by_candidate.shape[1], len(pool)), np.int32)
        for n in range(len(self.order)):
            falling = np.argsort(-problem.by_candidate[pool, n], kind="stable")
            self.order[n] = pool[falling]
        self.inside = np.zeros(problem.n_candidates, bool)
        self.inside[members] = True
        self.known = 0  # picks that are marked as inside
        self.first = np.zeros(len(self.order), np.int64)  # the first class of a row not inside

    def beyond(self, k: int, picks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Classes left that exceed some row's (k+1)-th value, and those values, `[|N|, 1]`."""
        self.inside[picks[self.known :]] = True
        self.known = len(picks)
        problem = self.problem
        value = np.empty((len(self.order), 1))
        above = np.zeros(problem.n_candidates)
        _find_above(
            *(problem.by_candidate, self.order, self.inside, problem.row_weights, k, problem.floor),
            *(self.first, value, above),
        )
        return np.flatnonzero(problem.rows.sum(above[None])), value


@kernel
def _find_above(
    columns: np.ndarray,
    order: np.ndarray,
    inside: np.ndarray,
    weight: np.ndarray,
    k: int,
    floor: float,
    first: np.ndarray,
    value: np.ndarray,
    above: np.ndarray,
) -> None:
    """The (k+1)-th value of each row over the classes inside, and which others exceed it."""
    for n in range(order.shape[0]):
        value[n, 0] = np.inf
        if weight[n] == 0.0:
            continue  # nothing counts there
        while first[n] < order.shape[1] and inside[order[n, first[n]]]:
            first[n] += 1
        if first[n] > k:
            value[n, 0] = columns[order[n, k], n]
            continue  # nobody left exceeds it
        stop, found = first[n], first[n]
        while stop < order.shape[1] and found <= k:
            found += inside[order[n, stop]]
            stop += 1
        value[n, 0] = np.float64(columns[order[n, stop - 1], n]) if found > k else floor
        for i in range(first[n], stop):
            u = order[n, i]
            if not inside[u] and columns[u, n] > value[n, 0]:
                above[u] = 1.0


@kernel
def _next_values(
    columns: np.ndarray, members: np.ndarray, k: int, kth: np.ndarray, floor: float
) -> np.ndarray:
    """The (k+1)-th value of every row over `members`, given the k-th."""
    found = np.full(columns.shape[1], floor)
    reached = np.zeros(columns.shape[1], np.int64)
    for u in members:
        column = columns[u]
        for n in range(column.shape[0]):  # without branches: vector code
            similarity, last, best = np.float64(column[n]), kth[n], found[n]
            below = similarity < last
            reached[n] += 1 - np.int64(below)
            candidate = similarity if below else floor
            found[n] = candidate if candidate > best else best
    for n in range(columns.shape[1]):
        if reached[n] > k:  # some are equal
            found[n] = kth[n]
    return found
