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
    value, index = topk.state_of(problem.columns, members, problem.k, problem.floor)
    picks = greedy(problem, value, index, candidates, count)
    if len(picks) == count:
        return picks
    members, left = np.concatenate([members, picks]), np.setdiff1d(candidates, picks)
    more = _next_neighbours(problem, members, left, count - len(picks), greedy)
    return np.concatenate([picks, more])


def _next_neighbours(
    problem: SelectionProblem, members: np.ndarray, left: np.ndarray, count: int, greedy: Greedy
) -> np.ndarray:
    """`count` picks of `left` for K + 1, K + 2, ... given `members`, and at last by index."""
    fixed, k, depth = len(members), problem.k, 0
    missing = count
    # With a K beyond |members| rows still have room: a class that adds nothing there never does.
    while missing and k <= len(members):
        k += 1
        if k > depth:
            depth = min(2 * k, len(members) + len(left))
            value, index = topk.state_of(problem.columns, members, depth, problem.floor)
        # No class left exceeds the value before the k-th in any row, or K - 1 had picked it. So
        # whatever enters a row becomes its k-th value, and a state of one value is enough.
        kth = value[:, k - 1 : k].copy()
        picks = greedy(problem, kth, np.full(kth.shape, -1, np.int64), left, missing)
        topk.insert_all(problem.columns, picks, value, index)
        members, left = np.concatenate([members, picks]), np.setdiff1d(left, picks)
        missing -= len(picks)
    return np.concatenate([members[fixed:], left[:missing]])
