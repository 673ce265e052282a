"""What a Selection says of itself, and that it survives the disk."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import fsl_basesel as fb
from tests.fsl_basesel.enumeration import random_problem


@pytest.fixture
def problem() -> fb.SelectionProblem:
    rng = np.random.default_rng(5)
    return fb.SelectionProblem.from_centroids(
        rng.random((12, 6)),
        rng.random((7, 6)),
        m=4,
        k=2,
        lam=0.2,
        selected=[3],
        names=[f"Klasse {chr(0x410 + n)}" for n in range(12)],
        novel_names=[f"新{n}" for n in range(7)],
    )


@pytest.mark.parametrize("method", fb.methods())
def test_save_and_load_round_trip_exactly(
    method: str, problem: fb.SelectionProblem, tmp_path: Path
) -> None:
    selection = fb.select(problem, method, seed=3)
    path = selection.save(tmp_path / "new folder" / "selection.json")
    loaded = fb.Selection.load(path)
    assert loaded == selection
    assert loaded.explain() == selection.explain()
    assert pickle.loads(pickle.dumps(selection)) == selection


def test_it_says_how_it_was_made(problem: fb.SelectionProblem) -> None:
    selection = fb.select(problem, fb.LagrangianDual(gap=0.25), seed=7)
    assert selection.method == "dual"
    assert selection.seed == 7
    assert selection.version == fb.__version__
    assert selection.seconds >= 0
    assert selection.names == [problem.names[u] for u in selection.indices]
    settings = selection.hyperparameters
    assert settings["gap"] == 0.25
    assert (settings["m"], settings["k"], settings["lam"]) == (4, 2, 0.2)
    assert settings["selected"] == [3]
    assert fb.ContinuousDoubleGreedy().select(problem).backend == "cpu"


def test_it_names_the_backend_where_gradients_were_needed(problem: fb.SelectionProblem) -> None:
    with_gradients = {"double-greedy", "paper"}  # lam > 0 and half of the classes: Algorithm 4
    for method in fb.methods():
        backend = fb.select(problem, method, certify=False).backend
        assert backend == ("cpu" if method in with_gradients else None), method
    for rounding in ("deterministic", "randomized"):
        alone = fb.ContinuousDoubleGreedy(rounding=rounding, backend="torch")
        assert alone.select(problem).backend == "torch"
        assert fb.WithSwaps(alone).select(problem).backend == "torch"
    grid = fb.select_grid(problem, method="double-greedy", lam=[0.1, 0.2])
    assert {selection.backend for selection in grid} == {"cpu"}


def test_without_certificate_there_is_no_bound(problem: fb.SelectionProblem) -> None:
    selection = fb.select(problem, "greedy-target", certify=False)
    assert selection.upper_bound is None
    assert selection.gap is None


@pytest.mark.parametrize("seed", range(30))
def test_gains_and_losses_are_differences_of_values(seed: int) -> None:
    problem = random_problem(seed, signed=seed % 2 == 0)
    selection = fb.select(problem, "greedy-target", certify=False)
    rows = selection.explain().chosen
    total = problem.value([]) + sum(row.gain for row in rows)
    assert total == pytest.approx(selection.value, abs=1e-12)
    for at, row in enumerate(rows):
        before, after = selection.indices[:at], selection.indices[: at + 1]
        assert row.gain == pytest.approx(problem.value(after) - problem.value(before), abs=1e-12)
        others = [u for u in selection.indices if u != row.index]
        assert row.loss == pytest.approx(selection.value - problem.value(others), abs=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_serves_and_neighbours_are_the_top_k(seed: int) -> None:
    problem = random_problem(seed)
    selection = fb.select(problem, "greedy-target", certify=False)
    explanation = selection.explain()
    base = sorted([*problem.selected, *selection.indices])
    similarity = problem.similarity
    serves: dict[str, set[str]] = {name: set() for name in selection.names}
    for n, row in enumerate(explanation.novel):
        best = sorted(base, key=lambda u, n=n: (-similarity[n, u], u))[: problem.k]
        assert [name for name, _ in row.neighbours] == [problem.names[u] for u in best]
        assert [value for _, value in row.neighbours] == pytest.approx(similarity[n, best].tolist())
        for u in best:
            if u in selection.indices:
                serves[problem.names[u]].add(row.name)
    assert {row.name: set(row.serves) for row in explanation.chosen} == serves


def test_explain_iterates_over_class_served_and_gain(problem: fb.SelectionProblem) -> None:
    selection = fb.select(problem)
    rows = list(selection.explain())
    assert len(rows) == len(selection.explain()) == 4
    assert [name for name, _, _ in rows] == selection.names
    assert all(
        gain == row.gain
        for (_, _, gain), row in zip(rows, selection.explain().chosen, strict=False)
    )
    before = [row.ratio_before for row in selection.explain().novel]
    assert before == pytest.approx(problem.similarity_ratio([]).tolist())


def test_a_first_stage_has_no_ratio_before() -> None:
    problem = fb.SelectionProblem([[0.5, 0.2]], m=1, k=1)
    (row,) = fb.select(problem).explain().novel
    assert row.ratio_before is None
    assert row.ratio_after == 1.0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": "other"}', "null", '{"format": "fsl-basesel selection 1"}'],
)
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    path.write_text(text)
    with pytest.raises(fb.InputError, match=r"selection\.json' to be a selection written by"):
        fb.Selection.load(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("value", "high"),
        ("value", True),
        ("gap", -5),
        ("gap", float("nan")),
        ("seconds", None),
        ("upper_bound", [1]),
        ("indices", [0, 0]),
        ("indices", "01"),
        ("names", ["only one"]),
        ("names", [1, 2]),
        ("hyperparameters", []),
    ],
)
def test_a_file_with_an_impossible_field_is_refused(
    field: str, value: object, tmp_path: Path
) -> None:
    path = tmp_path / "selection.json"
    problem = fb.SelectionProblem([[0.5, 0.2, 0.1], [0.1, 0.6, 0.3]], m=2, k=1)
    fields = fb.select(problem).to_dict() | {field: value}
    path.write_text(json.dumps(fields))
    with pytest.raises(fb.InputError, match=r"selection\.json' to be a selection written by"):
        fb.Selection.load(path)


def test_a_file_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    path.write_text('{"format": ' + "[" * 100_000)
    with pytest.raises(fb.InputError, match="could not be read"):
        fb.Selection.load(path)


def test_a_failed_save_leaves_the_old_file_whole(
    problem: fb.SelectionProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fb.select(problem, "random").save(tmp_path / "selection.json")
    before = path.read_text()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        fb.select(problem, "auto").save(path)
    assert path.read_text() == before
    assert os.listdir(tmp_path) == ["selection.json"]


def test_json_is_plain_and_keeps_unicode(problem: fb.SelectionProblem) -> None:
    text = fb.select(problem).to_json()
    assert "Klasse " in text
    assert "新0" in text
    assert json.loads(text)["format"] == "fsl-basesel selection 1"
