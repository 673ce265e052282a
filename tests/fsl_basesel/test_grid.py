"""A grid gives what the single calls give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fsl_basesel as fb
from tests.fsl_basesel.selectors.test_greedy import clustered


@pytest.mark.parametrize("method", ["auto", "greedy-target", "double-greedy", "random-greedy"])
def test_grid_equals_single_calls(method: str) -> None:
    problem = clustered(0, 20, 40, m=10, k=2, selected=[4])
    grid = fb.select_grid(
        problem, k=[1, 3], lam=[0.0, 0.3], m=[0, 8, 39], seeds=[0, 1], method=method
    )
    at = 0
    for k in (1, 3):
        for lam in (0.0, 0.3):
            for m in (0, 8, 39):
                for seed in (0, 1):
                    single = fb.select(problem.replace(k=k, lam=lam, m=m), method, seed)
                    assert grid[at].indices == single.indices
                    assert grid[at].value == single.value
                    assert grid[at].upper_bound == single.upper_bound
                    assert grid[at].hyperparameters == single.hyperparameters
                    at += 1
    assert len(grid) == at


def test_settings_not_given_are_those_of_the_problem() -> None:
    problem = clustered(0, 20, 40, m=10, k=2, lam=0.1)
    (selection,) = fb.select_grid(problem)
    assert selection.indices == fb.select(problem).indices


def test_progress_is_reported() -> None:
    seen = []
    problem = clustered(0, 20, 40, m=10, k=2, lam=0.1)
    fb.select_grid(
        problem, lam=[0.1, 0.2], method="double-greedy", progress=lambda *a: seen.append(a)
    )
    assert ("continuous double greedy", 20, 20) in seen
    assert any(task == "proving a bound" for task, _, _ in seen)


def test_numpy_settings_are_saved_as_plain_numbers(tmp_path: Path) -> None:
    problem = clustered(0, 20, 40, m=10, k=2, lam=0.1)
    for method in ("random", fb.ContinuousDoubleGreedy(steps=np.int64(3))):
        grid = fb.select_grid(problem, k=np.arange(1, 3), seeds=np.arange(2), method=method)  # type: ignore[arg-type]
        for selection in grid:
            path = selection.save(tmp_path / "selection.json")
            assert fb.Selection.load(path) == selection


def test_settings_that_do_not_exist_are_refused() -> None:
    problem = clustered(0, 20, 40, m=10, k=2, lam=0.1)
    with pytest.raises(fb.InputError, match=r"`rounding` .*got 'up'"):
        fb.select_grid(problem, method=fb.ContinuousDoubleGreedy(rounding="up"))
