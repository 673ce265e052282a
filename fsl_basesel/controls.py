"""What is a choice worth? The sets that it has to beat, drawn without looking at similarities.

A selection is compared with random sets of the same size, with a random draw inside the task's own
domain where groups of classes are known, and with the whole pool. A learner that is trained on
such a set gets as many images as one that is trained on the selection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fsl_basesel import checks
from fsl_basesel.errors import InputError
from fsl_basesel.limits import first_allowed
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selection import Selection
from fsl_basesel.selectors.base import seeded

RANDOM, DOMAIN, POOL = "random", "domain", "pool"
# Share of the bound that random choices may miss before similarities count as different.
HARDLY = 0.03
# Share of the task with the same nearest base class from which on that class is a hub.
HUB = 1 / 3


@dataclass(frozen=True)
class Control:
    """Values of sets that were drawn without looking at similarities."""

    kind: str  # RANDOM, DOMAIN or POOL
    size: int  # classes of a set
    values: tuple[float, ...]  # h of each set; one for the whole pool

    @property
    def mean(self) -> float:
        """Mean h of the sets."""
        return float(np.mean(self.values))

    @property
    def best(self) -> float:
        """Largest h of the sets."""
        return max(self.values)


def controls(
    problem: SelectionProblem,
    groups: Sequence[str] | None = None,
    novel_groups: Sequence[str] | None = None,
    draws: int = 100,
    seed: int = 0,
) -> list[Control]:
    """Values of random sets, of random sets inside the task's domain, and of the whole pool.

    The domain is there only if the groups of candidates and novel classes are known and some
    candidates share a group with the task, but not all.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.8, 0.1, 0.3]], m=1, k=1)
        >>> for one in controls(problem, ["cat", "cat", "car", "car"], ["cat"]):
        ...     print(one.kind, one.best)
        random 0.9
        domain 0.9
        pool 0.9
    """
    checks.integer(draws, "draws", 1)
    found = [_drawn(problem, RANDOM, None, draws, seed)]
    inside = task_domain(groups, novel_groups)
    if inside is not None and 0 < inside[problem.unselected].sum() < len(problem.unselected):
        found.append(_drawn(problem, DOMAIN, inside, draws, seed))
    cost = problem.cost if problem.mu else None
    nothing = {"budget": None, "cost": cost, "include": (), "at_most": None, "at_least": None}
    everything = problem.replace(m=len(problem.unselected), **nothing)
    value = everything.value(problem.unselected)
    return [*found, Control(POOL, problem.n_candidates, (value,))]


def _drawn(
    problem: SelectionProblem, kind: str, inside: np.ndarray | None, draws: int, seed: int
) -> Control:
    sets = random_choices(problem, draws, seed, inside)
    values = tuple(problem.value(chosen) for chosen in sets)
    return Control(kind, max(map(len, sets)) + len(problem.selected), values)


def random_choices(
    problem: SelectionProblem, draws: int, seed: int = 0, inside: np.ndarray | None = None
) -> list[list[int]]:
    """Random sets that keep to the limits of a problem, `inside` as for `random_set`."""
    generator, columns = seeded(seed), problem.unselected
    ranked = (random_set(columns, len(columns), generator, inside) for _ in range(draws))
    return [first_allowed(problem, np.array(one, np.int64)) for one in ranked]


def task_domain(
    groups: Sequence[str] | None, novel_groups: Sequence[str] | None
) -> np.ndarray | None:
    """Which candidates share a group with a novel class, `[|B|]`; None if that is not known."""
    if groups is None or novel_groups is None:
        return None
    wanted = set(novel_groups)
    return np.array([group in wanted for group in groups])


def random_set(
    candidates: np.ndarray,
    m: int,
    generator: np.random.Generator,
    inside: np.ndarray | None = None,
) -> list[int]:
    """`m` of the candidates at random; those of a domain first, others only if it has too few.

    The domain is `inside`, `[|B|]` bool; None draws from all alike.
    """
    if m > len(candidates):
        raise InputError(f"Expected at most {len(candidates)} classes to draw but got m = {m}.")
    drawn = generator.permutation(candidates)
    if inside is not None:
        drawn = np.concatenate([drawn[inside[drawn]], drawn[~inside[drawn]]])
    return drawn[:m].tolist()


def standing(value: float, upper_bound: float | None, control: Control) -> float | None:
    """How far a choice is between random sets and the bound: 0 is their mean, 1 the bound.

    None where there is no bound, or random sets reach it.

    Example:
        >>> standing(0.875, 1.0, Control(RANDOM, 3, (0.25, 0.75)))
        0.75
    """
    if upper_bound is None or not upper_bound - control.mean > 1e-12 * abs(upper_bound):
        return None
    if upper_bound - value <= 1e-12 * abs(upper_bound):  # as for a gap of 0
        return 1.0
    return (value - control.mean) / (upper_bound - control.mean)


def doubts(
    problem: SelectionProblem, selection: Selection, control: Control, trained: bool = True
) -> list[str]:
    """Reasons to doubt that a choice means anything, each with what to do; none is good.

    `control` are random sets of the same size, and `trained` is False if the features come from a
    network with random weights.
    """
    found = []
    if not trained:
        found.append(
            "the network has random weights, so its features say little about the classes; take "
            "trained weights"
        )
    bound = selection.value if selection.upper_bound is None else selection.upper_bound
    room = bound - problem.floor
    if bound - control.mean < HARDLY * room:
        reached = 1 - (bound - control.mean) / room if room > 0 else 1.0
        found.append(
            f"similarities hardly differ: random choices reach {reached:.1%} of the bound; check "
            "the features, or compare classes by --similarity centred or whitened"
        )
    nearest = Counter(row.neighbours[0][0] for row in selection.explanation.novel if row.neighbours)
    name, served = max(nearest.items(), key=lambda pair: pair[1], default=("", 0))
    if problem.n_novel >= 10 and len(selection.names) >= 5 and served > HUB * problem.n_novel:
        found.append(
            f"'{name}' is the nearest base class of {served} of the {problem.n_novel} novel "
            "classes (a hub); --similarity centred --centre each often mends that"
        )
    base = len(selection.names) + len(problem.selected)
    if problem.k > base:
        found.append(
            f"k = {problem.k} is more than the {base} base classes there are, so the missing "
            f"neighbours count as {problem.floor:g}; choose k of at most {base}"
        )
    return found
