"""`fsl-basesel suggest`, and its result as input of `select` and `compare`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from fsl_basesel.study import Study, Suggestion

from ..study_data import planted
from .conftest import Run


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """60 base sets with k = 3 and lam = 0.5 planted."""
    return planted().save(tmp_path / "study.npz")


def test_the_table_has_a_line_for_every_k_and_ends_with_the_suggestion(run: Run, study: Path):
    result = run("suggest", study)
    expected = Study.load(study).suggest()
    assert (result.code, result.err) == (0, "")
    assert "60 base sets, 20 novel classes" in result.out
    words = " ".join(result.out.split())
    for row in expected.profile:
        assert f" {row.k} {row.r2:.3f} {row.r2_chance:.3f} {row.pooled_r2:.3f} " in words
    assert f"Suggestion: k = 3 (best in 100% of resamples) and {expected.reason}." in words
    assert expected.reason.startswith(f"lam = {expected.lam:.2f} because")
    assert f"{expected.r2:.1%} of the spread" in words
    assert max(map(len, result.out.splitlines())) <= 80


def test_json_on_stdout_holds_nothing_else(run: Run, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "suggestion.json"
    result = run("suggest", study, "--ks", "1,3,5", "--format", "json", "--out", out)
    assert (result.code, result.err) == (0, "")
    assert result.out == out.read_text(encoding="utf-8")
    assert json.loads(result.out)["k"] == Suggestion.load(out).k == 3
    again = json.loads(run("suggest", study, "--ks", "5, 3,1", "--format", "json").out)
    assert [row["k"] for row in again["profile"]] == [1, 3, 5]


def test_regressions_and_figures_are_written_where_asked(run: Run, study: Path, tmp_path: Path):
    table, figures = tmp_path / "regressions.csv", tmp_path / "figures"
    result = run("suggest", study, "--ks", "1,3", "--csv", table, "--figures", figures)
    assert (result.code, result.err) == (0, "")
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    assert [(row["k"], row["name"]) for row in rows] == [
        (k, str(n)) for k in ("1", "3") for n in range(20)
    ]
    for row, expected in zip(rows[20:], Study.load(study).regressions(3), strict=True):
        assert float(row["beta1"]) == expected.beta1
        assert float(row["beta2_high"]) == expected.beta2_interval[1]
    assert len(list(figures.iterdir())) == 6
    assert str(figures / "r2-against-k.svg") in result.out


def test_cells_without_a_number_are_dashes_and_empty(run: Run, tmp_path: Path) -> None:
    study = planted(beta1=0.0, beta2=0.0, noise=0.05)
    study.accuracy[:, 0] = 0.5
    path, table = study.save(tmp_path / "study.npz"), tmp_path / "regressions.csv"
    assert " - " in run("suggest", path, "--ks", "3", "--csv", table).out
    constant, other, *_ = csv.DictReader(table.open(encoding="utf-8"))
    assert (constant["beta1"], constant["r2"]) == ("0.0", "")
    assert float(other["r2"]) > 0


@pytest.mark.parametrize("command", ["select", "compare"])
def test_select_and_compare_take_k_and_lam_from_a_suggestion(
    run: Run, study: Path, pool: Path, task: Path, tmp_path: Path, command: str
) -> None:
    out = tmp_path / "suggestion.json"
    assert run("suggest", study, "--ks", "1,3,5", "--out", out).code == 0
    suggestion = Suggestion.load(out)

    def settings(*words: object) -> tuple[int, float]:
        result = run(command, pool, "--novel", task, "-m", 4, "--format", "json", *words)
        assert result.code == 0, result.err
        printed = json.loads(result.out)
        found = printed["hyperparameters" if command == "select" else "problem"]
        return found["k"], found["lam"]

    given = ("--suggestion", out)
    assert suggestion.lam > 0
    assert settings() == (3, 0.0)
    assert settings(*given) == (suggestion.k, suggestion.lam)
    assert settings(*given, "--lam", 0.1) == (suggestion.k, 0.1)
    assert settings(*given, "-k", 5) == (5, suggestion.lam_at(5)) != (5, suggestion.lam)
    assert settings(*given, "-k", 2, "--lam", 0) == (2, 0.0)
    result = run(command, pool, "--novel", task, "-m", 4, *given, "-k", 2)
    assert result.code == 2
    assert "(1, 3, 5) but got 2" in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ks", "1,x"], "Expected --ks to be numbers as in 1,3,5 but got '1,x'"),
        (["--ks", "20"], "one less than the smallest base set (20 classes"),
        (["--csv", "table.txt"], "Expected --csv to end in .csv but got 'table.txt'"),
        (["--out", "suggestion.txt"], "Expected --out to end in .json"),
    ],
)
def test_bad_options_are_named_in_one_line(
    run: Run, study: Path, words: list[str], message: str
) -> None:
    result = run("suggest", study, *words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_other_files_are_refused(run: Run, pool: Path, tmp_path: Path) -> None:
    for path in (pool, tmp_path / "none.npz"):
        result = run("suggest", path)
        assert (result.code, result.out) == (2, "")
        assert path.name in result.err
    result = run("select", pool, "-m", 2, "--suggestion", pool)
    assert result.code == 2
    assert "to be a suggestion written by `fsl-basesel suggest --out`" in result.err
    blocked = tmp_path / "file"
    blocked.write_text("")
    study = planted().save(tmp_path / "study.npz")
    result = run("suggest", study, "--ks", "3", "--figures", blocked / "figures")
    assert result.code == 2
    assert "Expected to write" in result.err
