"""`fsl-basesel reproduce`: what it lists, plans and refuses; running is tested with experiments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lightning_modules.experiments import trial
from tests.lightning_modules.experiments.small import SETTINGS, known_result, small_yaml


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials that train nothing; those of Algorithm 2 come out ahead."""

    def result(one: trial.Trial, _: object) -> dict:
        rng = np.random.default_rng(one.seed)
        ahead = 0.1 + 0.001 * rng.random() if one.method == "greedy-target" else 0.0
        return known_result(0.3 + ahead, rng)

    monkeypatch.setattr(trial, "run_trial", result)


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
    table = (out / "small" / "table.md").read_text()
    assert "| Alg. 2, K=1 |" in table
    assert "Similarity: cosine." in table
    assert "2 networks, 2 there already" in run(*words, tmp_path / "other", "--dry-run").out


def test_rows_that_were_not_asked_for_stay_in_the_file(run, quick, tmp_path: Path) -> None:
    config, rows = small_yaml(tmp_path, m=[3, 4]), tmp_path / "rows.jsonl"
    words = ("reproduce", config, "--rows", rows)
    assert run(*words, "--out-dir", tmp_path / "all").code == 0
    before = rows.read_text()
    assert before.count("\n") == 16
    for number, part in enumerate((("--only", "fine"), ("--repeats", 1), ("--m", 3))):
        assert run(*words, *part, "--out-dir", tmp_path / str(number)).code == 0
        assert rows.read_text() == before


def test_a_part_of_the_declared_rows_decides_nothing(run, quick, tmp_path: Path) -> None:
    compared = {"better": "Alg. 2, K=1", "than": "Random", "m": 4}
    decide = {"head": "NearestCentroid", "shots": 1, "comparisons": [compared]}
    for setting in {"seeds": [7, 8, 9]}, {"repeats": 3}:
        config, out = small_yaml(tmp_path, **setting, m=[3, 4], decide=decide), tmp_path / "out"
        words = ("reproduce", config, "--out-dir", out)
        result = run(*words)
        assert "All 3 seeds are complete. Bold" in result.out
        decided = result.out.split("## Declared")[1]
        assert decided.count("**") == 2
        for part, missing in (
            (("--repeats", 2), "2 of 3 seeds are complete: nothing is decided yet. Seeds with "
             "missing rows: plain 1, fine 1."),
            (("--only", "fine"), "0 of 3 seeds are complete: nothing is decided yet. Seeds with "
             "missing rows: plain 3."),
            (("--m", 3), "missing rows: plain 3, fine 3."),
        ):  # fmt: skip
            told = run(*words, *part).out.split("## Declared")[1]
            assert missing in told
            assert "**" not in told
            assert [
                line.split(" | ")[4:6] for line in told.splitlines() if "| Random |" in line
            ] == [["", ""]]


def test_more_repeats_than_declared_do_not_enter_the_decision(run, quick, tmp_path: Path) -> None:
    compared = {"better": "Alg. 2, K=1", "than": "Random", "m": 4}
    decide = {"head": "NearestCentroid", "shots": 1, "comparisons": [compared]}
    words = ("reproduce", small_yaml(tmp_path, decide=decide), "--out-dir", tmp_path / "out")
    declared = run(*words).out.split("## Declared")[1]
    more = run(*words, "--repeats", 5).out
    assert "## plain, nearest centroid, 5 repeats" in more
    assert more.split("## Declared")[1] == declared


def test_rows_are_found_wherever_the_data_are(run, quick, tmp_path: Path) -> None:
    arguments = SETTINGS["data"]["init_args"] | {"path": "{root}/characters"}
    config = small_yaml(tmp_path, data=SETTINGS["data"] | {"init_args": arguments})
    rows = tmp_path / "rows.jsonl"
    words = ("reproduce", config, "--rows", rows, "--out-dir")
    assert run(*words, tmp_path / "here", "--data-root", ".").code == 0
    kept = rows.read_text()
    elsewhere = ("--data-root", tmp_path)
    assert "8 networks, 8 there already" in run(*words, tmp_path / "1", *elsewhere, "--dry-run").out
    rows.unlink()
    assert run(*words, tmp_path / "2", *elsewhere).code == 0
    assert rows.read_text() == kept
    other = ("--data-root", ".", "--out-dir", tmp_path / "2", "--dry-run")
    assert "0 there already" in run("reproduce", config, *other).out  # other data, other results


def test_a_network_that_fails_is_told_and_tried_again(
    run, quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.jsonl"
    words = ("reproduce", small_yaml(tmp_path), "--rows", rows, "--out-dir", tmp_path / "out")
    works = trial.run_trial

    def fails(one: trial.Trial, store: object) -> dict:
        if one.method == "random" and one.seed == 1:
            raise RuntimeError("out of luck")
        return works(one, store)  # type: ignore[arg-type]

    with monkeypatch.context() as broken:
        broken.setattr(trial, "run_trial", fails)
        result = run(*words)
    assert result.code == 1
    assert "plain, Random, m=4, repeat 1: failed (RuntimeError: out of luck)" in result.err
    assert result.err.endswith("2 networks failed; the same command tries them again\n")
    assert "| Random |" in result.out  # a table of what there is
    assert len(rows.read_text().splitlines()) == 6
    result = run(*words)
    assert result.code == 0
    assert len(rows.read_text().splitlines()) == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "plane"], "Expected `--only` to be one of"),
        (["--m", "5"], "Expected `--m` to be one of 4 but got '5'"),
        (["--jobs", "0"], "Expected `--jobs` to be at least 1"),
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
