"""`fsl-basesel compare`: several methods, one bound."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.controls import controls
from fsl_basesel.files.classes import read_classes
from fsl_basesel.selectors import selector_class

from .conftest import POOL_NAMES


def test_the_table_has_all_methods_from_the_best_down(run, pool: Path, task: Path) -> None:
    result = run("compare", pool, "--novel", task, "-m", 4, "-k", 2)
    assert (result.code, result.err) == (0, "")
    rows = [line.split() for line in result.out.splitlines()]
    found = {row[0]: float(row[1]) for row in rows if row and row[0] in fb.methods()}
    assert sorted(found) == sorted(fb.methods())
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert "Proven upper bound" in result.out
    assert max(map(len, result.out.splitlines())) <= 80


def test_json_has_the_picks_and_shares_of_one_bound(run, pool: Path, task: Path) -> None:
    words = ("compare", pool, "--novel", task, "-m", 4, "-k", 2, "--methods", "random, auto")
    result = run(*words, "--format", "json", "--seed", 5)
    assert (result.code, result.err) == (0, "")
    document = json.loads(result.out)
    assert [row["method"] for row in document["methods"]] == ["random", "auto"]
    bound = document["upper_bound"]
    for row in document["methods"]:
        assert len(row["names"]) == 4
        assert row["value"] <= bound + 1e-12
        assert row["share_of_bound"] == pytest.approx(row["value"] / bound)
        assert row["gap"] == pytest.approx(1 - row["value"] / bound, abs=1e-9)
        assert row["seconds"] >= 0
    assert document["problem"]["m"] == 4


def test_csv_and_out_by_ending(run, pool: Path, task: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.csv"
    words = ("compare", pool, "--novel", task, "-m", 4, "--methods", "random,greedy-target")
    result = run(*words, "--format", "csv", "--out", out)
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert [row["method"] for row in rows] == ["random", "greedy-target"]
    assert out.read_text("utf-8") == result.out
    # No method here proves anything on its own: the bound comes from the certificate.
    assert float(rows[0]["upper_bound"]) >= max(float(row["value"]) for row in rows)
    out = tmp_path / "all.json"
    assert run(*words, "--out", out).out.endswith(f"Saved to {out}\n")
    assert len(json.loads(out.read_text("utf-8"))["methods"]) == 2


def test_methods_that_need_centroids_are_left_out_of_a_matrix(run, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.random.default_rng(0).random((5, 12)))
    words = ("compare", "--similarity", tmp_path / "f.npy", "-m", 3, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(run(*words).out)))
    assert {row["method"] for row in rows} == set(fb.methods()) - {"domsim", "kmedoids"}
    result = run(*words, "--methods", "kmedoids")
    assert result.code == 2
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("limits", [("--budget", 3), ("--include", "one.txt")])
def test_methods_for_a_plain_m_are_left_out_of_a_problem_with_limits(
    run, pool: Path, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text("owl-0\n")
    words = ("compare", pool, "--novel", task, "-m", 3, "-k", 1, *limits)
    result = run(*words)
    assert result.code == 0
    served = {name for name in fb.methods() if selector_class(name).serves_limits}
    listed = {line.split()[0] for line in result.out.splitlines() if line.strip()} & set(
        fb.methods()
    )
    assert listed == served
    (note,) = result.err.splitlines()
    assert "left out, as they do not apply" in note
    assert set(note.split(": ")[-1].split(", ")) == set(fb.methods()) - served
    result = run(*words, "--methods", "auto,paper")
    assert (result.code, result.out) == (2, "")
    assert "'paper', which is for a plain m; use auto or another one" in result.err


def test_general_selection_with_whitened_classes_has_no_domsim(run, pool: Path) -> None:
    result = run("compare", pool, "-m", 3, "-k", 1, "--similarity", "whitened")
    assert result.code == 0
    assert result.err.endswith("(--methods NAME says why): domsim\n")
    assert "kmedoids" in result.out


@pytest.mark.parametrize("command", ["compare", "select"])
def test_the_controls_are_printed_where_groups_are_known(
    run, command: str, pool: Path, tmp_path: Path
) -> None:
    samples = np.random.default_rng(2).random((3, 6))
    np.savez(tmp_path / "task.npz", centroids=samples, names=["x", "y", "z"], groups=["a"] * 3)
    rows = [f'"{name}",{"a" if i < 4 else "b"}\n' for i, name in enumerate(POOL_NAMES)]
    (tmp_path / "groups.csv").write_text("name,group\n" + "".join(rows))
    words = (command, pool, "--novel", tmp_path / "task.npz", "-k", 1)
    plain = run(*words, "-m", 3).out
    assert "mean of 100 random choices; best" in plain
    assert "all 20 classes of the pool" in plain
    assert "domain" not in plain
    groups = ("--groups", tmp_path / "groups.csv")
    assert "random choices inside the task's domain; best" in run(*words, "-m", 3, *groups).out
    few = " ".join(run(*words, "-m", 6, *groups).out.split())
    assert "random choices that take the task's domain first (67% of their classes); best" in few


def test_printed_and_saved_controls_are_those_of_the_problem(run, pool: Path, task: Path) -> None:
    words = ("compare", pool, "--novel", task, "-m", 3, "-k", 1, "--methods", "auto")
    problem = fb.SelectionProblem.from_centroids(read_classes(pool), read_classes(task), m=3, k=1)
    expected = controls(problem)
    saved = json.loads(run(*words, "--format", "json").out)["controls"]
    assert [(one["mean"], one["best"]) for one in saved] == [(c.mean, c.best) for c in expected]
    shown = " ".join(run(*words).out.split())
    assert f"{expected[0].mean:.6f} mean of 100 random" in shown
    assert f"; best {expected[0].best:.6f}" in shown


@pytest.mark.parametrize("listed", ["auto,magic", ",", ""])
def test_unknown_methods_are_named(run, pool: Path, listed: str) -> None:
    result = run("compare", pool, "-m", 2, "--methods", listed)
    assert (result.code, result.out) == (2, "")
    assert "Expected `--methods` to be one of auto, paper" in result.err
    assert result.err.count("\n") == 1


def test_a_share_is_counted_from_the_floor_and_needs_a_bound_above_it() -> None:
    problem = fb.SelectionProblem([[-0.5, -0.4, -0.9]], m=1, k=1)
    selection = fb.select(problem)
    assert selection.value < 0
    assert selection.share_of_bound == pytest.approx(1.0)
    worse = fb.Selection.of(problem, [0], method="given").certified(-0.4)
    assert worse.share_of_bound == pytest.approx((-0.5 + 0.9) / (-0.4 + 0.9))
    assert selection.gap == pytest.approx(0.0)
    proven = selection.certified(selection.value + 1e-14)
    assert (proven.share_of_bound, proven.gap) == (1.0, 0.0)
    nothing = fb.select(fb.SelectionProblem([[0.0, 0.0]], m=1, k=1))
    assert nothing.share_of_bound is None
    bare = fb.select(problem, "random", certify=False)
    assert (bare.share_of_bound, bare.gap) == (None, None)
