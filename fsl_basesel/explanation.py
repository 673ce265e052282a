"""Why each class was chosen, and what each novel class got."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fsl_basesel import topk
from fsl_basesel.compiled import kernel
from fsl_basesel.problem import SelectionProblem

NEVER = 1 << 62  # more than any K


@dataclass(frozen=True)
class ChosenClass:
    """One chosen class.

    Attributes:
        index: Its column.
        name: Its name.
        serves: Novel classes that have it among their top-k base classes, the most similar first.
        gain: h gained when it was added to the classes chosen before it.
        loss: h lost if it alone were dropped from the finished selection.
        adds_from: The smallest K, beginning with the problem's, at which it is closer to some novel
            class than the K-th closest of the classes chosen before it. Larger than the problem's K
            where the objective was used up: the class adds nothing and was taken as a next
            neighbour (see `fsl_basesel.selectors.used_up`), or for reasons of the method's own.
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
    value, index = topk.state_of(problem.columns, start, problem.depth + 1, problem.floor)
    gains = []
    firsts = np.full(len(indices), problem.k)
    base = np.concatenate([start, np.array(indices, np.int64)])
    for at, u in enumerate(indices):
        local = problem.excess_over(value[:, problem.depth - 1], np.array([u]))
        excess = problem.sum_over_shards(local)[0]
        gains.append(excess / scale - problem.modular[u])
        if not excess:
            firsts[at] = _adds_from(problem.columns, u, base[: len(start) + at], problem.floor)
        topk.insert(problem.columns, u, value, index)
    firsts = problem.all_rows(firsts[None]).min(axis=0)
    value, index = problem.all_rows(value), problem.all_rows(index)
    lost = np.empty(problem.n_candidates)
    topk.losses(value, index, problem.depth, lost)
    serves = _served_by(value, index, problem.depth)
    chosen = tuple(
        ChosenClass(
            index=u,
            name=problem.names[u],
            serves=tuple(problem.novel_names[n] for n in serves.get(u, ())),
            gain=float(gain),
            loss=float(lost[u] / scale - problem.modular[u]),
            adds_from=None if first == NEVER else int(first),
        )
        for u, gain, first in zip(indices, gains, firsts, strict=True)
    )
    return Explanation(chosen, _novel_rows(problem, indices, value, index))


@kernel
def _adds_from(columns: np.ndarray, u: int, before: np.ndarray, floor: float) -> int:
    """The smallest K at which column `u` exceeds some row's K-th value of the columns `before`."""
    least = NEVER
    for n in range(columns.shape[1]):
        similarity = columns[u, n]
        if similarity <= floor:
            continue
        k = 1
        for v in before:
            if columns[v, n] >= similarity:
                k += 1
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
    before = problem.similarity_ratio([]).tolist()
    after = problem.similarity_ratio(indices).tolist()
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
