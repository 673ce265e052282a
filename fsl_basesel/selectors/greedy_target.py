"""Algorithm 2: add the class with the largest gain, m times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel import topk
from fsl_basesel.compiled import kernel
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector, one_of

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
    return _lazy_picks(problem, problem.unselected, problem.m)


def greedy_order(problem: SelectionProblem, members: np.ndarray) -> list[int]:
    """`members` in the order greedy would add them, for sets that were found as a whole.

    So the first classes of any selection are those that matter most, and a prefix of it is a good
    smaller selection.
    """
    candidates = np.sort(np.asarray(members, np.int64))
    return _lazy_picks(problem, candidates, len(candidates)).tolist()


def _lazy_picks(problem: SelectionProblem, candidates: np.ndarray, count: int) -> np.ndarray:
    if problem.shards > 1:
        return _picks_together(problem, candidates, count)
    value, index = _selected_state(problem)
    picks = np.empty(count, np.int64)
    bound = np.full(problem.n_candidates, -np.inf)
    bound[candidates] = problem.gains_over(value[:, -1], candidates)
    scale = problem.n_novel * problem.k
    _lazy(problem.columns, problem.modular, scale, candidates.copy(), bound, value, index, picks)
    return picks


def changed_row_greedy(problem: SelectionProblem) -> np.ndarray:
    """Greedy picks with all gains kept up to date; holds a second, row-major copy of the matrix."""
    if problem.shards > 1:
        return _picks_together(problem, problem.unselected, problem.m)
    value, index = _selected_state(problem)
    picks = np.empty(problem.m, np.int64)
    gains = problem.gains_over(value[:, -1])
    gains[problem.is_selected] = -np.inf
    rows = np.ascontiguousarray(problem.columns.T)
    scale = problem.n_novel * problem.k
    _changed_rows(problem.columns, rows, problem.modular, scale, gains, value, index, picks)
    return picks


class RowwiseGains:
    """All gains, kept up to date pick by pick; every process corrects them for its own rows.

    Holds a second, row-major copy of the rows of this process. One vector of |B| numbers is summed
    over the processes for each look at the gains.
    """

    def __init__(self, problem: SelectionProblem) -> None:
        self.problem = problem
        self.value, self.index = _selected_state(problem)
        self.rows = np.ascontiguousarray(problem.columns.T)
        self.kth = self.value[:, -1].copy()
        self.sums = problem.excess_over(self.kth, np.arange(problem.n_candidates))
        self.moved = np.zeros(problem.n_candidates, bool)

    def now(self) -> np.ndarray:
        """Gain of every column, `[|B|]`; what is already in is not masked."""
        scale = self.problem.n_novel * self.problem.k
        return self.problem.sum_over_shards(self.sums) / scale - self.problem.modular

    def add(self, pick: int) -> None:
        """Bring a column in."""
        topk.insert(self.problem.columns, pick, self.value, self.index)
        before, self.kth = self.kth, self.value[:, -1].copy()
        update_gains(self.rows, 1, before, self.kth, self.sums, self.moved)


def _picks_together(problem: SelectionProblem, candidates: np.ndarray, count: int) -> np.ndarray:
    """Greedy picks when the rows lie on several processes; the same picks on all of them."""
    gains = RowwiseGains(problem)
    open_ = np.zeros(problem.n_candidates, bool)
    open_[candidates] = True
    picks = np.empty(count, np.int64)
    for step in range(count):
        total = np.where(open_, gains.now(), -np.inf)
        if step == 0:
            close = CLOSE * float(np.abs(total[candidates] + problem.modular[candidates]).max())
        near = np.flatnonzero(total >= total.max() - close)
        if len(near) > 1:  # corrections round: compare sums taken afresh, ties to the lowest index
            near = near[np.argmax(problem.gains_over(gains.kth, near))]
        picks[step] = int(np.atleast_1d(near)[0])
        open_[picks[step]] = False
        gains.add(int(picks[step]))
    return picks


def _selected_state(problem: SelectionProblem) -> tuple[np.ndarray, np.ndarray]:
    members = np.array(problem.selected, np.int64)
    return topk.state_of(problem.columns, members, problem.k, problem.floor)


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
    heap: np.ndarray,
    bound: np.ndarray,
    value: np.ndarray,
    index: np.ndarray,
    picks: np.ndarray,
) -> None:
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
        picks[step] = u
        size -= 1
        heap[0] = heap[size]
        _sift_down(heap, size, 0, bound)
        topk.insert(columns, u, value, index)
        for n in range(threshold.shape[0]):
            threshold[n] = value[n, -1]


@kernel
def update_gains(
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
    gains: np.ndarray,
    value: np.ndarray,
    index: np.ndarray,
    picks: np.ndarray,
) -> None:
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
        picks[step] = pick
        gains[pick] = -np.inf
        topk.insert(columns, pick, value, index)
        old = new
        new = value[:, -1].copy()
        update_gains(rows, scale, old, new, gains, stale)
