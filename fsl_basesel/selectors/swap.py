"""The swap pass: exchange one chosen class for one not chosen while that helps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fsl_basesel import checks, topk
from fsl_basesel.compiled import kernel
from fsl_basesel.errors import InputError
from fsl_basesel.limits import SLACK, Limits
from fsl_basesel.parallel import ROWS
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector
from fsl_basesel.selectors.greedy import GreedyOnTarget, better, fill, greedy_order, is_used

# An exchange must gain more than rounding could fake, relative to the terms that it changes.
TOLERANCE = 1e-12
ROUNDS = 10  # of exchanging, dropping and adding, where the number of classes is not fixed
FEWEST, MOST = 16, 256  # candidates that are priced at once: few after an exchange, then more


@dataclass(frozen=True)
class WithSwaps(Selector):
    """Any selector followed by a swap pass, which never lowers the value.

    Attributes:
        selector: Whose set to improve; its contract is this one's too.
        max_passes: Looks over all candidates before giving up; a pass without an exchange ends it.
    """

    name: ClassVar[str] = "swap"
    guarantee: ClassVar[str] = "at least the value of the selector it follows; 1-swap optimal"

    selector: Selector = field(default_factory=GreedyOnTarget)
    max_passes: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.selector, Selector):
            raise InputError(
                "Expected `selector` to be a selector, for example GreedyOnTarget(), but got "
                f"{self.selector!r}."
            )
        checks.integer(self.max_passes, "max_passes", 0)
        for contract in ("needs_centroids", "needs_all_rows", "randomized", "serves_limits"):
            object.__setattr__(self, contract, getattr(self.selector, contract))

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        start = self.selector.choose(problem, generator)
        return replace(start, indices=improve_by_swaps(problem, start.indices, self.max_passes))


def improve_by_swaps(
    problem: SelectionProblem, indices: list[int] | np.ndarray, max_passes: int = 100
) -> list[int]:
    """The set after exchanges that each raise h, in greedy order; the same list if none does.

    For a row with top-k values t, k-th value a and next value b, replacing v by u changes the top-k
    sum by max(f_u, b) - t_v if v is listed and by max(f_u - a, 0) if not. So one look at a
    candidate prices its exchange with every chosen class at once, O(|N| k + m).
    """
    chosen = np.array(indices, np.int64)
    if problem.limits is not None and problem.limits.has_budget:
        found = _add_drop_exchange(problem, chosen, max_passes)
    else:
        found = _exchange(problem, chosen, max_passes)
    if better(problem, chosen, found) is chosen:
        return chosen.tolist()
    return greedy_order(problem, found)


def _add_drop_exchange(
    problem: SelectionProblem, chosen: np.ndarray, max_passes: int
) -> np.ndarray:
    """The set after exchanges, and after adding what gains and dropping what costs.

    For a budget, where the number of classes is not fixed.
    """
    limits = problem.limits
    assert limits is not None
    for _ in range(min(max_passes, ROUNDS)):
        before = set(chosen.tolist())
        chosen = _exchange(problem, chosen, max_passes)
        value, index = problem.state_of(problem.with_selected(chosen), more=1)
        loss = problem.losses(value, index)[chosen] / problem.scale - problem.modular[chosen]
        group = limits.group[chosen]
        spare = (limits.counts(chosen) > limits.least)[group] & ~np.isin(chosen, limits.include)
        # What loses nothing is dropped too if it costs something: the money may buy a gain.
        useless = spare & ((loss < 0.0) | ((loss == 0.0) & (limits.cost[chosen] > 0.0)))
        if useless.any():
            # Classes in no top k that no group needs are dropped at once, the others one by one.
            gone = useless & ~is_used(problem, index)[chosen] & (limits.least == 0)[group]
            if not gone.any():
                gone[np.where(useless, loss, np.inf).argmin()] = True
            chosen = chosen[~gone]
        chosen = better(problem, fill(problem, chosen), fill(problem, chosen, per_cost=True))
        if set(chosen.tolist()) == before:
            break
    return chosen


def _exchange(problem: SelectionProblem, chosen: np.ndarray, max_passes: int) -> np.ndarray:
    """The set after single exchanges.

    Candidates are looked at in turn; the first exchange that helps is made, with the member whose
    leaving gains most. A full round without an exchange proves that no single one helps.
    """
    chosen, modular = chosen.copy(), problem.modular
    members = problem.with_selected(chosen)
    value, index = problem.state_of(members, more=1)
    outside = np.setdiff1d(problem.unselected, chosen)
    best = problem.gains_over(value[:, -2], outside) + modular[outside]
    top = problem.value_from(value, members) + modular[members].sum()
    tolerance = TOLERANCE * max(1e-300, float(best.max(initial=0.0)), abs(top))  # without prices
    where = np.full(problem.n_candidates, len(chosen))  # columns of B_s never leave
    where[chosen] = np.arange(len(chosen))
    lost = problem.losses(value, index)
    idle = visits = 0
    at_once = FEWEST
    while idle < len(outside) and visits < max_passes * len(outside):
        at = visits % len(outside)
        block = outside[at : at + min(at_once, len(outside) - idle)]
        prices = np.empty((len(problem.rows.blocks), len(block), len(chosen) + 2))
        _price(problem.by_candidate, block, value, index, where, problem.row_weights, prices)
        prices = problem.rows.sum(prices)
        change = (prices[:, -1:] + prices[:, :-2] - lost[chosen]) / problem.scale
        change = change - modular[block][:, None] + modular[chosen]
        terms = np.abs(modular[block])[:, None] + np.abs(modular[chosen])
        helps = change > tolerance + TOLERANCE * terms
        if problem.limits is not None:
            helps &= _allowed(problem.limits, chosen, block)
        if not helps.any():
            visits += len(block)
            idle += len(block)
            at_once = min(2 * at_once, MOST)
            continue
        first = int(helps.any(axis=1).argmax())
        out = int(np.where(helps[first], change[first], -np.inf).argmax())
        into, leaving = int(block[first]), int(chosen[out])
        chosen[out], outside[at + first] = into, leaving
        where[leaving], where[into] = len(chosen), out
        members = problem.with_selected(chosen)
        topk.insert(problem.by_candidate, [into], value, index)
        topk.remove(problem.by_candidate, leaving, members, value, index, problem.floor)
        lost = problem.losses(value, index)
        visits += first + 1
        idle, at_once = 0, FEWEST
    return chosen


def _allowed(limits: Limits, chosen: np.ndarray, block: np.ndarray) -> np.ndarray:
    """`[candidates, chosen]`: which exchanges keep to the limits."""
    into, leaving = limits.group[block][:, None], limits.group[chosen]
    counts = limits.counts(chosen)
    fits = (counts < limits.most)[into] & (counts > limits.least)[leaving]
    fits |= into == leaving
    if limits.has_budget:
        spent = limits.spent(chosen) - limits.cost[chosen] + limits.cost[block][:, None]
        fits &= spent <= limits.budget * (1 + SLACK / 2)
    return fits & ~np.isin(chosen, limits.include)


@kernel
def _price(
    columns: np.ndarray,
    which: np.ndarray,
    value: np.ndarray,
    index: np.ndarray,
    where: np.ndarray,
    weight: np.ndarray,
    out: np.ndarray,
) -> None:
    """What columns would add to the top-k sums of a block of rows, and save of members' losses.

    `out[block, i, where[v]]` is what `which[i]` saves of the loss of v, the last place what it
    adds.
    """
    k = value.shape[1] - 1
    out[:] = 0.0
    for i in range(which.shape[0]):
        column = columns[which[i]]
        for n in range(value.shape[0]):
            similarity = np.float64(column[n])
            following = value[n, k]
            if similarity <= following:
                continue
            prices = out[n // ROWS, i]
            kth = value[n, k - 1]
            if similarity > kth:
                prices[-1] += weight[n] * (similarity - kth)
            kept = weight[n] * (min(similarity, kth) - following)
            for j in range(k):
                if index[n, j] < 0:
                    break
                prices[where[index[n, j]]] += kept
