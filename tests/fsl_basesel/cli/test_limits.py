"""Budgets and limits on the command line, and the curve of value against them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.files.classes import read_classes
from tests.fsl_basesel.cli.conftest import POOL_NAMES

COSTS = {name: 1.0 + number % 4 for number, name in enumerate(POOL_NAMES)}
GROUPS = {name: "abc"[number % 3] for number, name in enumerate(POOL_NAMES)}


def write_table(path: Path, column: str, values: dict[str, Any]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("name", column), *values.items()])
    return path


def write_names(path: Path, names: list[str]) -> Path:
    path.write_text("\n".join(names), encoding="utf-8")
    return path


def problem_of(pool: Path, task: Path, **settings: Any) -> fb.SelectionProblem:
    return fb.SelectionProblem.from_centroids(read_classes(pool), read_classes(task), **settings)


def test_a_budget_with_costs_is_kept_and_told(run, pool: Path, task: Path, tmp_path: Path) -> None:
    cost = write_table(tmp_path / "cost.csv", "cost", COSTS)
    words = ("select", pool, "--novel", task, "-k", 1, "--cost", cost, "--budget", 7)
    chosen = json.loads(run(*words, "--format", "json").out)
    expected = fb.select(
        problem_of(pool, task, k=1, cost=[COSTS[name] for name in POOL_NAMES], budget=7)
    )
    assert chosen["names"] == expected.names
    assert sum(COSTS[name] for name in chosen["names"]) == chosen["spent"] <= 7
    shown = run(*words)
    assert shown.code == 0, shown.err
    assert "within a budget of 7" in shown.out
    assert f"spent   {expected.spent:g}  " in shown.out
    assert "raises the bound" in shown.out
    assert "mean of 100 random choices" in shown.out


def test_every_limit_at_once_as_options_and_as_a_file(run, pool, task, tmp_path: Path) -> None:
    exclude, include = [POOL_NAMES[2], POOL_NAMES[5]], [POOL_NAMES[7]]
    options = [
        *("--exclude", write_names(tmp_path / "no.txt", exclude)),
        *("--include", write_names(tmp_path / "yes.txt", include)),
        *("--groups", write_table(tmp_path / "groups.csv", "group", GROUPS)),
        *("--at-most", 3, "--at-least", 1, "-m", 5, "-k", 1, "--format", "json"),
    ]
    one = json.loads(run("select", pool, "--novel", task, *options).out)
    limits = {
        "format": "fsl-basesel limits 1",
        "m": 5,
        "exclude": exclude,
        "include": include,
        "groups": GROUPS,
        "at_most": 3,
        "at_least": {"a": 1, "b": 1, "c": 1},
        "classes": one["names"],
    }
    path = tmp_path / "limits.json"
    path.write_text(json.dumps(limits), encoding="utf-8")
    words = ("select", pool, "--novel", task, "-k", 1, "--limits", path, "--format", "json")
    two = json.loads(run(*words).out)
    assert one["names"] == two["names"]
    assert include[0] in one["names"]
    assert not set(exclude) & set(one["names"])
    counts = [sum(GROUPS[name] == group for name in one["names"]) for group in "abc"]
    assert sum(counts) == 5
    assert max(counts) <= 3
    assert min(counts) >= 1
    more = json.loads(run(*words, "-m", 6).out)  # an option wins
    assert len(more["names"]) == 6


def test_the_choice_of_the_page_is_never_made_worse(run, pool, task, tmp_path: Path) -> None:
    best = fb.select(problem_of(pool, task, m=4, k=2))
    path = tmp_path / "limits.json"
    limits = {"format": "fsl-basesel limits 1", "m": 4, "classes": best.names}
    path.write_text(json.dumps(limits), encoding="utf-8")
    words = ("select", pool, "--novel", task, "-k", 2, "--limits", path, "--format", "json")
    found = json.loads(run(*words, "--method", "random").out)
    assert found["names"] == best.names
    assert found["value"] == best.value
    assert found["gap"] <= 1e-3


def test_a_class_costs_the_images_it_lacks(run, task: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = np.arange(12) * 5
    np.savez(tmp_path / "pool.npz", features=rng.random((12, 6)), images=images)
    words = ("select", tmp_path / "pool.npz", "--novel", task, "-k", 1, "--format", "json")
    found = json.loads(run(*words, "--images-per-class", 30, "--budget", 40).out)
    lacks = np.maximum(0, 30 - images)
    assert sum(lacks[index] for index in found["indices"]) == found["spent"] <= 40
    np.savez(tmp_path / "pool.npz", features=rng.random((12, 6)))
    refused = run(*words, "--images-per-class", 30, "--budget", 40)
    assert refused.code == 2
    assert "a number of images each" in refused.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cost", "COST", "-m", "3"], "Expected `cost` with a budget"),
        (["--mu", "1"], "Expected --cost with --mu"),
        (
            ["--cost", "COST", "--images-per-class", "3", "--budget", "2"],
            "not allowed with argument --cost",
        ),
        (["--at-most", "2", "-m", "3"], "Expected `groups` with `at_most`"),
        (["--budget", "-1"], "`budget`"),
        (["--limits", "LIMITS"], "but got 'colour'; see docs/budgets.md"),
        (["--limits", "COST"], "limits of the format 'fsl-basesel limits 1'"),
    ],
)
def test_contradictions_are_one_line(run, pool, task, tmp_path, words, message: str) -> None:
    limits = tmp_path / "limits.json"
    limits.write_text('{"format": "fsl-basesel limits 1", "colour": 3}')
    files = {"COST": write_table(tmp_path / "cost.csv", "cost", COSTS), "LIMITS": limits}
    given = [files.get(word, word) for word in words]
    result = run("select", pool, "--novel", task, "-k", 1, *given)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_the_frontier_is_one_run_for_all_budgets(run, pool, task, tmp_path: Path) -> None:
    cost = write_table(tmp_path / "cost.csv", "cost", COSTS)
    out, figure = tmp_path / "frontier.csv", tmp_path / "frontier.png"
    words = ("frontier", pool, "--novel", task, "-k", 1, "--cost", cost, "--budgets", "3,6,12")
    result = run(*words, "--out", out, "--figure", figure)
    assert result.code == 0, result.err
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [float(row["limit"]) for row in rows] == [3, 6, 12]
    values = [float(row["value"]) for row in rows]
    assert values == sorted(values)
    for row in rows:
        assert float(row["value"]) <= float(row["upper_bound"]) + 1e-12
        assert float(row["spent"]) <= float(row["limit"])
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "next unit" in result.out
    by_m = run("frontier", pool, "--novel", task, "-k", 1, "--ms", "2,4", "--format", "json")
    named = json.loads(by_m.out)["rows"]
    assert [len(row["names"]) for row in named] == [2, 4]
    for m, row in zip((2, 4), named, strict=True):
        assert row["names"] == fb.select(problem_of(pool, task, m=m, k=1)).names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "one of the arguments --budgets --ms is required"),
        (["--ms", "2,x"], "Expected --ms to be numbers"),
        (["--ms", "2", "--figure", "a.txt"], "--figure to end in .png or .svg or .pdf"),
    ],
)
def test_a_curve_of_nothing_is_refused(run, pool: Path, words: list[str], message: str) -> None:
    result = run("frontier", pool, "-k", 1, *words)
    assert result.code == 2
    assert message in result.err
