"""`Limits`: the limits of a choice besides its number of classes.

A budget for the sum of costs, classes that must be chosen, and groups with a largest or smallest
number of chosen classes. Groups are disjoint, which makes the best choice for given scores a matter
of sorting (`Limits.best`), and what still fits a matter of counting (`Remaining`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fsl_basesel import checks
from fsl_basesel.errors import InputError

if TYPE_CHECKING:
    from fsl_basesel.problem import SelectionProblem

# A sum of costs that exceeds the budget by this share of it fits: .1 + .2 is not <= .3 otherwise.
SLACK = 1e-12
NO_LIMIT = np.iinfo(np.int64).max // 4


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits of a problem, in the terms the algorithms need."""

    m: int  # classes to choose; with a budget at most m
    include: tuple[int, ...]
    cost: np.ndarray  # [|B|], 1 each by default
    budget: float  # infinite if there is none
    group: np.ndarray  # [|B|], number of each column's group
    most: np.ndarray  # columns of each group that may be chosen, those of B_s taken off
    least: np.ndarray  # columns of each group that must be chosen, those of B_s taken off
    labels: tuple[str, ...]  # of the groups

    @classmethod
    def of(cls, problem: SelectionProblem) -> Limits:
        """The limits of a problem; refused if no choice keeps to them."""
        p = problem
        _require_disjoint(p)
        if p.cost is not None and p.budget is None and not p.mu:
            raise InputError(
                "Expected `cost` with a budget (`budget`), as a penalty (`mu` > 0), or both, but "
                "got neither; say what the classes may cost together, or leave `cost` out."
            )
        if p.budget is not None and p.cost is not None and (p.cost < 0).any():
            at = int(np.flatnonzero(p.cost < 0)[0])
            raise InputError(
                f"Expected `cost` of at least 0 with a budget but got {p.cost[at]} for candidate "
                f"{at} ({p.names[at]!r})."
            )
        labels = tuple(dict.fromkeys(label for label in p.groups or () if label is not None))
        number = {label: n for n, label in enumerate(labels)}
        # Columns without a group share a last one that has no limits.
        every = p.groups if p.groups is not None else (None,) * p.n_candidates
        group = np.array([len(labels) if one is None else number[one] for one in every], np.int64)
        inside = np.bincount(group[list(p.selected)], minlength=len(labels) + 1)
        limits = cls(
            m=p.m,
            include=p.include,
            cost=np.ones(p.n_candidates) if p.cost is None else p.cost,
            budget=np.inf if p.budget is None else p.budget,
            group=group,
            most=np.maximum(_per_group(p.at_most, "at_most", number, NO_LIMIT) - inside, 0),
            least=np.maximum(_per_group(p.at_least, "at_least", number, 0) - inside, 0),
            labels=(*labels, "none"),
        )
        _require_feasible(limits, p.unselected, p.names)
        return limits

    @property
    def has_budget(self) -> bool:
        """Whether costs are limited; if not, exactly m classes must be chosen."""
        return self.budget < np.inf

    def spent(self, chosen: Sequence[int] | np.ndarray) -> float:
        """What columns cost together."""
        return float(np.sort(self.cost[np.asarray(chosen, np.int64)]).sum())

    def affords(self, cost: float) -> bool:
        """Whether the budget is enough."""
        return cost <= self.budget * (1 + SLACK)

    def counts(self, chosen: Sequence[int] | np.ndarray) -> np.ndarray:
        """How many of `chosen` are in each group."""
        return np.bincount(self.group[np.asarray(chosen, np.int64)], minlength=len(self.most))

    def fault(self, chosen: Sequence[int]) -> str | None:
        """What is wrong with a choice, None if it keeps to all limits."""
        missing = set(self.include) - set(chosen)
        if missing:
            return f" without column {min(missing)}, which has to be in"
        if len(chosen) > self.m or (len(chosen) < self.m and not self.has_budget):
            return ""
        if not self.affords(self.spent(chosen)):
            return f" that cost {self.spent(chosen):g}, more than the budget of {self.budget:g}"
        counts = self.counts(chosen)
        for g in np.flatnonzero((counts > self.most) | (counts < self.least)):
            return f" with {counts[g]} of the group {self.labels[g]!r}"
        return None

    def best(
        self,
        scores: np.ndarray,
        columns: np.ndarray,
        count: int,
        most: np.ndarray,
        least: np.ndarray,
    ) -> np.ndarray:
        """Ascending positions of the columns with the largest sum of scores that groups allow.

        First the best of each group that must be there, then the largest in order, skipping what is
        too many of a group; with a budget only positive ones. Exact, as the best sum of j columns
        of a group is concave in j.
        """
        order = np.lexsort((columns, -scores))
        groups = self.group[columns[order]]
        by_group = np.argsort(groups, kind="stable")
        starts = np.searchsorted(groups[by_group], np.arange(len(self.most)))
        rank = np.empty(len(order), np.int64)  # of a column in its group
        rank[by_group] = np.arange(len(order)) - starts[groups[by_group]]
        needed = rank < least[groups]
        wanted = ~needed & (rank < most[groups])
        if self.has_budget:
            wanted &= scores[order] > 0.0
        others = np.flatnonzero(wanted)[: max(0, count - int(needed.sum()))]
        needed[others] = True
        return np.sort(order[needed])


class Remaining:
    """What may still be added to a choice; every addition it allows keeps to the limits."""

    def __init__(
        self, limits: Limits, candidates: np.ndarray, chosen: Sequence[int] | np.ndarray = ()
    ) -> None:
        self.limits = limits
        self.chosen = [int(u) for u in chosen]
        self.counts = limits.counts(chosen)
        self.spent = limits.spent(chosen)
        self.cheapest: list[list[int]] = [[] for _ in limits.most]
        if limits.has_budget and limits.least.any():
            for u in candidates[np.argsort(limits.cost[candidates], kind="stable")]:
                self.cheapest[limits.group[u]].append(int(u))

    @property
    def needs(self) -> np.ndarray:
        """How many columns of each group are still missing."""
        return np.maximum(self.limits.least - self.counts, 0)

    def without_misfits(self, columns: np.ndarray) -> np.ndarray:
        """`columns` but for those that `fits` is sure to refuse, found for all of them at once."""
        limits = self.limits
        keep = (self.counts < limits.most)[limits.group[columns]]
        if limits.has_budget:
            keep &= self.spent + limits.cost[columns] <= limits.budget * (1 + SLACK)
        return columns[keep]

    def fits(self, u: int) -> bool:
        """Whether column u can be added; once it cannot, it never can."""
        limits, group = self.limits, self.limits.group[u]
        if self.counts[group] >= limits.most[group]:
            return False
        needs = self.needs
        needs[group] = max(0, needs[group] - 1)
        if len(self.chosen) + 1 + int(needs.sum()) > limits.m:
            return False
        if not limits.has_budget:
            return True
        reserve = 0.0
        for g in np.flatnonzero(needs):
            taken = {*self.chosen, u}
            free = (v for v in self.cheapest[g] if v not in taken)
            reserve += sum(limits.cost[v] for v, _ in zip(free, range(needs[g]), strict=False))
        return limits.affords(self.spent + float(limits.cost[u]) + reserve)

    def add(self, u: int) -> None:
        """Add a column."""
        self.chosen.append(u)
        self.counts[self.limits.group[u]] += 1
        self.spent = self.limits.spent(self.chosen)


def _per_group(
    given: int | dict[str, int] | None, name: str, number: dict[str, int], otherwise: int
) -> np.ndarray:
    values = np.full(len(number) + 1, otherwise, np.int64)
    if isinstance(given, dict):
        for label, value in given.items():
            if label not in number:
                raise InputError(
                    f"Expected `{name}` for groups among {', '.join(list(number)[:10])} but got "
                    f"{label!r}."
                )
            values[number[label]] = value
    elif given is not None:
        values[:-1] = given
    return values


def _require_disjoint(problem: SelectionProblem) -> None:
    for one, two, why in (
        ("exclude", "selected", "already in"),
        ("include", "selected", "already in"),
        ("include", "exclude", "excluded"),
    ):
        both = set(getattr(problem, one)) & set(getattr(problem, two))
        if both:
            raise InputError(
                f"Expected `{one}` and `{two}` to name different classes but got {min(both)} "
                f"({problem.names[min(both)]!r}) in both: it is {why}."
            )


def _require_feasible(limits: Limits, available: np.ndarray, names: tuple[str, ...]) -> None:
    """Refuse limits that no choice keeps to, and say which ones contradict each other."""
    m, include = limits.m, limits.include
    have = limits.counts(include)
    there = limits.counts(available)
    for g, label in enumerate(limits.labels):  # the last one has no limits
        if have[g] > limits.most[g]:
            raise InputError(
                f"Expected `include` to keep to `at_most` but it has {have[g]} classes of the "
                f"group {label!r}, where {limits.most[g]} may be added."
            )
        reach = int(min(there[g], limits.most[g]))
        if limits.least[g] > reach:
            raise InputError(
                f"Expected `at_least` that is possible but {limits.least[g]} classes of the group "
                f"{label!r} must be added, where {reach} can be."
            )
    needed = len(include) + int(np.maximum(limits.least - have, 0).sum())
    if needed > m:
        raise InputError(
            f"Expected m to be at least {needed}, the classes that `include` and `at_least` ask "
            f"for, but got {m}."
        )
    possible = int(np.minimum(there, limits.most).sum())
    if possible < m and not limits.has_budget:
        raise InputError(
            f"Expected m to be at most {possible}, the classes that `at_most` and `exclude` leave, "
            f"but got {m}."
        )
    if limits.has_budget:
        others = np.setdiff1d(available, np.array(include, np.int64))
        cheapest = limits.spent(include)
        for g in np.flatnonzero(limits.least > have).tolist():
            costs = np.sort(limits.cost[others[limits.group[others] == g]])
            cheapest += float(costs[: limits.least[g] - have[g]].sum())
        if not limits.affords(cheapest):
            named = ""
            if include:
                dearest = max(include, key=lambda u: float(limits.cost[u]))
                named = f" ({names[dearest]!r} alone {limits.cost[dearest]:g})"
            raise InputError(
                f"Expected a budget of at least {cheapest:g}, what `include` and `at_least` cost"
                f"{named}, but got {limits.budget:g}."
            )


def group_labels(groups: Sequence[Any] | None, count: int) -> tuple[str | None, ...] | None:
    """`groups` as a label, or None, for each candidate."""
    if groups is None:
        return None
    listed = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if isinstance(groups, str) or len(listed) != count:
        raise InputError(
            f"Expected `groups` to be {count} labels, one for each candidate, but got "
            f"{len(listed)}."
        )
    return tuple(None if label is None else str(label) for label in listed)


def group_numbers(
    given: int | Mapping[Any, int] | None, name: str, groups: object
) -> int | dict[str, int] | None:
    """`at_most` or `at_least` as a number, or a number for each label."""
    if given is None:
        return None
    if groups is None:
        raise InputError(f"Expected `groups` with `{name}` but got none; say what the groups are.")
    if isinstance(given, Mapping):
        return {str(k): checks.integer(v, f"{name}[{k!r}]", 0) for k, v in given.items()}
    return checks.integer(given, name, 0)


def first_allowed(problem: SelectionProblem, ranked: np.ndarray) -> list[int]:
    """The first columns of a ranking that the limits allow, after those that must be in."""
    limits = problem.limits
    if limits is None:
        return ranked[: problem.m].tolist()
    room = Remaining(limits, ranked, limits.include)
    for u in ranked.tolist():
        if u not in limits.include and room.fits(u):
            room.add(u)
    return room.chosen
