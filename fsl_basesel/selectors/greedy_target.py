"""Algorithm 2: add the class with the largest gain, m times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel import topk
from fsl_basesel.compiled import kernel
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector, one_of
from fsl_basesel.selectors.rowwise import RowwiseGains
from fsl_basesel.selectors.used_up import greedy_beyond_k, least_gain

# Gains whose difference is below this share of the largest are computed afresh before a pick.
CLOSE = 1e-12
# Below this many matrix entries a round of updates is cheaper than keeping a heap.
SMALL = 200_000


@dataclass(frozen=True)
class GreedyOnTarget(Selector):
    """Algorithm 2. Two ways to the same picks.

    `lazy` keeps old gains as upper bounds in a heap and recomputes only what surfaces; gains never
    grow, and the float64 sums are taken in one fixed order, so a recomputed gain never exceeds its
    bound and the picks are those of the plain algorithm. `changed-rows` keeps every gain up to date
    by correcting it for the novel classes whose k-th value moved.

    Where no class adds anything any more, both go on with a larger K (`selectors/used_up.py`).

    Works for lam > 0 too: |U| = m is fixed, so a constant added to every modular weight turns the
    objective into a monotone one with the same picks.
    """

    name: ClassVar[str] = "greedy-target"
    guarantee: ClassVar[str] = (
        "h(U) >= (1 - g) h(OPT) + g Q, g = (1 - 1/m)^(m - K), lam = 0 (Theorem 2)"
    )

    form: str = "auto"

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        form = one_of(self.form, ("auto", "lazy", "changed-rows"), "form")
        if form == "auto":
            form = "changed-rows" if problem.columns.size <= SMALL else "lazy"
        run = lazy_greedy if form == "lazy" else changed_row_greedy
        return Choice(run(problem).tolist())


def lazy_greedy(problem: SelectionProblem) -> np.ndarray:
    """Greedy picks by lazy evaluation, O(|N|) for each gain that surfaces."""
    return _extend(problem, np.empty(0, np.int64), problem.unselected, problem.m)


def greedy_order(problem: SelectionProblem, members: np.ndarray) -> list[int]:
    """`members` in the order greedy would add them, for sets that were found as a whole.

    So the first classes of any selection are those that matter most, and a prefix of it is a good
    smaller selection.
    """
    candidates = np.sort(np.asarray(members, np.int64))
    return _extend(problem, candidates[:0], candidates, len(candidates)).tolist()


def with_next_neighbours(problem: SelectionProblem, members: np.ndarray) -> np.ndarray:
    """`members` with those that are in nobody's top k replaced by what greedy adds to the others.

    No row's top k gets worse by it, so h does not fall. A no-op where classes have a price of their
    own: there a class that nobody lists may have been chosen for its price.
    """
    chosen = np.asarray(members, np.int64)
    if least_gain(problem) < 0.0:
        return chosen
    both = np.concatenate([np.array(problem.selected, np.int64), chosen])
    _, index = topk.state_of(problem.columns, both, problem.depth, problem.floor)
    listed = np.zeros(problem.n_candidates)
    listed[index[index >= 0]] = 1.0
    kept = np.sort(chosen[problem.sum_over_shards(listed)[chosen] > 0.0])
    if len(kept) == len(chosen):
        return chosen
    others = np.setdiff1d(problem.unselected, kept)
    return np.concatenate([kept, _extend(problem, kept, others, len(chosen) - len(kept))])


def _extend(
    problem: SelectionProblem, start: np.ndarray, candidates: np.ndarray, count: int
) -> np.ndarray:
    """`count` greedy picks after `start`."""
    greedy = _picks_together if problem.shards > 1 else _lazy_picks
    return greedy_beyond_k(problem, start, candidates, count, greedy)


def _lazy_picks(
    problem: SelectionProblem,
    value: np.ndarray,
    index: np.ndarray,
    candidates: np.ndarray,
    count: int,
) -> np.ndarray:
    picks = np.empty(count, np.int64)
    bound = np.full(problem.n_candidates, -np.inf)
    bound[candidates] = problem.gains_over(value[:, -1], candidates)
    scale, least = problem.n_novel * problem.k, least_gain(problem)
    heap = candidates.copy()
    made = _lazy(problem.columns, problem.modular, scale, least, heap, bound, value, index, picks)
    return picks[:made]


def changed_row_greedy(problem: SelectionProblem) -> np.ndarray:
    """Greedy picks with all gains kept up to date; holds a second, row-major copy of the matrix."""
    start = np.empty(0, np.int64)
    if problem.shards > 1:
        return _extend(problem, start, problem.unselected, problem.m)
    rows = np.ascontiguousarray(problem.columns.T)
    scale, least = problem.n_novel * problem.k, least_gain(problem)

    def greedy(
        problem: SelectionProblem,
        value: np.ndarray,
        index: np.ndarray,
        candidates: np.ndarray,
        count: int,
    ) -> np.ndarray:
        picks = np.empty(count, np.int64)
        gains = np.full(problem.n_candidates, -np.inf)
        gains[candidates] = problem.gains_over(value[:, -1], candidates)
        made = _changed_rows(
            problem.columns, rows, problem.modular, scale, least, gains, value, index, picks
        )
        return picks[:made]

    return greedy_beyond_k(problem, start, problem.unselected, problem.m, greedy)


def _picks_together(
    problem: SelectionProblem,
    value: np.ndarray,
    index: np.ndarray,
    candidates: np.ndarray,
    count: int,
) -> np.ndarray:
    """Greedy picks when the rows lie on several processes; the same picks on all of them."""
    gains = RowwiseGains(problem, value, index)
    least = least_gain(problem)
    open_ = np.zeros(problem.n_candidates, bool)
    open_[candidates] = True
    picks: list[int] = []
    while len(picks) < count:
        total = np.where(open_, gains.now(), -np.inf)
        if not picks:
            close = CLOSE * float(np.abs(total[candidates] + problem.modular[candidates]).max())
        pick, best = int(total.argmax()), float(total.max())
        near = np.flatnonzero(total >= best - close)
        if len(near) > 1 or best <= least + close:
            # Corrections round: compare sums taken afresh, ties to the lowest index.
            fresh = problem.gains_over(gains.kth, near)
            pick, best = int(near[fresh.argmax()]), float(fresh.max())
        if best <= least:
            break
        picks.append(pick)
        open_[pick] = False
        gains.add(pick)
    return np.array(picks, np.int64)


@kernel
def _first(u: int, v: int, bound: np.ndarray) -> bool:
    """Whether u comes before v in the heap: larger bound, then lower index."""
    return bound[u] > bound[v] or (bound[u] == bound[v] and u < v)


@kernel
def _sift_down(heap: np.ndarray, size: int, at: int, bound: np.ndarray) -> None:
    u = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _first(heap[child + 1], heap[child], bound):
            child += 1
        if not _first(heap[child], u, bound):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = u


@kernel
def _lazy(
    columns: np.ndarray,
    modular: np.ndarray,
    scale: int,
    least: float,
    heap: np.ndarray,
    bound: np.ndarray,
    value: np.ndarray,
    index: np.ndarray,
    picks: np.ndarray,
) -> int:
    """Fill `picks`, or as many of them as have a gain above `least`; returns how many."""
    threshold = value[:, -1].copy()
    lanes = np.empty(topk.LANES)
    fresh_in = np.zeros(columns.shape[0], np.int64)
    size = heap.shape[0]
    for at in range(size // 2 - 1, -1, -1):
        _sift_down(heap, size, at, bound)
    for step in range(picks.shape[0]):
        while fresh_in[heap[0]] < step:
            u = heap[0]
            bound[u] = topk.excess(columns[u], threshold, lanes) / scale - modular[u]
            fresh_in[u] = step
            _sift_down(heap, size, 0, bound)
        u = heap[0]
        if bound[u] <= least:
            return step
        picks[step] = u
        size -= 1
        heap[0] = heap[size]
        _sift_down(heap, size, 0, bound)
        topk.insert(columns, u, value, index)
        for n in range(threshold.shape[0]):
            threshold[n] = value[n, -1]
    return picks.shape[0]


@kernel
def _update_gains(
    rows: np.ndarray,
    scale: int,
    old: np.ndarray,
    new: np.ndarray,
    gains: np.ndarray,
    stale: np.ndarray,
) -> None:
    """Correct `gains` for the rows whose k-th value rose from `old` to `new`; mark what moved."""
    for n in range(old.shape[0]):
        before, after = old[n], new[n]
        if after == before:
            continue
        row = rows[n]
        for u in range(gains.shape[0]):
            similarity = np.float64(row[u])
            if similarity > before:
                gains[u] -= (min(similarity, after) - before) / scale
                stale[u] = True


@kernel
def _changed_rows(
    columns: np.ndarray,
    rows: np.ndarray,
    modular: np.ndarray,
    scale: int,
    least: float,
    gains: np.ndarray,
    value: np.ndarray,
    index: np.ndarray,
    picks: np.ndarray,
) -> int:
    """As `_lazy`."""
    stale = np.zeros(gains.shape[0], np.bool_)
    lanes = np.empty(topk.LANES)
    new = value[:, -1].copy()
    # Corrections round where lazy sums do not. Gains closer than this are computed afresh before
    # they are compared, so that both forms pick the same class down to exact ties.
    largest = 0.0
    for u in range(gains.shape[0]):
        if gains[u] > -np.inf:
            largest = max(largest, abs(gains[u]) + abs(modular[u]))
    close = CLOSE * largest + 1e-300
    for step in range(picks.shape[0]):
        best = gains.max()
        pick = -1
        for u in range(gains.shape[0]):
            if gains[u] < best - close:
                continue
            if stale[u]:
                gains[u] = topk.excess(columns[u], new, lanes) / scale - modular[u]
                stale[u] = False
            if pick < 0 or gains[u] > gains[pick]:
                pick = u
        if gains[pick] <= least:
            return step
        picks[step] = pick
        gains[pick] = -np.inf
        topk.insert(columns, pick, value, index)
        old = new
        new = value[:, -1].copy()
        _update_gains(rows, scale, old, new, gains, stale)
    return picks.shape[0]
