"""Pipage rounding (appendix 2.4): from a fractional vector of sum m to a set of m classes.

Two fractional coordinates p and q exchange probability until one of them is 0 or 1. Along
e_p - e_q the extension F is convex, F(x + t (e_p - e_q)) = F(x) + t (g_p - g_q) - t² H with H <= 0,
so moving towards the larger gradient never lowers it. Both gradients are recomputed before every
exchange, but only in the novel classes where p or q lies in the live prefix
(`fsl_basesel.prefixes`).
"""

from __future__ import annotations

import numpy as np

from fsl_basesel import extension
from fsl_basesel.compiled import inlined, kernel
from fsl_basesel.errors import InputError
from fsl_basesel.prefixes import SLACK, Prefixes, Scratch, live_lengths, live_prefixes, refresh
from fsl_basesel.problem import SelectionProblem

TIE = 1e-12  # share of the objective's size below which gradients are equal: the lower index gains
WHOLE = 1e-9  # a coordinate this near to 0 or 1 is whole
LONG = 2e9  # steps of single exchanges that are too many: some seconds
SHARE = 0.04  # of m that changes hands between two gradients where single exchanges are too many


def pipage(problem: SelectionProblem, x: np.ndarray) -> np.ndarray:
    """Round `x` to m columns without lowering F; ascending, a function of the arguments alone.

    The candidate with the largest gradient takes from the one with the smallest, or gives to it if
    meanwhile the order of the two has changed, until one is whole and the next takes its place.

    Args:
        problem: the objective.
        x: `[|B|]` probabilities that sum to m over B_u.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.7], [0.2, 0.8, 0.6]], m=1, k=1)
        >>> pipage(problem, np.array([0.2, 0.5, 0.3]))
        array([2])
    """
    x = _checked(problem, x)
    x[list(problem.selected)] = 1.0
    rows = problem.sorted_rows
    best = problem.rows.sum_of(rows.values[:, 0].astype(np.float64) - rows.floor)
    tie = TIE * (best / problem.n_novel + float(np.abs(problem.modular).max()))
    _exchange_many(problem, x, tie)
    queue = _queue(problem, x, tie)
    scale = 1.0 / (problem.n_novel * problem.k)
    counted = min(problem.k, problem.n_candidates)
    ends = np.array([0, len(queue) - 1])
    slack = SLACK
    while ends[0] < ends[1]:
        lists = live_prefixes(problem, x, slack)
        scratch = Scratch.of(lists, counted)
        before = ends.copy()
        _exchange(x, queue, ends, problem.modular, counted, scale, tie, lists, scratch)
        del lists, scratch  # before the next ones are made
        if (ends == before).all():  # even fresh lists did not reach: take them longer
            slack = slack * SLACK
    return _whole(problem, x)


def _queue(problem: SelectionProblem, x: np.ndarray, tie: float) -> np.ndarray:
    """Fractional coordinates by falling gradient, ties by index."""
    open_ = np.flatnonzero((x > 0) & (x < 1) & ~problem.is_selected)
    gradient = np.asarray(extension.gradient(problem, x))[open_]
    by_gradient = np.argsort(-gradient, kind="stable")
    gaps = -np.diff(gradient[by_gradient], prepend=gradient[by_gradient[:1]])
    group = np.empty(len(open_), np.int64)
    group[by_gradient] = np.cumsum(gaps > tie)  # runs of gradients that rounding may have swapped
    return open_[np.lexsort((open_, group))]


def _exchange_many(problem: SelectionProblem, x: np.ndarray, tie: float) -> None:
    """Exchange by one gradient for many pairs while live prefixes are too long for single pairs.

    That happens where m is a small part of |B|. What is moved at a time is cut down until F has not
    fallen; a single pair never lowers it.
    """
    counted = min(problem.k, problem.n_candidates)
    while True:
        here, _ = live_lengths(problem.sorted_rows.order, x, counted, SLACK)
        steps = np.square(problem.rows.all(here).astype(np.float64)).sum()
        if steps <= LONG or len(queue := _queue(problem, x, tie)) < 2:
            return
        value, budget = extension.multilinear(problem, x), max(1.0, SHARE * problem.m)
        while True:
            trial = x.copy()
            pairs = _move_many(trial, queue, budget)
            if pairs == 1 or extension.multilinear(problem, trial) >= value - tie:
                break
            budget /= 8
        x[:] = trial


def randomized_pipage(
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
        >>> len(randomized_pipage(problem, np.array([0.2, 0.5, 0.3]), np.random.default_rng(0)))
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


@inlined
def _move(x: np.ndarray, p: int, q: int) -> None:
    """Move as much probability from q to p as fits; at least one of them becomes whole."""
    room, stock = 1.0 - x[p], x[q]
    step = min(room, stock)
    x[p] = 1.0 if room - step < WHOLE else x[p] + step
    x[q] = 0.0 if stock - step < WHOLE else x[q] - step


@kernel
def _move_many(x: np.ndarray, queue: np.ndarray, budget: float) -> int:
    """Move up to `budget` from the end of the queue to its beginning, at least one pair's worth."""
    top, bottom, moved, pairs = 0, len(queue) - 1, 0.0, 0
    while top < bottom and (moved < budget or pairs == 0):
        p, q = queue[top], queue[bottom]
        moved += min(1.0 - x[p], x[q])
        pairs += 1
        _move(x, p, q)
        if x[p] == 1.0:
            top += 1
        if x[q] == 0.0:
            bottom -= 1
    return pairs


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
def _exchange(
    x: np.ndarray,
    queue: np.ndarray,
    ends: np.ndarray,
    modular: np.ndarray,
    k: int,
    scale: float,
    tie: float,
    lists: Prefixes,
    scratch: Scratch,
) -> None:
    """Exchange until one coordinate is left, half of the queue is done, or a list is too short.

    The slopes of the candidate that stays change only in the rows it shares with the one that left.
    """
    begins, rows = lists.column_starts, lists.rows
    todo, places, slopes = scratch.todo, scratch.places, scratch.slopes
    second = len(slopes) // 2  # where the slopes of q begin
    top, bottom = ends
    half = (bottom - top) // 2
    changed = -1  # whose change the candidate that stayed has to hear of
    stayed = -1
    while top < bottom and (bottom - top > half or half == 0):
        p, q = queue[top], queue[bottom]
        total = 0
        for side in range(2):
            u = p if side == 0 else q
            at = begins[changed] if u == stayed else 0
            for entry in range(begins[u], begins[u + 1]):
                if u == stayed:
                    while at < begins[changed + 1] and rows[at] < rows[entry]:
                        at += 1
                    if at == begins[changed + 1] or rows[at] > rows[entry]:
                        continue
                todo[total] = entry
                places[total] = entry - begins[u] + side * second
                total += 1
        if not refresh(x, k, total, lists, scratch):
            break
        difference = modular[q] - modular[p]
        for i in range(begins[p + 1] - begins[p]):
            difference += slopes[i] * scale
        for i in range(begins[q + 1] - begins[q]):
            difference -= slopes[second + i] * scale
        if abs(difference) <= tie:
            difference = float(q - p)
        _move(x, p if difference > 0.0 else q, q if difference > 0.0 else p)
        stayed, changed = q, p
        if x[p] == 0.0 or x[p] == 1.0:
            top += 1
        else:
            stayed, changed = p, q
        if x[q] == 0.0 or x[q] == 1.0:
            bottom -= 1
    ends[0], ends[1] = top, bottom
