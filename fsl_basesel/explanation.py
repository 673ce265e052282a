"""Why each class was chosen, and what each novel class got."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fsl_basesel import topk
from fsl_basesel.problem import SelectionProblem


@dataclass(frozen=True)
class ChosenClass:
    """One chosen class.

    Attributes:
        index: Its column.
        name: Its name.
        serves: Novel classes that have it among their top-k base classes, the most similar first.
        gain: h gained when it was added to the classes chosen before it.
        loss: h lost if it alone were dropped from the finished selection.
    """

    index: int
    name: str
    serves: tuple[str, ...]
    gain: float
    loss: float


@dataclass(frozen=True)
class ServedClass:
    """One novel class.

    Attributes:
        name: Its name.
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
    """Every chosen class in order of choice, and every novel class."""

    chosen: tuple[ChosenClass, ...]
    novel: tuple[ServedClass, ...]

    def __iter__(self):  # type: ignore[no-untyped-def]
        """Rows of (chosen class, novel classes it serves, its gain)."""
        return ((row.name, row.serves, row.gain) for row in self.chosen)

    def __len__(self) -> int:
        return len(self.chosen)


def explain(problem: SelectionProblem, indices: list[int]) -> Explanation:
    """Work out the explanation of a choice given in order."""
    scale = problem.n_novel * problem.k
    start = np.array(problem.selected, np.int64)
    value, index = topk.state_of(problem.columns, start, problem.k + 1, problem.floor)
    gains = []
    for u in indices:
        gains.append(problem.gains_over(value[:, problem.k - 1], np.array([u]))[0])
        topk.insert(problem.columns, u, value, index)
    value, index = problem.all_rows(value), problem.all_rows(index)
    lost = np.empty(problem.n_candidates)
    topk.losses(value, index, problem.k, lost)
    serves = _served_by(value, index, problem.k)
    chosen = tuple(
        ChosenClass(
            index=u,
            name=problem.names[u],
            serves=tuple(problem.novel_names[n] for n in serves.get(u, ())),
            gain=float(gain),
            loss=float(lost[u] / scale - problem.modular[u]),
        )
        for u, gain in zip(indices, gains, strict=True)
    )
    return Explanation(chosen, _novel_rows(problem, indices, value, index))


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
    before = problem.similarity_ratio([]).tolist()
    after = problem.similarity_ratio(indices).tolist()
    return tuple(
        ServedClass(
            name=problem.novel_names[n],
            neighbours=tuple(
                (problem.names[u], float(similarity))
                for u, similarity in zip(index[n, : problem.k], value[n], strict=False)
                if u >= 0
            ),
            ratio_before=before[n] if math.isfinite(before[n]) else None,
            ratio_after=after[n] if math.isfinite(after[n]) else None,
        )
        for n in range(problem.n_novel)
    )
