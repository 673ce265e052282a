"""`Selector`: what every algorithm is, promises and returns."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selection import Selection
from fsl_basesel.similarity import SIMILARITIES, Space


@dataclass(frozen=True)
class Choice:
    """What an algorithm found: the set, and what it learnt on the way.

    Attributes:
        indices: Exactly m columns of B_u in the order they were chosen.
        upper_bound: A proven upper bound on the optimum, where the algorithm has one.
        backend: The gradient backend, where gradients were needed.
    """

    indices: list[int]
    upper_bound: float | None = None
    backend: str | None = None


@dataclass(frozen=True)
class Selector(ABC):
    """An algorithm: its hyper-parameters as fields, its contract as class attributes.

    Attributes:
        name: What `fb.select(problem, method=name)` calls it.
        randomized: Whether the generator matters.
        shardable: Whether it works on rows that are spread over processes.
        guarantee: What is proven about the value it reaches, in one line.
    """

    name: ClassVar[str]
    randomized: ClassVar[bool] = False
    shardable: ClassVar[bool] = True
    guarantee: ClassVar[str]

    @abstractmethod
    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        """Choose exactly `problem.m` columns; ties go to the lowest index (but see `used_up`)."""

    def select(
        self, problem: SelectionProblem, generator: np.random.Generator | int | None = None
    ) -> Selection:
        """Choose, time it, and say why each class was chosen.

        Args:
            problem: What to choose from.
            generator: A seed or a numpy generator; None is seed 0.
        """
        self.require_shardable(problem)
        seed = 0 if generator is None else generator
        if isinstance(seed, np.random.Generator):
            rng, number = seed, None
        else:
            rng, number = seeded(seed), int(seed)
        start = time.perf_counter()
        choice = self.choose(problem, rng)
        seconds = time.perf_counter() - start
        return Selection.of(
            problem,
            choice.indices,
            method=self.name,
            settings=self.settings(),
            seed=number,
            seconds=seconds,
            upper_bound=choice.upper_bound,
            backend=choice.backend,
        )

    def require_shardable(self, problem: SelectionProblem) -> None:
        """Refuse a problem spread over processes where the algorithm needs all rows at once."""
        if problem.shards > 1 and not self.shardable:
            raise InputError(
                f"Expected a problem on one process for method {self.name!r}, which looks at all "
                f"rows at once, but got one on {problem.shards}; use another method."
            )
        for selector in self.nested():
            selector.require_shardable(problem)

    def nested(self) -> list[Selector]:
        """The selectors among the hyper-parameters, whose contracts are this one's too."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return [value for value in values if isinstance(value, Selector)]

    def settings(self) -> dict[str, object]:
        """The hyper-parameters as plain types, nested selectors with theirs."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: _plain(value) for name, value in values.items()}


def _plain(value: object) -> object:
    if isinstance(value, Selector):
        return {"method": value.name, **value.settings()}
    return value.item() if isinstance(value, np.generic) else value


def seeded(seed: int) -> np.random.Generator:
    """The generator of a seed: PCG64, whose stream is the same on every machine."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"Expected `seed` to be an integer of at least 0 but got {seed!r}.")
    return np.random.Generator(np.random.PCG64(int(seed)))


def one_of(value: str, allowed: tuple[str, ...], name: str) -> str:
    """`value` if it is among `allowed`, else an error that lists them."""
    if value not in allowed:
        raise InputError(f"Expected `{name}` to be one of {', '.join(allowed)} but got {value!r}.")
    return value


def space_of_centroids(problem: SelectionProblem, method: str) -> Space:
    """The space in which the problem's similarity compares centroids.

    Raises:
        InputError: The problem has no centroids, or its similarity is a function.
    """
    if problem.centroids is None:
        raise InputError(
            f"Expected a problem made by `SelectionProblem.from_centroids` for method {method!r}, "
            "which compares centroids, but got one made from a similarity matrix."
        )
    if problem.space is None:
        raise InputError(
            f"Expected a similarity with a name ({', '.join(SIMILARITIES)}) for method {method!r}, "
            "which compares centroids itself, but the problem was made with a function; use "
            "another method."
        )
    return problem.space


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Ascending positions of the `count` largest values, ties at the edge by lowest position.

    Example:
        >>> largest(np.array([1.0, 3.0, 2.0, 2.0]), 2)
        array([1, 2])
    """
    if count == 0:
        return np.empty(0, np.int64)
    edge = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > edge)
    level = np.flatnonzero(values == edge)[: count - len(above)]
    return np.sort(np.concatenate([above, level]))
