"""The swap pass: exchange one chosen class for one not chosen while that helps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fsl_basesel import checks, topk
from fsl_basesel.compiled import kernel
from fsl_basesel.errors import InputError
from fsl_basesel.limits import SLACK
from fsl_basesel.parallel import ROWS
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import Choice, Selector
from fsl_basesel.selectors.greedy import GreedyOnTarget, fill, greedy_order, is_used

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
        checks.integer(self.max_passes, "max_passes", 0, None, "")
        for contract in ("needs_centroids", "needs_all_rows", "randomized", "serves_limits"):
            object.__setattr__(self, contract, getattr(self.selector, contract))

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        start = self.selector.choose(problem, generator)
        better = improve_by_swaps(problem, start.indices, self.max_passes)
        return replace(start, indices=better)


def improve_by_swaps(
    problem: SelectionProblem, indices: list[int] | np.ndarray, max_passes: int = 100
) -> list[int]:
    """The set after exchanges that each raise h, in greedy order; the same list if none does.

    For a row with top-k values t, k-th value a and next value b, replacing v by u changes the top-k
    sum by max(f_u, b) - t_v if v is listed and by max(f_u - a, 0) if not. So one look at a
    candidate prices its exchange with every chosen class at once, O(|N| k + m).
    """
    chosen = np.array(indices, np.int64)
    if problem.limits is None and (not len(chosen) or len(chosen) == len(problem.unselected)):
        return chosen.tolist()
    members = np.concatenate([np.array(problem.selected, np.int64), chosen])
    first = len(problem.selected)  # columns of B_s stay: only positions from here on may leave
    before = problem.value_of(members)
    if problem.limits is not None and not problem.limits.exact:
        members = _add_drop_exchange(problem, members, first, max_passes)
    elif not _exchange(problem, members, first, max_passes):
        return chosen.tolist()
    if problem.value_of(members) <= before:
        return chosen.tolist()
    return greedy_order(problem, members[first:])


def _add_drop_exchange(
    problem: SelectionProblem, members: np.ndarray, first: int, max_passes: int
) -> np.ndarray:
    """The members after exchanges, and after adding what gains and dropping what costs.

    For a budget, where the number of classes is not fixed; B_s are the members before `first`.
    """
    limits = problem.limits
    assert limits is not None
    for _ in range(min(max_passes, ROUNDS)):
        before = members.copy()
        _exchange(problem, members, first, max_passes)
        value, index = problem.state_of(members, more=1)
        where = np.full(problem.n_candidates, -1, np.int64)
        where[members] = np.arange(len(members))
        loss = _losses(problem, value, index, where, len(members)) / problem.scale
        loss = (loss - problem.modular[members])[first:]
        counts = limits.counts(members[first:])
        spare = (counts > limits.least)[limits.group[members[first:]]]
        spare &= ~np.isin(members[first:], limits.include)
        # What loses nothing is dropped too if it costs something: the money may buy a gain.
        useless = spare & ((loss < 0.0) | ((loss == 0.0) & (limits.cost[members[first:]] > 0.0)))
        if useless.any():
            # All that nobody lists and no group needs can go at once, the others one by one.
            gone = useless & ~is_used(problem, index)[members[first:]]
            gone &= (limits.least == 0)[limits.group[members[first:]]]
            if not gone.any():
                gone[np.where(useless, loss, np.inf).argmin()] = True
            members = np.delete(members, first + np.flatnonzero(gone))
        tries = (fill(problem, members[first:], per_cost) for per_cost in (False, True))
        found = [np.concatenate([members[:first], chosen]) for chosen in tries]
        members = max(found, key=problem.value_of)
        if len(members) == len(before) and set(members.tolist()) == set(before.tolist()):
            break
    return members


def _exchange(problem: SelectionProblem, members: np.ndarray, first: int, max_passes: int) -> int:
    """Exchange `members` from `first` on in place; returns how many exchanges were made.

    Candidates are looked at in turn; the first exchange that helps is made, with the member whose
    leaving gains most. A full round without an exchange proves that no single one helps.
    """
    value, index = problem.state_of(members, more=1)
    outside = np.setdiff1d(problem.unselected, members)
    best = problem.gains_over(value[:, -2], outside) + problem.modular[outside]
    top = problem.value_from(value, members) + problem.modular[members].sum()
    tolerance = TOLERANCE * max(
        1e-300, float(best.max(initial=0.0)), abs(top)
    )  # of similarities alone
    where = np.full(problem.n_candidates, -1, np.int64)  # position of a column in `members`
    where[members] = np.arange(len(members))
    lost = _losses(problem, value, index, where, len(members))
    swaps = idle = visits = 0
    at_once = FEWEST
    while idle < len(outside) and visits < max_passes * len(outside):
        at = visits % len(outside)
        block = outside[at : at + min(at_once, len(outside) - idle)]
        prices = np.empty((len(problem.rows.blocks), len(block), len(members) + 1))
        _price(problem.by_candidate, block, value, index, where, problem.row_weights, prices)
        helps, out = _first_that_helps(
            problem.rows.sum(prices),
            _allowed(problem, members, first, block),
            lost,
            problem.modular,
            problem.scale,
            members,
            first,
            block,
            tolerance,
        )
        if helps < 0:
            visits += len(block)
            idle += len(block)
            at_once = min(2 * at_once, MOST)
            continue
        into, leaving = int(block[helps]), int(members[out])
        members[out], outside[at + helps] = into, leaving
        where[leaving], where[into] = -1, out
        topk.insert(problem.by_candidate, [into], value, index)
        topk.remove(problem.by_candidate, leaving, members, value, index, problem.floor)
        lost = _losses(problem, value, index, where, len(members))
        visits += helps + 1
        swaps, idle, at_once = swaps + 1, 0, FEWEST
    return swaps


def _allowed(
    problem: SelectionProblem, members: np.ndarray, first: int, block: np.ndarray
) -> np.ndarray:
    """`[candidates, members]`: which exchanges keep to the limits; empty if all do."""
    limits = problem.limits
    if limits is None:
        return np.empty((0, 0), bool)
    allowed = np.zeros((len(block), len(members)), bool)
    chosen = members[first:]
    into, leaving = limits.group[block][:, None], limits.group[chosen]
    counts = limits.counts(chosen)
    fits = (counts < limits.most)[into] & (counts > limits.least)[leaving]
    fits |= into == leaving
    if limits.has_budget:
        spent = limits.spent(chosen) - limits.cost[chosen] + limits.cost[block][:, None]
        fits &= spent <= limits.budget * (1 + SLACK / 2)
    fits &= ~np.isin(chosen, limits.include)
    allowed[:, first:] = fits
    return allowed


def _losses(
    problem: SelectionProblem, value: np.ndarray, index: np.ndarray, where: np.ndarray, count: int
) -> np.ndarray:
    """What the top-k sums of all rows lose without each member."""
    return problem.rows.sum(topk.losses(value, index, where, problem.row_weights, count))


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

    `out[block, i, j]` is what `which[i]` saves of the loss of member j, the last j what it adds.
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


@kernel
def _first_that_helps(
    prices: np.ndarray,
    allowed: np.ndarray,
    lost: np.ndarray,
    modular: np.ndarray,
    scale: int,
    members: np.ndarray,
    first: int,
    which: np.ndarray,
    tolerance: float,
) -> tuple[int, int]:
    """The first candidate whose best exchange helps, and the position of who leaves; else -1."""
    for i in range(which.shape[0]):
        u = which[i]
        best, out = 0.0, -1
        for j in range(first, members.shape[0]):
            if allowed.shape[0] > 0 and not allowed[i, j]:
                continue
            v = members[j]
            change = (prices[i, -1] + prices[i, j] - lost[j]) / scale - modular[u] + modular[v]
            rounding = tolerance + TOLERANCE * (abs(modular[u]) + abs(modular[v]))
            if change > best and change > rounding:
                best, out = change, j
        if out >= 0:
            return i, out
    return -1, -1
