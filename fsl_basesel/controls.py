"""What is a choice worth? The sets that it has to beat, drawn without looking at similarities.

A selection is compared with random sets of the same size, with a random draw inside the task's own
domain where groups of classes are known, and with the whole pool. A learner that is trained on
such a set gets as many images as one that is trained on the selection: `even_counts` says how many
of each class, and `random_set_with_images` draws classes that have enough.
"""

from __future__ import annotations

from bisect import bisect_right
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
    of_domain: float = 1.0  # share of the classes drawn that are of the task's domain

    @property
    def mean(self) -> float:
        """Mean h of the sets."""
        return float(np.mean(self.values))

    @property
    def best(self) -> float:
        """Largest h of the sets."""
        return max(self.values)

    @property
    def title(self) -> str:
        """What was drawn, in words."""
        if self.kind == POOL:
            return f"all {self.size} classes of the pool"
        words = f"mean of {len(self.values)} random choices"
        if self.of_domain < 1.0:
            share = min(self.of_domain, 0.99)
            return f"{words} that take the task's domain first ({share:.0%} of their classes)"
        return f"{words} inside the task's domain" if self.kind == DOMAIN else words

    @property
    def words(self) -> str:
        """`title`, and what the best of several sets reached."""
        return self.title if self.kind == POOL else f"{self.title}; best {self.best:.6f}"


def controls(
    problem: SelectionProblem,
    groups: Sequence[str | None] | None = None,
    novel_groups: Sequence[str | None] | None = None,
    draws: int = 100,
    seed: int = 0,
) -> list[Control]:
    """Values of random sets, of random sets inside the task's domain, and of the whole pool.

    The domain is there only if the groups of candidates and novel classes are known and some
    candidates share a group with the task, but not all.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.8, 0.1, 0.3]], m=1, k=1)
        >>> for one in controls(problem, ["cat", "cat", "car", "car"], ["cat"]):
        ...     print(one.title, one.best)
        mean of 100 random choices 0.9
        mean of 100 random choices inside the task's domain 0.9
        all 4 classes of the pool 0.9
    """
    checks.integer(draws, "draws", 1)
    found = [_drawn(problem, RANDOM, None, draws, seed)]
    inside = task_domain(problem, groups, novel_groups)
    if inside is not None:
        found.append(_drawn(problem, DOMAIN, inside, draws, seed))
    cost = problem.cost if problem.mu else None
    nothing = {"budget": None, "cost": cost, "include": (), "at_most": None, "at_least": None}
    everything = problem.replace(m=len(problem.unselected), **nothing)
    value = everything.value(problem.unselected)
    return [*found, Control(POOL, everything.m + len(problem.selected), (value,))]


def _drawn(
    problem: SelectionProblem, kind: str, inside: np.ndarray | None, draws: int, seed: int
) -> Control:
    generator = seeded(seed)
    sets = [random_set(problem, generator, inside) for _ in range(draws)]
    values = tuple(problem.value(chosen) for chosen in sets)
    everyone = np.concatenate(sets).astype(np.int64)
    of_domain = 1.0 if inside is None or not len(everyone) else float(inside[everyone].mean())
    return Control(kind, max(map(len, sets)) + len(problem.selected), values, of_domain)


def task_domain(
    problem: SelectionProblem,
    groups: Sequence[str | None] | None,
    novel_groups: Sequence[str | None] | None,
) -> np.ndarray | None:
    """Which candidates share a group with a novel class, `[|B|]` bool.

    None if groups are not known, or if none or all of the candidates to choose from do.
    """
    if groups is None or novel_groups is None:
        return None
    wanted = set(novel_groups) - {None}
    inside = np.array([group in wanted for group in groups])
    free = inside[problem.unselected]
    return inside if free.any() and not free.all() else None


def random_set(
    problem: SelectionProblem, generator: np.random.Generator, inside: np.ndarray | None = None
) -> list[int]:
    """A random choice that keeps to the limits of the problem.

    Classes of the task's domain (`inside`, see `task_domain`) come first, others only if it has too
    few; None draws from all alike.
    """
    ranked = generator.permutation(problem.unselected)
    if inside is not None:
        ranked = np.concatenate([ranked[inside[ranked]], ranked[~inside[ranked]]])
    return first_allowed(problem, ranked)


def random_set_with_images(
    problem: SelectionProblem, sizes: np.ndarray, images: int, seed: int, draws: int = 100
) -> list[int]:
    """The first random set that has at least `images` images, with the classes in already.

    If none of `draws` sets has, it is the one with the most. `sizes` are the images of each
    candidate, `[|B|]`; those with none are not drawn.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.8, 0.1, 0.3]], m=2, k=1)
        >>> sorted(random_set_with_images(problem, np.array([5, 90, 80, 5]), 150, seed=0))
        [1, 2]
    """
    empty = np.flatnonzero((sizes < 1) & ~problem.is_selected).tolist()
    problem = problem.replace(exclude={*problem.exclude, *empty})
    generator = seeded(seed)
    needed = images - sizes[problem.is_selected].sum()
    largest: list[int] = []
    for _ in range(draws):
        drawn = random_set(problem, generator)
        if not largest or sizes[drawn].sum() > sizes[largest].sum():
            largest = drawn
        if sizes[largest].sum() >= needed:
            break
    return largest


def even_counts(sizes: Sequence[int] | np.ndarray, images: int) -> np.ndarray:
    """How many images to take of each class for `images` in all, as evenly as they allow.

    A class with fewer than its share gives all it has, and others give more; earlier classes give
    what is left over. All are taken where there are no more than `images`.

    Example:
        >>> even_counts([9, 2, 9], images=11)
        array([5, 2, 4])
    """
    counts = np.asarray(sizes)
    if images < len(counts):
        raise InputError(
            f"Expected at least one image of each class but got {images} images for {len(counts)} "
            "classes: too many classes for equal numbers of images; allow more images (for a "
            "control: a larger m), or leave the control out."
        )
    if images >= counts.sum():
        return counts
    shares = range(int(counts.max()) + 1)
    share = bisect_right(shares, images, key=lambda each: np.minimum(counts, each).sum()) - 1
    taken = np.minimum(counts, share)
    taken[np.flatnonzero(counts > share)[: images - taken.sum()]] += 1
    return taken


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
            "classes (a hub); --similarity centred --centre each often helps"
        )
    base = len(selection.names) + len(problem.selected)
    if problem.k > base:
        found.append(
            f"k = {problem.k} is more than the {base} base classes there are, so the missing "
            f"neighbours count as {problem.floor:g}; choose k of at most {base}"
        )
    return found
