"""Pipage rounding (appendix 2.4): from a fractional vector of sum m to a set of m classes.

Two fractional coordinates p and q exchange probability until one of them is 0 or 1. Along
e_p - e_q the extension F is convex, F(x + t (e_p - e_q)) = F(x) + t (g_p - g_q) - t² H with H <= 0,
so moving towards the larger gradient never lowers it. Both gradients are recomputed before every
exchange, but only in the novel classes where p or q lies in the live prefix: the first entries of
the sorted row, down to where K+1 of them are in almost surely.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fsl_basesel.compiled import kernel
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem

EPSILON = 1e-13  # probability of fewer than K+1 entries below which the rest of a row is ignored
SLACK = 1e-26  # the same when prefixes are listed: they must still reach after many exchanges
TIE = 1e-12  # share of the objective's size below which gradients are equal: the lower index gains
WHOLE = 1e-9  # a coordinate this near to 0 or 1 is whole


class Prefixes(NamedTuple):
    """Live prefixes without their zeros, by row and by column.

    Attributes:
        starts: `[|N| + 1]` where each row's entries begin in `columns` and `values`.
        columns: candidate of each entry.
        values: its similarity above the floor.
        whole: `[|N|]` whether the row's list reaches the end of the row.
        column_starts: `[|B| + 1]` where each candidate's entries begin in `entries` and `rows`.
        entries: place of each entry in `columns`.
        rows: its row.
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    whole: np.ndarray
    column_starts: np.ndarray
    entries: np.ndarray
    rows: np.ndarray


def pipage(problem: SelectionProblem, x: np.ndarray) -> np.ndarray:
    """Round `x` to m columns without lowering F; ascending, a function of the arguments alone.

    The candidate with the largest gradient takes from the one with the smallest, or gives to it if
    meanwhile the order of the two has changed, until one is whole and the next takes its place.

    Args:
        problem: the objective; `problem.sorted_rows` must be on the CPU.
        x: `[|B|]` probabilities that sum to m over B_u.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.7], [0.2, 0.8, 0.6]], m=1, k=1)
        >>> pipage(problem, np.array([0.2, 0.5, 0.3]))
        array([2])
    """
    x = _checked(problem, x)
    rows = problem.sorted_rows
    values, order = rows.values.cpu().numpy(), rows.order.cpu().numpy()
    open_ = np.flatnonzero((x > 0) & (x < 1) & ~problem.is_selected)
    gradient = problem.gradient(x).numpy()[open_]
    queue = open_[np.lexsort((open_, -gradient))]
    x[list(problem.selected)] = 1.0
    scale = 1.0 / (problem.n_novel * problem.k)
    best = values[:, 0].astype(np.float64) - problem.floor
    tie = TIE * (problem.mean_over_rows(best) + float(np.abs(problem.modular).max()))
    ends = np.array([0, len(queue) - 1])
    slack = SLACK
    while ends[0] < ends[1]:
        lists = _prefixes(values, order, problem.floor, x, problem.k, slack)
        before = ends.copy()
        if problem.shards > 1:
            _exchange_together(problem, x, queue, ends, lists, tie)
        else:
            _exchange(x, queue, ends, problem.modular, problem.k, scale, lists, tie)
        if (ends == before).all():  # even fresh lists did not reach: take them longer
            slack = slack * SLACK
    return _whole(problem, x)


def randomised_pipage(
    problem: SelectionProblem, x: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Round `x` to m columns at random, each with its probability; ascending.

    Every exchange goes either way with the odds that keep the expectation of x, so by convexity the
    expectation of h is at least F(x). No gradient is needed.

    Args:
        problem: the objective.
        x: `[|B|]` probabilities that sum to m over B_u.
        generator: one draw for each fractional coordinate.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.7], [0.2, 0.8, 0.6]], m=1, k=1)
        >>> len(randomised_pipage(problem, np.array([0.2, 0.5, 0.3]), np.random.default_rng(0)))
        1
    """
    x = _checked(problem, x)
    open_ = np.flatnonzero((x > 0) & (x < 1) & ~problem.is_selected)
    _exchange_at_random(x, open_, generator.random(len(open_)))
    return _whole(problem, x)


def _checked(problem: SelectionProblem, x: np.ndarray) -> np.ndarray:
    x = np.array(x, np.float64)
    free = problem.unselected
    if x.shape != (problem.n_candidates,) or abs(x[free].sum() - problem.m) > 1e-6:
        raise InputError(
            f"Expected `x` of shape [{problem.n_candidates}] summing to m = {problem.m} over the "
            f"candidates not yet selected but got shape {list(x.shape)} and sum {x.sum():g}."
        )
    x[x < WHOLE] = 0.0
    x[x > 1.0 - WHOLE] = 1.0
    return x


def _whole(problem: SelectionProblem, x: np.ndarray) -> np.ndarray:
    """The m columns with x = 1; what rounding errors left of the last coordinate is rounded off."""
    free = problem.unselected
    ranked = free[np.argsort(-x[free], kind="stable")]
    return np.sort(ranked[: problem.m])


@kernel
def _move(x: np.ndarray, p: int, q: int) -> None:
    """Move as much probability from q to p as fits; at least one of them becomes whole."""
    room, stock = 1.0 - x[p], x[q]
    step = min(room, stock)
    x[p] = 1.0 if room - step < WHOLE else x[p] + step
    x[q] = 0.0 if stock - step < WHOLE else x[q] - step


@kernel
def _exchange_at_random(x: np.ndarray, queue: np.ndarray, draws: np.ndarray) -> None:
    if len(queue) == 0:
        return
    p = queue[0]
    for i in range(1, len(queue)):
        q = queue[i]
        up, down = min(1.0 - x[p], x[q]), min(1.0 - x[q], x[p])
        if up + down > 0.0:
            if draws[i] * (up + down) < down:
                _move(x, p, q)
            else:
                _move(x, q, p)
        if x[p] == 0.0 or x[p] == 1.0:
            p = q


@kernel
def _step(states: np.ndarray, probability: float) -> float:
    """One more entry of a row: p(j) += x (p(j-1) - p(j)); returns what is left of the sum."""
    left = 0.0
    below = 0.0
    for j in range(len(states)):
        here = states[j]
        states[j] = here + probability * (below - here)
        left += states[j]
        below = here
    return left


def _prefixes(
    values: np.ndarray, order: np.ndarray, floor: float, x: np.ndarray, k: int, slack: float
) -> Prefixes:
    """The live prefix of every row as a list of its columns with x > 0."""
    counts, whole = _count(order, x, k, slack)
    starts = np.concatenate(([0], np.cumsum(counts)))
    columns, gaps = np.empty(starts[-1], np.int32), np.empty(starts[-1])
    _fill(values, order, floor, x, starts, columns, gaps)
    column_starts = np.concatenate(([0], np.cumsum(np.bincount(columns, minlength=len(x)))))
    entries = np.argsort(columns, kind="stable").astype(np.int32)
    rows = np.repeat(np.arange(len(counts), dtype=np.int32), counts)[entries]
    return Prefixes(starts, columns, gaps, whole, column_starts, entries, rows)


@kernel
def _count(order: np.ndarray, x: np.ndarray, k: int, slack: float) -> tuple[np.ndarray, np.ndarray]:
    counts = np.zeros(order.shape[0], np.int64)
    whole = np.zeros(order.shape[0], np.bool_)
    states = np.empty(k + 1)
    for row in range(order.shape[0]):
        states[:] = 0.0
        states[0] = 1.0
        whole[row] = True
        for i in range(order.shape[1]):
            probability = x[order[row, i]]
            if probability > 0.0:
                counts[row] += 1
                if _step(states, probability) < slack:
                    whole[row] = False
                    break
    return counts, whole


@kernel
def _fill(
    values: np.ndarray,
    order: np.ndarray,
    floor: float,
    x: np.ndarray,
    starts: np.ndarray,
    columns: np.ndarray,
    gaps: np.ndarray,
) -> None:
    for row in range(order.shape[0]):
        at, i = starts[row], 0
        while at < starts[row + 1]:
            if x[order[row, i]] > 0.0:
                columns[at] = order[row, i]
                gaps[at] = values[row, i] - floor
                at += 1
            i += 1


@kernel
def _slope(
    x: np.ndarray, k: int, entry: int, row: int, lists: Prefixes, states: np.ndarray, w: np.ndarray
) -> float:
    """dF_n/dx of one entry of one row, or NaN if the row's list no longer reaches far enough."""
    states[:] = 0.0
    states[0] = 1.0
    at, end = lists.starts[row], lists.starts[row + 1]
    before = w[k:]
    left = 1.0
    while at < end and left >= EPSILON:
        if at == entry:
            before[:] = states[:k]
        left = _step(states, x[lists.columns[at]])
        at += 1
    if left >= EPSILON and not lists.whole[row]:
        return np.nan
    if at <= entry:
        return 0.0
    w[:k] = 0.0
    for i in range(at - 1, entry, -1):
        probability = x[lists.columns[i]]
        for j in range(k - 1):
            w[j] += probability * (w[j + 1] - w[j])
        w[k - 1] += probability * (lists.values[i] - w[k - 1])
    slope = 0.0
    for j in range(k):
        slope += before[j] * (lists.values[entry] - w[j])
    return slope


@kernel
def _gradient(
    x: np.ndarray, k: int, column: int, lists: Prefixes, states: np.ndarray, w: np.ndarray
) -> float:
    """Sum over rows of the slope of one column."""
    total = 0.0
    for i in range(lists.column_starts[column], lists.column_starts[column + 1]):
        total += _slope(x, k, lists.entries[i], lists.rows[i], lists, states, w)
    return total


@kernel
def _exchange(
    x: np.ndarray,
    queue: np.ndarray,
    ends: np.ndarray,
    modular: np.ndarray,
    k: int,
    scale: float,
    lists: Prefixes,
    tie: float,
) -> None:
    """Exchange until one coordinate is left, half of the queue is done, or a list is too short."""
    states, w = np.empty(k + 1), np.empty(2 * k)
    top, bottom = ends[0], ends[1]
    half = (bottom - top) // 2
    while top < bottom and (bottom - top > half or half == 0):
        p, q = queue[top], queue[bottom]
        slope_p = _gradient(x, k, p, lists, states, w) * scale - modular[p]
        slope_q = _gradient(x, k, q, lists, states, w) * scale - modular[q]
        difference = slope_p - slope_q
        if np.isnan(difference):
            break
        if abs(difference) <= tie:
            difference = float(q - p)
        if difference > 0.0:
            _move(x, p, q)
        else:
            _move(x, q, p)
        if x[p] == 0.0 or x[p] == 1.0:
            top += 1
        if x[q] == 0.0 or x[q] == 1.0:
            bottom -= 1
    ends[0], ends[1] = top, bottom


def _exchange_together(
    problem: SelectionProblem,
    x: np.ndarray,
    queue: np.ndarray,
    ends: np.ndarray,
    lists: Prefixes,
    tie: float,
) -> None:
    """`_exchange` for rows on several processes: two slopes are summed over them an exchange."""
    states, w = np.empty(problem.k + 1), np.empty(2 * problem.k)
    scale = problem.n_novel * problem.k
    half = (ends[1] - ends[0]) // 2
    while ends[0] < ends[1] and (ends[1] - ends[0] > half or half == 0):
        pair = queue[ends]
        local = [_gradient(x, problem.k, u, lists, states, w) for u in pair]
        slopes = problem.sum_over_shards(np.array(local)) / scale - problem.modular[pair]
        if np.isnan(slopes).any():
            break  # on every process alike: a NaN of one spoils the sum of all
        difference = slopes[0] - slopes[1]
        p, q = (
            pair
            if (pair[1] > pair[0] if abs(difference) <= tie else difference > 0)
            else pair[::-1]
        )
        _move(x, p, q)
        ends[0] += x[pair[0]] in (0.0, 1.0)
        ends[1] -= x[pair[1]] in (0.0, 1.0)
