"""`Selection`: the chosen classes, how good they provably are, and why each was chosen."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from fsl_basesel.errors import InputError
from fsl_basesel.explanation import ChosenClass, Explanation, ServedClass, explain
from fsl_basesel.files.writing import load_json, reading, write_text
from fsl_basesel.problem import ROUNDING, SelectionProblem

FORMAT = "fsl-basesel selection 1"


def library_version() -> str:
    """The installed version, or "unknown" when run from a folder that was never installed."""
    try:
        return installed_version("fsl-basesel")
    except PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class Selection:
    """A finished choice; plain data, so it can be pickled, compared and written to JSON.

    Attributes:
        indices: Chosen columns in order of choice.
        names: Their names.
        value: h(U).
        upper_bound: Proven upper bound on the best h of any m classes; None if not certified.
        gap: (upper_bound - value) / |upper_bound|; 0 is a proof of optimality. See `relative_gap`.
        method: Name of the selector.
        hyperparameters: Settings of the problem (`m`, `k`, `lam`, `mu`, `similarity`, sizes,
            `selected`) and of the selector.
        seed: Seed of the selector's randomness, None if a generator was passed.
        seconds: Wall time of the choice, the certificate not included.
        version: Library version that made it.
        backend: Gradient backend used, None where no gradient was needed.
        explanation: What `explain()` returns.
    """

    indices: list[int]
    names: list[str]
    value: float
    upper_bound: float | None
    gap: float | None
    method: str
    hyperparameters: dict[str, Any]
    seed: int | None
    seconds: float
    version: str
    backend: str | None
    explanation: Explanation = dataclasses.field(repr=False)

    @classmethod
    def of(
        cls,
        problem: SelectionProblem,
        indices: list[int],
        *,
        method: str,
        settings: Mapping[str, object] | None = None,
        seed: int | None = None,
        seconds: float = 0.0,
        upper_bound: float | None = None,
        backend: str | None = None,
    ) -> Selection:
        """The selection of `indices`, checked to be m different columns of B_u."""
        value = problem.value(indices)
        if len(indices) != problem.m:
            raise InputError(f"Expected {problem.m} chosen columns but got {len(indices)}.")
        if upper_bound is not None and not math.isfinite(upper_bound):
            upper_bound = None  # says nothing, so it proves nothing
        return cls(
            indices=[int(u) for u in indices],
            names=[problem.names[u] for u in indices],
            value=value,
            upper_bound=upper_bound,
            gap=None if upper_bound is None else relative_gap(value, upper_bound),
            method=method,
            hyperparameters={
                "m": problem.m,
                "k": problem.k,
                "lam": problem.lam,
                "mu": problem.mu,
                "floor": problem.floor,
                "similarity": problem.similarity_name,
                "n_candidates": problem.n_candidates,
                "n_novel": problem.n_novel,
                "selected": list(problem.selected),
                **(settings or {}),
            },
            seed=seed,
            seconds=seconds,
            version=library_version(),
            backend=backend,
            explanation=explain(problem, indices),
        )

    def certified(self, upper_bound: float) -> Selection:
        """The same selection with a proven upper bound."""
        return dataclasses.replace(
            self, upper_bound=upper_bound, gap=relative_gap(self.value, upper_bound)
        )

    def explain(self) -> Explanation:
        """Whom each chosen class serves, its gain and loss; what each novel class got.

        Iterating gives rows of (chosen class, novel classes it serves, its gain); `.chosen` and
        `.novel` hold everything.
        """
        return self.explanation

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, as written to JSON."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    def to_json(self) -> str:
        """The selection as JSON text; floats are written so that they read back exactly."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1, allow_nan=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write JSON to `path`, atomically: a crash leaves the old file or the new one, whole."""
        return write_text(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Selection:
        """Read what `save` wrote.

        Raises:
            InputError: If the file is no selection, or a damaged one.
        """
        what = "a selection written by `Selection.save`"
        fields = load_json(path, FORMAT, what=what)
        with reading(path, what):
            return cls(**(fields | {"explanation": _explanation(fields["explanation"])}))


def relative_gap(value: float, upper_bound: float) -> float:
    """How far `value` may be from the optimum, relative to the bound; 0 is a proof of optimality.

    Differences that float64 sums cannot tell apart count as none. Below a bound of 0 nothing is
    relative to it: the gap is then 1.

    Example:
        >>> relative_gap(0.75, 1.0)
        0.25
    """
    if not (math.isfinite(value) and math.isfinite(upper_bound)):
        raise InputError(
            f"Expected a finite value and bound but got {value} and {upper_bound}; they prove "
            "nothing."
        )
    difference = upper_bound - value
    if difference <= ROUNDING * abs(upper_bound):
        return 0.0
    return difference / abs(upper_bound) if upper_bound else 1.0


def _explanation(fields: dict[str, Any]) -> Explanation:
    chosen = tuple(
        ChosenClass(**(row | {"serves": tuple(row["serves"])})) for row in fields["chosen"]
    )
    novel = tuple(
        ServedClass(**(row | {"neighbours": tuple(tuple(pair) for pair in row["neighbours"])}))
        for row in fields["novel"]
    )
    return Explanation(chosen, novel)
