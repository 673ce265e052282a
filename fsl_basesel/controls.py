"""What is a choice worth? The sets that it has to beat, drawn without looking at similarities.

A selection is compared with random sets of the same size, with a random draw inside the task's own
domain where groups of classes are known, and with the whole pool. A learner that is trained on
such a set gets as many images as one that is trained on the selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fsl_basesel import checks
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.base import seeded

RANDOM, DOMAIN, POOL = "random", "domain", "pool"
CONTROLS = (RANDOM, DOMAIN, POOL)
TITLES = {
    RANDOM: "random sets",
    DOMAIN: "random inside the task's domain",
    POOL: "whole pool",
}


@dataclass(frozen=True)
class Control:
    """Values of sets that were drawn without looking at similarities.

    Attributes:
        kind: One of `CONTROLS`.
        size: Classes of a set.
        values: h of each set; one for the whole pool.
    """

    kind: str
    size: int
    values: tuple[float, ...]

    @property
    def title(self) -> str:
        """What it is called in tables."""
        return TITLES[self.kind]

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

    Args:
        problem: What is chosen from, for whom.
        groups: Group (family, domain) of each candidate, if known.
        novel_groups: Group of each novel class, if known.
        draws: How many random sets.
        seed: Seed of the draws.

    Returns:
        One entry for each control there is; the domain only if groups are known and some
        candidates share a group with the task, but not all.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.8, 0.1, 0.3]], m=1, k=1)
        >>> for one in controls(problem, ["cat", "cat", "car", "car"], ["cat"]):
        ...     print(one.title, one.best)
        random sets 0.9
        random inside the task's domain 0.9
        whole pool 0.9
    """
    checks.integer(draws, "draws", 1, None, "")
    found = [_drawn(problem, RANDOM, None, draws, seed)]
    inside = task_domain(groups, novel_groups)
    if inside is not None and 0 < inside[problem.unselected].sum() < len(problem.unselected):
        found.append(_drawn(problem, DOMAIN, inside, draws, seed))
    everything = problem.replace(m=len(problem.unselected))
    value = everything.value(problem.unselected)
    return [*found, Control(POOL, problem.n_candidates, (value,))]


def _drawn(
    problem: SelectionProblem, kind: str, inside: np.ndarray | None, draws: int, seed: int
) -> Control:
    generator = seeded(seed)
    sets = [random_set(problem.unselected, problem.m, generator, inside) for _ in range(draws)]
    values = tuple(problem.value(chosen) for chosen in sets)
    return Control(kind, problem.m + len(problem.selected), values)


def task_domain(
    groups: Sequence[str] | None, novel_groups: Sequence[str] | None
) -> np.ndarray | None:
    """Which candidates share a group with a novel class `[|B|]`; None where groups are not known.

    Example:
        >>> task_domain(["cat", "car", "dog"], ["dog", "dog"])
        array([False, False,  True])
    """
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

    Args:
        candidates: Columns to choose from.
        m: How many.
        generator: Of the draw.
        inside: `[|B|]` bool, the domain; None draws from all alike.

    Example:
        >>> from fsl_basesel.selectors.base import seeded
        >>> inside = np.array([False, True, False, True])
        >>> sorted(random_set(np.arange(4), 2, seeded(0), inside))
        [1, 3]
    """
    if m > len(candidates):
        raise InputError(f"Expected at most {len(candidates)} classes to draw but got m = {m}.")
    drawn = generator.permutation(candidates)
    if inside is not None:
        drawn = np.concatenate([drawn[inside[drawn]], drawn[~inside[drawn]]])
    return drawn[:m].tolist()
