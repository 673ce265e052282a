"""Rough handling: problems that are copied, shared, rescaled and fed unusual arrays."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.multilinear import SortedRows
from fsl_basesel.rounding import pipage
from tests.fsl_basesel.selectors.test_greedy import clustered


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))]
)
def test_copies_are_the_same_problem_and_as_immutable(duplicate) -> None:  # type: ignore[no-untyped-def]
    problem = clustered(0, 20, 40, m=10, k=2, lam=0.3, cost=np.arange(40.0), mu=0.001)
    expected = fb.select(problem, "double-greedy")  # computes sorted rows, means and weights
    for original in (problem, problem.replace(m=10)):
        other = duplicate(original)
        assert fb.select(other, "double-greedy").indices == expected.indices
        assert other.value(expected.indices) == expected.value
        assert not other.by_candidate.flags.writeable
        assert other.cost is not None
        assert not other.cost.flags.writeable


def test_problems_on_one_matrix_sort_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts = []
    sort = SortedRows.from_columns
    monkeypatch.setattr(
        SortedRows, "from_columns", lambda *a, **k: sorts.append(a) or sort(*a, **k)
    )
    problem = clustered(0, 20, 40, m=10, k=2)
    fb.select_grid(problem, k=[1, 2], lam=[0.1, 0.3], m=[5, 10], method="double-greedy")
    assert len(sorts) == 1
    one, two = problem.replace(lam=0.1), problem.replace(lam=0.2).replace(m=4)
    assert one.sorted_rows is two.sorted_rows is problem.sorted_rows
    assert one.column_means is two.column_means is problem.column_means
    lower = problem.replace(floor=-1.0)
    assert lower.sorted_rows.floor == -1.0
    assert lower.column_means is problem.column_means


@pytest.mark.parametrize("exponent", [-60, -30, 20])
@pytest.mark.parametrize("kind", ["random", "signed", "levels"])
def test_rounding_never_lowers_f_whatever_the_scale(exponent: int, kind: str) -> None:
    scale = 2.0**exponent  # exact in floating point
    for seed in range(5):
        rng = np.random.default_rng(seed)
        similarity = rng.random((8, 20)) - (0.5 if kind == "signed" else 0.0)
        if kind == "levels":
            similarity = np.floor(4 * similarity) / 4
        problem = fb.SelectionProblem(similarity, m=7, k=2, lam=0.5)
        scaled = fb.SelectionProblem(scale * similarity, m=7, k=2, lam=0.5)
        x = np.full(20, 7 / 20)
        chosen = pipage(scaled, x)
        assert scaled.value(chosen) >= scaled.multilinear(x) - 1e-12 * scale
        assert chosen.tolist() == pipage(problem, x).tolist()
