"""The baselines compute what they are compared on; small runs of every benchmark."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from types import ModuleType

import gradient
import numpy as np
import pytest
import selection
import selection_quality
from paper_gradient import gradient as paper_gradient
from timing import main

import fsl_basesel as fb


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("mean", [0.01, 0.25, 0.6])
def test_the_papers_method_gives_the_same_gradient(k: int, mean: float) -> None:
    rng = np.random.default_rng(k)
    problem = fb.SelectionProblem(rng.standard_normal((7, 60)), m=5, k=k)
    x = np.clip(2 * mean * rng.random(60), 0, 1)
    plain, summed = (
        paper_gradient(problem.sorted_rows, x, k, suffix_sums=sums) for sums in (False, True)
    )
    assert np.allclose(
        plain, problem.gradient(x), rtol=0, atol=2e-5
    )  # its pruning leaves 1e-6 per row
    assert np.allclose(plain, summed, rtol=0, atol=1e-12)  # the same sums in another order


def test_gradient_benchmark_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figures" / "gradient.csv"
    arguments = ["--shapes", "100x400", "--k", "3", "--mean", "0.25", "--rounds", "2"]
    assert main(gradient.add_arguments, gradient.run, [*arguments, "--csv", str(path)]) == 0
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["paper", "paper+", "cpu"]
    assert all(float(row["low"]) <= float(row["median"]) <= float(row["high"]) for row in rows)
    assert "100x400" in capsys.readouterr().out


def test_a_sample_of_rows_is_marked_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient, "SAMPLED_ROWS", {"9x30": 3})
    problem = fb.SelectionProblem(np.random.default_rng(0).random((9, 30)), m=3, k=2)
    settings = argparse.Namespace(device="cpu", rounds=1, clock="wall")
    timings = gradient.measure(problem, 0.25, settings)
    assert [timing.name for timing in timings[:2]] == [
        "paper, extrapolated",
        "paper+, extrapolated",
    ]


def test_select_benchmark_runs(tmp_path: Path) -> None:
    path = tmp_path / "select.csv"
    arguments = ["--sizes", "small", "--rounds", "1", "--csv", str(path)]
    assert main(selection.add_arguments, selection.run, arguments) == 0
    assert path.read_text().startswith("setting,name,median")


def test_methods_are_credited_with_their_own_certificates_only() -> None:
    problem = fb.SelectionProblem([[0.5, 0.4], [0.2, 0.6]], m=1, k=1)  # the optimum is 0.5
    tight, loose = (
        fb.Selection.of(problem, [1], method=name, upper_bound=bound)
        for name, bound in (("dual", 0.5), ("auto", 0.625))
    )
    assert selection_quality.shares([tight, loose]) == [0.8, 0.8]
    words = selection_quality.certificate("auto", [0.0, 1.2e-12, 0.002])
    assert "99.9 % in 2 of 3 cases and proves it optimal (gap 0) in 1" in words
    assert words.endswith("its largest gap is 0.200 %.")


@pytest.mark.parametrize(
    ("script", "arguments"),
    [(selection, "--sizes huge"), (gradient, "--shapes 100"), (gradient, "--k a")],
)
def test_bad_arguments_get_one_line(
    script: ModuleType, arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(script.add_arguments, script.run, arguments.split()) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
