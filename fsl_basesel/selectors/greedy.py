"""Algorithm 2: add the class with the largest gain, m times; and what it adds once no class gains.

Without a diversity or cost term the objective is used up as soon as every novel class has its K
best candidates: no further class adds anything, so every choice of the remaining classes has the
same h. Further neighbours train a better network than classes of lowest index (docs/concepts.md),
so greedy continues with the same objective for K + 1, then K + 2, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import ClassVar

import numpy as np

from fsl_basesel import topk
from fsl_basesel.limits import Remaining
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector

FEWEST, MOST = 8, 64  # old gains that are computed afresh at once


@dataclass(frozen=True)
class GreedyOnTarget(Selector):
    """Algorithm 2 by lazy evaluation.

    Old gains are kept as upper bounds in a heap, and only those that surface are computed afresh, a
    few at a time. Gains never grow, and the float64 sums are taken in one fixed order, so a gain
    never exceeds its bound and the picks are those of the plain algorithm.

    Works for lam > 0 too: |U| = m is fixed, so a constant added to every modular weight turns the
    objective into a monotone one with the same picks.

    With limits, it skips what no longer fits; with a budget it also compares gains per cost and
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
        found = better(problem, found, fill(problem, must, per_cost=True))
    return np.array(greedy_order(problem, found), np.int64)


def fill(problem: SelectionProblem, chosen: np.ndarray, per_cost: bool = False) -> np.ndarray:
    """`chosen` with what greedy adds to it within the limits, by gain or by gain per cost.

    With a budget only what gains something, and what groups must have.
    """
    limits = problem.limits
    assert limits is not None
    candidates = np.setdiff1d(problem.unselected, chosen)
    room = Remaining(limits, candidates, chosen)
    candidates = room.without_misfits(candidates)
    count = limits.m - len(chosen)
    if not limits.has_budget:
        return np.concatenate([chosen, _extend(problem, chosen, candidates, count, room)])
    price = None
    if per_cost:  # what is free comes first
        least = limits.cost[limits.cost > 0.0].min(initial=1.0)
        price = np.where(limits.cost > 0.0, limits.cost, 1e-3 * least)
    state = problem.state_of(problem.with_selected(chosen))
    picks = _picks(problem, state, candidates, count, 0.0, room, price)
    while room.needs.any():
        needed = (room.needs > 0)[limits.group[candidates]]
        left = np.setdiff1d(candidates[needed], picks)
        picks += _picks(problem, state, left, 1, -np.inf, room, price)
    return np.concatenate([chosen, np.array(picks, np.int64)])


def better(problem: SelectionProblem, *sets: np.ndarray) -> np.ndarray:
    """The first of the sets with the largest value."""
    return max(sets, key=lambda chosen: problem.value_of(problem.with_selected(chosen)))


def greedy_order(problem: SelectionProblem, members: np.ndarray) -> list[int]:
    """`members` in the order greedy would add them, for sets that were found as a whole.

    So the first classes of any selection are those that matter most, and a prefix of it is a good
    smaller selection.
    """
    candidates = np.sort(np.asarray(members, np.int64))
    return _extend(problem, candidates[:0], candidates, len(candidates)).tolist()


def replace_unused(problem: SelectionProblem, members: np.ndarray) -> np.ndarray:
    """`members` with those that are in no top k replaced by what greedy adds to the others.

    No row's top k gets worse by it, so h does not fall. A no-op where classes have a price of their
    own: there a class that is in no top k may have been chosen for its low cost.
    """
    chosen = np.asarray(members, np.int64)
    if gain_threshold(problem) < 0.0 or problem.limits is not None:
        return chosen
    _, index = problem.state_of(problem.with_selected(chosen))
    used = np.sort(chosen[is_used(problem, index)[chosen]])
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
    """What a gain has to exceed: 0, or -inf when classes have a modular cost."""
    return -np.inf if problem.modular.any() else 0.0


def _extend(
    problem: SelectionProblem,
    start: np.ndarray,
    candidates: np.ndarray,
    count: int,
    room: Remaining | None = None,
) -> np.ndarray:
    """`count` greedy picks, by the objective while some class gains, then by a larger K.

    `start` is in before the first pick, besides B_s; `candidates` are ascending and not yet in.
    """
    columns, threshold = problem.by_candidate, gain_threshold(problem)
    members = problem.with_selected(start)
    state = problem.state_of(members)
    picks = _picks(problem, state, candidates, count, threshold, room)
    left = np.setdiff1d(candidates, picks, assume_unique=True)
    k = problem.depth
    # With a K beyond |members| entries of every row are missing: what adds nothing then never does.
    while len(picks) < count and k <= len(members) + len(picks):
        if k == state[0].shape[1]:
            base = [*members.tolist(), *picks]
            state = topk.state_of(columns, np.array(base), 2 * k, problem.floor)
        # No class left exceeds the k-th value of any row, or it had been picked. So whatever enters
        # a row with k + 1 becomes its last value, and a state of one value is enough.
        last = state[0][:, k : k + 1].copy(), state[1][:, k : k + 1].copy()
        more = _picks(problem, last, left, count - len(picks), threshold, room)
        left = np.setdiff1d(left, more, assume_unique=True)
        topk.insert(columns, more, *state)
        picks += more
        k += 1
    for u in left.tolist():
        if len(picks) < count and (room is None or room.fits(u)):
            picks.append(u)
            if room is not None:
                room.add(u)
    return np.array(picks, np.int64)


def _picks(
    problem: SelectionProblem,
    state: tuple[np.ndarray, np.ndarray],
    candidates: np.ndarray,
    count: int,
    threshold: float,
    room: Remaining | None = None,
    price: np.ndarray | None = None,
) -> list[int]:
    """At most `count` greedy picks for one K, beginning at a state (see `topk`), which changes.

    Ends early where no gain, divided by the `price` of its class, exceeds the threshold, or nothing
    fits.
    """
    value, index = state

    def worth(which: np.ndarray) -> np.ndarray:
        gains = problem.gains_over(value[:, -1], which)
        return gains if price is None else gains / price[which]

    first = worth(candidates)
    candidates, first = candidates[first > threshold], first[first > threshold]
    # Minus the bound, so that the largest comes first; the class; the pick at which it was exact.
    heap = [(-bound, u, 0) for bound, u in zip(first.tolist(), candidates.tolist(), strict=True)]
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
        if not heap or -heap[0][0] <= threshold:
            break
        best = heappop(heap)[1]
        if room is not None:
            if not room.fits(best):
                continue
            room.add(best)
        picks.append(best)
        topk.insert(problem.by_candidate, [best], value, index)
    return picks
