"""`fsl-basesel reproduce`: what it lists, plans and refuses; running is tested with experiments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lightning_modules.experiments.small import small_yaml


def test_the_list_has_every_experiment_and_how_many_networks_it_takes(run) -> None:
    result = run("reproduce", "--list")
    assert (result.code, result.err) == (0, "")
    for words in ("pretrained-glyphs ", "preliminary ", "worth-glyphs ", "Table 5"):
        assert words in result.out
    assert run("reproduce").out == result.out


def test_a_dry_run_says_what_there_is_to_do_and_does_nothing(run, tmp_path: Path) -> None:
    config, out = small_yaml(tmp_path, m=[3, 4]), tmp_path / "out"
    for words, count in ((), 16), (("--only", "fine"), 8), (("--m", "4", "--repeats", 1), 4):
        result = run("reproduce", config, "--dry-run", "--out-dir", out, *words)
        assert result.code == 0
        assert f"A small experiment: {count} networks, 0 there already." in result.out
    assert not list(out.glob("trials/*"))


def test_it_runs_prints_and_writes(run, tmp_path: Path) -> None:
    config, out = small_yaml(tmp_path), tmp_path / "out"
    rows = tmp_path / "rows.jsonl"
    words = ("reproduce", config, "--only", "plain", "--repeats", 1, "--rows", rows, "--out-dir")
    result = run(*words, out)
    assert result.code == 0
    assert "against Random" in result.out
    assert "[2/2, 0 min left] plain, Alg. 2, K=1, m=4, repeat 0: done" in result.err
    assert (out / "small" / "results.csv").exists()
    assert "| Alg. 2, K=1 |" in (out / "small" / "table.md").read_text()
    assert "2 networks, 2 there already" in run(*words, tmp_path / "other", "--dry-run").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "plane"], "Expected `--only` to be one of"),
        (["--m", "5"], "Expected `--m` to be one of 4 but got '5'"),
        (["--jobs", "0"], "Expected --jobs to be at least 1"),
        (["--out-dir", "/dev/null/x"], "Expected to write results to '/dev/null/x'"),
    ],
)
def test_bad_requests_are_one_line(run, tmp_path: Path, words: list[str], message: str) -> None:
    place = [] if "--out-dir" in words else ["--out-dir", tmp_path / "out"]
    result = run("reproduce", small_yaml(tmp_path), *words, *place)
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1


def test_the_papers_data_must_be_there(run) -> None:
    result = run("reproduce", "pretrained")
    assert result.code == 2
    assert "pretrained-glyphs runs without" in result.err
