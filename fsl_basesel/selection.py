"""`Selection`: the chosen classes, how good they provably are, and why each was chosen."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import fsl_basesel
from fsl_basesel import topk
from fsl_basesel.compiled import kernel
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import load_json, reading, write_text
from fsl_basesel.problem import ROUNDING, SelectionProblem

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

FORMAT = "fsl-basesel selection 1"
COLUMNS = ("rank", "index", "name", "gain", "loss", "serves")
"""Keys of `Selection.rows()`."""
SETTINGS = ("m", "k", "lam", "mu", "floor", "n_candidates", "n_novel")
"""Attributes of a problem that a selection records."""


@dataclass(frozen=True)
class ChosenClass:
    """One chosen class.

    Attributes:
        index: Its column.
        serves: Novel classes that have it among their top-k base classes, the most similar first.
        gain: h gained when it was added to the classes chosen before it.
        loss: h lost if it alone were dropped from the finished selection.
        adds_from: The smallest K, beginning with the problem's, at which it is closer to some novel
            class than the K-th closest of the classes chosen before it. Larger than the problem's K
            where the objective was used up: the class adds nothing and was taken as a next
            neighbour (see `fsl_basesel.selectors.greedy`), or for reasons of the method's own.
            None where no K is large enough.
    """

    index: int
    name: str
    serves: tuple[str, ...]
    gain: float
    loss: float
    adds_from: int | None = None


@dataclass(frozen=True)
class ServedClass:
    """One novel class.

    Attributes:
        neighbours: Its top-k base classes with their similarities, the closest first; classes of
            B_s count.
        ratio_before: Similarity Ratio with B_s alone, None where B_s is empty.
        ratio_after: Similarity Ratio with the whole base set, None where it is undefined.
    """

    name: str
    neighbours: tuple[tuple[str, float], ...]
    ratio_before: float | None
    ratio_after: float | None


@dataclass(frozen=True)
class Explanation:
    """Every chosen class in order of choice, and every novel class.

    Iterating gives rows of (chosen class, novel classes it serves, its gain).
    """

    chosen: tuple[ChosenClass, ...]
    novel: tuple[ServedClass, ...]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return ((row.name, row.serves, row.gain) for row in self.chosen)

    def __len__(self) -> int:
        return len(self.chosen)


@dataclass(frozen=True)
class Selection:
    """A finished choice; plain data, so it can be pickled, compared and written to JSON.

    Attributes:
        indices: Chosen columns in order of choice.
        value: h(U).
        upper_bound: Proven upper bound on the best h of any m classes; None if not certified.
        gap: (upper_bound - value) / |upper_bound - floor|; 0 is a proof of optimality. See
            `relative_gap`.
        method: Name of the selector.
        hyperparameters: Settings of the problem (`m`, `k`, `lam`, `mu`, `similarity`, sizes,
            `selected`) and of the selector.
        seed: Seed of the selector's randomness, None if a generator was passed.
        seconds: Wall time of the call: choice, reasons, and the certificate where one was made.
        backend: Gradient backend used, None where no gradient was needed.
        explanation: What `explain()` returns.
        device: Where the gradients were computed, None where none was needed.
        limits: Names of what was excluded and included, the budget, groups with their limits; None
            without any.
        spent: What the chosen classes cost together, None without a budget.
        nu: By how much a further unit of the budget raises the proven bound at most; None if no
            method with a bound chose, or without a budget.
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
    device: str | None = None
    limits: dict[str, Any] | None = None
    spent: float | None = None
    nu: float | None = None

    @classmethod
    def of(
        cls,
        problem: SelectionProblem,
        indices: list[int],
        *,
        method: str,
        settings: Mapping[str, object] | None = None,
        seed: int | None = None,
        upper_bound: float | None = None,
        nu: float | None = None,
        backend: str | None = None,
        device: str | None = None,
    ) -> Selection:
        """The selection of `indices`, checked to be different columns that keep to all limits."""
        value = problem.value(indices)
        problem.require_allowed(indices)
        if upper_bound is not None and not math.isfinite(upper_bound):
            upper_bound = None  # says nothing, so it proves nothing
        return cls(
            indices=[int(u) for u in indices],
            names=[problem.names[u] for u in indices],
            value=value,
            upper_bound=upper_bound,
            gap=None if upper_bound is None else relative_gap(value, upper_bound, problem.floor),
            method=method,
            hyperparameters={
                **{name: getattr(problem, name) for name in SETTINGS},
                "similarity": problem.similarity_name,
                "selected": list(problem.selected),
                **({} if problem.matrix.space is None else problem.matrix.space.options),
                **({} if problem.weights is None else {"weighted": True}),
                **problem.matrix.made_by,
                **(settings or {}),
            },
            seed=seed,
            seconds=0.0,
            version=fsl_basesel.__version__,
            backend=backend,
            device=device,
            explanation=explain(problem, indices),
            limits=_limits(problem),
            spent=None if problem.budget is None else problem.limits.spent(indices),  # type: ignore[union-attr]
            nu=nu,
        )

    def certified(self, upper_bound: float) -> Selection:
        """The same selection with a proven upper bound."""
        floor = self.hyperparameters.get("floor", 0.0)
        gap = relative_gap(self.value, upper_bound, floor)
        return dataclasses.replace(self, upper_bound=upper_bound, gap=gap)

    @property
    def share_of_bound(self) -> float | None:
        """Value over bound, both counted from the floor; None without a bound above it."""
        floor = self.hyperparameters.get("floor", 0.0)
        if self.upper_bound is None or self.upper_bound <= floor:
            return None
        if self.gap == 0.0:
            return 1.0  # but for rounding
        return (self.value - floor) / (self.upper_bound - floor)

    def explain(self) -> Explanation:
        """For each chosen class novel classes served, gain and loss; and each novel class."""
        return self.explanation

    def rows(self) -> list[dict[str, Any]]:
        """The chosen classes in order: rank, index, name, gain, loss, and novel classes served."""
        rows = []
        for rank, row in enumerate(self.explanation.chosen, 1):
            cells = (rank, row.index, row.name, row.gain, row.loss, list(row.serves))
            rows.append(dict(zip(COLUMNS, cells, strict=True)))
        return rows

    def to_pandas(self) -> pandas.DataFrame:
        """`rows()` as a data frame; needs pandas."""
        import pandas

        return pandas.DataFrame(self.rows(), columns=list(COLUMNS))

    def plot(self) -> Figure:
        """The charts of the report as one matplotlib figure, which a notebook shows."""
        from fsl_basesel.report.figures import figure_of

        return figure_of(self)

    def _repr_html_(self) -> str:
        """The table of chosen classes, for notebooks."""
        from fsl_basesel.report.page import html_table

        return html_table(self)

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
        """Read what `save` wrote; a file that is no selection, or a damaged one, is refused."""
        what = "a selection written by `Selection.save`"
        fields = load_json(path, FORMAT, what=what)
        with reading(path, what):
            selection = cls(**(fields | {"explanation": _explanation(fields["explanation"])}))
            selection._require_possible()
            return selection

    def _require_possible(self) -> None:
        """Raise ValueError where a field of a file has a type or a value that no selection has."""
        columns = isinstance(self.indices, list) and all(
            type(u) is int and u >= 0 for u in self.indices
        )
        if not columns or len(set(self.indices)) < len(self.indices):
            raise ValueError("`indices` are not different column numbers")
        named = isinstance(self.names, list) and all(isinstance(name, str) for name in self.names)
        if not named or len(self.names) != len(self.indices):
            raise ValueError("`names` are not one text for each of `indices`")
        if not isinstance(self.hyperparameters, dict):
            raise ValueError("`hyperparameters` are not an object")
        for name in ("value", "seconds", "upper_bound", "gap", "spent", "nu"):
            number = getattr(self, name)
            if number is None and name not in ("value", "seconds"):
                continue
            if type(number) not in (int, float) or not math.isfinite(number):
                raise ValueError(f"`{name}` is {number!r} and not a number")
            if number < 0 and name not in ("value", "upper_bound"):
                raise ValueError(f"`{name}` is {number!r} and cannot be below 0")


def _limits(problem: SelectionProblem) -> dict[str, Any] | None:
    """The limits of a problem in plain types."""
    limits: dict[str, Any] = {
        "budget": problem.budget,
        "exclude": [problem.names[u] for u in problem.exclude] or None,
        "include": [problem.names[u] for u in problem.include] or None,
        "at_most": problem.at_most,
        "at_least": problem.at_least,
    }
    given = {name: value for name, value in limits.items() if value is not None}
    return given or None


def relative_gap(value: float, upper_bound: float, floor: float = 0.0) -> float:
    """How far `value` may be from the optimum, relative to the bound; 0 is a proof of optimality.

    Similarities are counted from the floor, so the bound is too. Differences that float64 sums
    cannot tell apart count as none. Where the bound is the floor, the gap is 1.

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
    size = abs(upper_bound - floor)
    return difference / size if size else 1.0


def _explanation(fields: dict[str, Any]) -> Explanation:
    chosen = tuple(
        ChosenClass(**(row | {"serves": tuple(row["serves"])})) for row in fields["chosen"]
    )
    novel = tuple(
        ServedClass(**(row | {"neighbours": tuple(tuple(pair) for pair in row["neighbours"])}))
        for row in fields["novel"]
    )
    return Explanation(chosen, novel)


def explain(problem: SelectionProblem, indices: list[int]) -> Explanation:
    """Work out the explanation of a choice given in order."""
    added = np.array(indices, np.int64)
    value, index = problem.state_of(problem.with_selected([]), more=1)
    local = np.empty((len(problem.rows.blocks), len(indices)))
    for at in range(len(indices)):
        local[:, at : at + 1] = problem.excess(value[:, -2], added[at : at + 1])
        topk.insert(problem.by_candidate, added[at : at + 1], value, index)
    excess = problem.rows.sum(local)
    adds_from = _adds_from(problem, added, excess)
    total = problem.losses(value, index)
    value, index = problem.rows.all(value), problem.rows.all(index)
    serves = _served_by(value, index, problem.depth)
    chosen = tuple(
        ChosenClass(
            index=u,
            name=problem.names[u],
            serves=tuple(problem.novel_names[n] for n in serves.get(u, ())),
            gain=float(gain / problem.scale - problem.modular[u]),
            loss=float(total[u] / problem.scale - problem.modular[u]),
            adds_from=int(first) if math.isfinite(first) else None,
        )
        for u, gain, first in zip(indices, excess, adds_from, strict=True)
    )
    return Explanation(chosen, _novel_rows(problem, indices, value, index))


def _adds_from(problem: SelectionProblem, added: np.ndarray, excess: np.ndarray) -> np.ndarray:
    """`ChosenClass.adds_from` of each class; infinite where no K is large enough."""
    counted = problem.row_weights > 0.0
    least = np.full(len(added), float(problem.k))
    for at in np.flatnonzero(excess == 0.0):
        before = problem.with_selected(added[:at])
        least[at] = _least_k(problem.by_candidate, added[at], before, counted, problem.floor)
    return np.min(problem.rows.gather(least), axis=0)


@kernel
def _least_k(
    columns: np.ndarray, u: int, before: np.ndarray, counted: np.ndarray, floor: float
) -> float:
    """1 + how many of `before` are at least as close as `u`, in the row where it is least."""
    least = np.inf
    for n in range(columns.shape[1]):
        if counted[n] and columns[u, n] > floor:
            k = 1.0
            for v in before:
                k += columns[v, n] >= columns[u, n]
                if k >= least:
                    break
            least = min(least, k)
    return least


def _served_by(value: np.ndarray, index: np.ndarray, k: int) -> dict[int, list[int]]:
    """Rows that list each column among their top k, the most similar first, ties by row."""
    rows, places = np.nonzero(index[:, :k] >= 0)
    serves: dict[int, list[int]] = {}
    for at in np.lexsort((rows, -value[rows, places])):
        serves.setdefault(int(index[rows[at], places[at]]), []).append(int(rows[at]))
    return serves


def _novel_rows(
    problem: SelectionProblem, indices: list[int], value: np.ndarray, index: np.ndarray
) -> tuple[ServedClass, ...]:
    before = problem.ratio_of(problem.with_selected([])).tolist()
    after = problem.ratio_of(problem.with_selected(indices)).tolist()
    return tuple(
        ServedClass(
            name=problem.novel_names[n],
            neighbours=tuple(
                (problem.names[u], float(similarity))
                for u, similarity in zip(index[n, : problem.depth], value[n], strict=False)
                if u >= 0
            ),
            ratio_before=before[n] if math.isfinite(before[n]) else None,
            ratio_after=after[n] if math.isfinite(after[n]) else None,
        )
        for n in range(problem.n_novel)
    )
