"""The swap pass: exchange one chosen class for one not chosen while that helps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fsl_basesel import checks, topk
from fsl_basesel.compiled import kernel
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector
from fsl_basesel.selectors.greedy_target import GreedyOnTarget, greedy_order

# An exchange must gain more than rounding could fake, relative to the terms that it changes.
TOLERANCE = 1e-12
# Candidates whose prices are summed over the processes of a sharded problem in one message.
PRICED_AT_ONCE = 64


@dataclass(frozen=True)
class WithSwaps(Selector):
    """Any selector followed by a swap pass, which never lowers the value.

    Attributes:
        selector: Whose set to improve.
        max_passes: Looks over all candidates before giving up; a pass without an exchange ends it.
    """

    name: ClassVar[str] = "swap"
    randomized: ClassVar[bool] = True
    guarantee: ClassVar[str] = "at least the value of the selector it follows; 1-swap optimal"

    selector: Selector = field(default_factory=GreedyOnTarget)
    max_passes: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.selector, Selector):
            raise InputError(
                "Expected `selector` to be a selector, for example GreedyOnTarget(), but got "
                f"{self.selector!r}."
            )
        checks.integer(self.max_passes, "max_passes", 0, None, "")

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        start = self.selector.choose(problem, generator)
        better = improve_by_swaps(problem, start.indices, self.max_passes)
        return Choice(better, start.upper_bound, start.backend)


def improve_by_swaps(
    problem: SelectionProblem, indices: list[int] | np.ndarray, max_passes: int = 100
) -> list[int]:
    """The set after exchanges that each raise h, in greedy order; the same list if none does.

    For a row with top-k values t, k-th value a and next value b, replacing v by u changes the top-k
    sum by max(f_u, b) - t_v if v is listed and by max(f_u - a, 0) if not. So one look at a
    candidate prices its exchange with every chosen class at once, O(|N| k + m).
    """
    chosen = np.array(indices, np.int64)
    if not len(chosen) or len(chosen) == len(problem.unselected):
        return chosen.tolist()
    members = np.concatenate([np.array(problem.selected, np.int64), chosen])
    value, index = topk.state_of(problem.columns, members, problem.depth + 1, problem.floor)
    first = len(problem.selected)  # columns of B_s stay: only positions from here on may leave
    outside = np.setdiff1d(problem.unselected, chosen)
    before = problem.value_from(value, members)
    prices = problem.modular[members].sum()
    best = problem.gains_over(value[:, -2], outside) + problem.modular[outside]
    size = max(1e-300, float(best.max()), abs(before + prices))  # of sums of similarities alone
    if problem.shards > 1:
        swaps = _swaps_together(
            problem, members, first, outside, value, index, max_passes, TOLERANCE * size
        )
    else:
        swaps = _swap_passes(
            problem.columns,
            problem.modular,
            problem.n_novel * problem.k,
            members,
            first,
            outside,
            value,
            index,
            problem.floor,
            max_passes,
            TOLERANCE * size,
        )
    if not swaps or problem.value_of(members) <= before:
        return chosen.tolist()
    return greedy_order(problem, members[first:])


@kernel
def _price(
    columns: np.ndarray,
    u: int,
    value: np.ndarray,
    index: np.ndarray,
    where: np.ndarray,
    saved: np.ndarray,
) -> float:
    """What column u would add to the top-k sums, and what it would save of each member's loss."""
    k = value.shape[1] - 1
    saved[:] = 0.0
    gain = 0.0
    for n in range(value.shape[0]):
        similarity = np.float64(columns[u, n])
        following = value[n, k]
        if similarity <= following:
            continue
        kth = value[n, k - 1]
        if similarity > kth:
            gain += similarity - kth
        kept = min(similarity, kth) - following
        for j in range(k):
            if index[n, j] < 0:
                break
            saved[where[index[n, j]]] += kept
    return gain


@kernel
def _swap_passes(
    columns: np.ndarray,
    modular: np.ndarray,
    scale: int,
    members: np.ndarray,
    first: int,
    outside: np.ndarray,
    value: np.ndarray,
    index: np.ndarray,
    floor: float,
    max_passes: int,
    tolerance: float,
) -> int:
    k = value.shape[1] - 1
    where = np.full(columns.shape[0], -1, np.int64)  # position of a column in `members`
    for i in range(members.shape[0]):
        where[members[i]] = i
    lost = np.empty(columns.shape[0])
    topk.losses(value, index, k, lost)
    saved = np.zeros(members.shape[0])
    swaps = 0
    idle = 0
    visits = 0
    # Idle counts candidates since the last exchange: a full idle round proves 1-swap optimality.
    while idle < outside.shape[0] and visits < max_passes * outside.shape[0]:
        at = visits % outside.shape[0]
        visits += 1
        idle += 1
        u = outside[at]
        gain = _price(columns, u, value, index, where, saved)
        best, out = 0.0, -1
        for i in range(first, members.shape[0]):
            v = members[i]
            change = (gain + saved[i] - lost[v]) / scale - modular[u] + modular[v]
            prices = TOLERANCE * (abs(modular[u]) + abs(modular[v]))
            if change > best and change > tolerance + prices:
                best, out = change, i
        if out < 0:
            continue
        v = members[out]
        members[out] = u
        where[v] = -1
        where[u] = out
        outside[at] = v
        topk.insert(columns, u, value, index)
        topk.remove(columns, v, members, value, index, floor)
        topk.losses(value, index, k, lost)
        swaps += 1
        idle = 0
    return swaps


def _swaps_together(
    problem: SelectionProblem,
    members: np.ndarray,
    first: int,
    outside: np.ndarray,
    value: np.ndarray,
    index: np.ndarray,
    max_passes: int,
    tolerance: float,
) -> int:
    """The same pass, candidate by candidate in the same order, for rows on several processes.

    Prices of a block of candidates are summed over the processes at once; the first exchange that
    helps is made, and the candidates behind it are priced again.
    """
    scale = problem.n_novel * problem.k
    where = np.full(problem.n_candidates, -1, np.int64)
    where[members] = np.arange(len(members))
    lost = np.empty(problem.n_candidates)
    swaps = idle = visits = 0
    while idle < len(outside) and visits < max_passes * len(outside):
        at = visits % len(outside)
        block = outside[at : at + min(PRICED_AT_ONCE, len(outside) - idle)]
        priced: np.ndarray = np.empty((len(block), len(members) + 1))
        for row, u in zip(priced, block, strict=True):
            row[-1] = _price(problem.columns, u, value, index, where, row[:-1])
        topk.losses(value, index, problem.depth, lost)
        total = problem.sum_over_shards(np.vstack([priced, np.append(lost[members], 0.0)]))
        priced, losses = total[:-1], total[-1, first:-1]
        change = (priced[:, -1:] + priced[:, first:-1] - losses) / scale
        change += problem.modular[members[first:]] - problem.modular[block, None]
        prices = np.abs(problem.modular[members[first:]]) + np.abs(problem.modular[block, None])
        change[change <= tolerance + TOLERANCE * prices] = 0.0
        helps = np.flatnonzero(change.max(axis=1) > 0.0)
        visits += int(helps[0]) + 1 if len(helps) else len(block)
        idle = 0 if len(helps) else idle + len(block)
        if len(helps):
            position = at + int(helps[0])
            out = first + int(np.argmax(change[helps[0]]))
            into, leaving = int(outside[position]), int(members[out])
            members[out], outside[position] = into, leaving
            where[leaving], where[into] = -1, out
            topk.insert(problem.columns, into, value, index)
            topk.remove(problem.columns, leaving, members, value, index, problem.floor)
            swaps += 1
    return swaps
