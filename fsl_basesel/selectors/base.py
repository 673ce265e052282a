"""`Selector`: what every algorithm is, promises and returns."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selection import Selection
from fsl_basesel.similarity import SIMILARITIES, Space, one_blas_thread

Seed: TypeAlias = int | np.random.Generator


@dataclass(frozen=True)
class Choice:
    """What an algorithm found: the set, and what it learnt on the way.

    Attributes:
        indices: Columns of B_u in the order they were chosen, m of them or what the limits allow.
        upper_bound: A proven upper bound on the optimum, where the algorithm has one.
        price: By how much a further unit of the budget raises the bound at most (nu), where the
            algorithm knows it.
        backend: The gradient backend, where gradients were needed.
        device: The device they were computed on.
    """

    indices: list[int]
    upper_bound: float | None = None
    price: float | None = None
    backend: str | None = None
    device: str | None = None


@dataclass(frozen=True)
class Selector(ABC):
    """An algorithm: its hyper-parameters as fields, its contract as class attributes.

    Attributes:
        name: What `fb.select(problem, method=name)` calls it.
        guarantee: What is proven about the value it reaches, in one line.
        needs_centroids: Whether it looks at centroids, not at similarities alone.
        needs_all_rows: Whether it cannot work on rows that are spread over processes.
        uses_k: Whether `k` and `lam` of the objective influence the choice.
        randomized: Whether the seed matters.
        serves_limits: Whether it keeps to budget, include, at_most and at_least; if not, they are
            refused. Every algorithm keeps to exclude.
    """

    name: ClassVar[str]
    guarantee: ClassVar[str]
    needs_centroids: ClassVar[bool] = False
    needs_all_rows: ClassVar[bool] = False
    uses_k: ClassVar[bool] = True
    randomized: ClassVar[bool] = False
    serves_limits: ClassVar[bool] = False

    @abstractmethod
    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        """Choose exactly `problem.m` columns; ties go to the lowest index (but see `greedy`)."""

    def select(
        self,
        problem: SelectionProblem,
        seed: Seed | None = None,
        *,
        generator: Seed | None = None,
    ) -> Selection:
        """Choose, time it, and say why each class was chosen.

        Args:
            problem: What to choose from.
            seed: An integer or a numpy generator; 0 by default.
            generator: Another word for `seed`.
        """
        start = time.perf_counter()
        source = next((given for given in (seed, generator) if given is not None), 0)
        rng = seeded(source)
        stated = rng.bit_generator.state if isinstance(source, np.random.Generator) else source
        problem.agree("select", method=self.name, options=self.settings(), seed=stated)
        self.require(problem)
        choice = self.choose(problem, rng)
        selection = self.selection_of(problem, choice, source)
        return dataclasses.replace(selection, seconds=time.perf_counter() - start)

    def selection_of(self, problem: SelectionProblem, choice: Choice, seed: Seed) -> Selection:
        """What was chosen, with its reasons and how it was made."""
        return Selection.of(
            problem,
            choice.indices,
            method=self.name,
            settings=self.settings(),
            seed=None if isinstance(seed, np.random.Generator) else int(seed),
            upper_bound=choice.upper_bound,
            nu=choice.price,
            backend=choice.backend,
            device=choice.device,
        )

    def require(self, problem: SelectionProblem) -> None:
        """Refuse a problem that the algorithm, or one inside it, cannot work on."""
        for value in self._fields().values():
            if isinstance(value, Selector):
                value.require(problem)
        if problem.rows.size > 1 and self.needs_all_rows:
            raise InputError(
                f"Expected a problem on one process for method {self.name!r}, which looks at all "
                f"rows at once, but got one on {problem.rows.size}; use another method."
            )
        if problem.centroids is None and self.needs_centroids:
            raise InputError(
                "Expected a problem made by `SelectionProblem.from_centroids` for method "
                f"{self.name!r}, which looks at centroids, but got one made from a similarity "
                "matrix."
            )
        if problem.limits is not None and not self.serves_limits:
            raise InputError(
                "Expected a problem without budget, include, at_most and at_least for method "
                f"{self.name!r}, which is for a plain m; use auto or another one that serves "
                "limits (docs/budgets.md)."
            )

    def on_device(self, device: str) -> Selector:
        """The same algorithm with what can run on a device there; itself for `auto`."""
        if device == "auto":
            return self
        if device != "cpu" and not self.uses_device():
            raise InputError(
                f"Expected a method that can run on {device!r} but got {self.name!r}, which runs "
                'on the CPU; leave `device` at "auto".'
            )
        changes: dict[str, Any] = {}
        for name, value in self._fields().items():
            if name == "device":
                changes[name] = device
            elif isinstance(value, Selector) and value.uses_device():
                changes[name] = value.on_device(device)
        return dataclasses.replace(self, **changes)

    def uses_device(self) -> bool:
        """Whether the algorithm, or one inside it, can run on a GPU."""
        values = self._fields()
        inside = (value for value in values.values() if isinstance(value, Selector))
        return "device" in values or any(value.uses_device() for value in inside)

    def settings(self) -> dict[str, object]:
        """The hyper-parameters as plain types, nested selectors with theirs.

        Without the device: the selection is the same on every one.
        """
        values = self._fields().items()
        return {name: _plain(value) for name, value in values if name != "device"}

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def _plain(value: object) -> object:
    if isinstance(value, Selector):
        return {"method": value.name, **value.settings()}
    return value.item() if isinstance(value, np.generic) else value


def seeded(seed: Seed) -> np.random.Generator:
    """The generator of a seed: PCG64, whose stream is the same on every machine."""
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"Expected `seed` to be an integer of at least 0 but got {seed!r}.")
    return np.random.Generator(np.random.PCG64(int(seed)))


def space_of_centroids(problem: SelectionProblem, method: str) -> tuple[Space, np.ndarray]:
    """The space in which a named similarity compares centroids, and B_u at unit length there."""
    space, free = problem.matrix.space, problem.unselected
    if space is None or problem.centroids is None:
        raise InputError(
            f"Expected a similarity with a name ({', '.join(SIMILARITIES)}) for method {method!r}, "
            "which compares centroids itself, but the problem was made with a function; use "
            "another method."
        )
    names = [problem.names[u] for u in free]
    with one_blas_thread():
        return space, space.unit(problem.centroids[0][free], "candidates", names)


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
