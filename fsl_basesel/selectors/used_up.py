"""What greedy takes once the objective is used up: the best classes for K + 1, then K + 2, ...

Without a diversity or cost term the objective is used up as soon as every novel class has its K
best candidates: no further class adds anything, and any of them could fill the places that are
left, with the same h. A next neighbour makes a better learner than the lowest index
(docs/concepts.md), so those places are filled by greedy on the same objective with a larger K.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fsl_basesel import topk
from fsl_basesel.compiled import kernel
from fsl_basesel.problem import SelectionProblem

# Greedy for one K: (problem, value, index, candidates, most picks) -> picks. Begins at the state
# (see `fsl_basesel.topk`), which it changes, and ends early where no gain exceeds `least_gain`.
Greedy = Callable[[SelectionProblem, np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]


def least_gain(problem: SelectionProblem) -> float:
    """What a gain has to exceed: 0, or nothing where a class has a price whatever else is in."""
    return -np.inf if problem.modular.any() else 0.0


def greedy_beyond_k(
    problem: SelectionProblem,
    start: np.ndarray,
    candidates: np.ndarray,
    count: int,
    greedy: Greedy,
) -> np.ndarray:
    """`count` greedy picks, by the objective while it tells classes apart, then by a larger K.

    Args:
        problem: The objective.
        start: Columns that are in before the first pick, besides B_s.
        candidates: Ascending columns to pick from, none of them in `start` or B_s.
        count: How many to pick.
        greedy: How to pick with one K.
    """
    members = np.concatenate([np.array(problem.selected, np.int64), start])
    value, index = topk.state_of(problem.columns, members, problem.depth, problem.floor)
    picks = greedy(problem, value, index, candidates, count)
    k, kth = problem.depth, value[:, -1].copy()
    # With a K beyond |members| rows still have room: a class that adds nothing there never does.
    while len(picks) < count and k <= len(members) + len(picks):
        base = np.sort(np.concatenate([members, picks]))  # in order of memory
        left = np.setdiff1d(candidates, picks, assume_unique=True)
        # No class left exceeds the k-th value of any row, or it had been picked. So whatever enters
        # a row with k + 1 becomes its last value, and a state of one value is enough.
        value = _next_values(problem.columns, base, k, kth, problem.floor)[:, None]
        index = np.full(value.shape, -1, np.int64)
        more = greedy(problem, value, index, left, count - len(picks))
        picks, k, kth = np.concatenate([picks, more]), k + 1, value[:, 0].copy()
    if len(picks) == count:
        return picks
    left = np.setdiff1d(candidates, picks, assume_unique=True)
    return np.concatenate([picks, left[: count - len(picks)]])


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
