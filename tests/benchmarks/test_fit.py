"""The benchmark of `trainer.fit` runs and says what it should; how fast is not tested."""

from __future__ import annotations

import csv
from pathlib import Path

import fit
import pytest
from timing import main

SMALL = ["--classes", "3", "--images", "8", "--epochs", "4"]
SMALL_COLD_START = [
    "--cold-start-epochs", "1", "--schedule", "2,3", "--candidates", "6", "--novel", "2",
    "--per-class", "4",
]  # fmt: skip


def test_both_parts_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figures.csv"
    assert main(fit.add_arguments, fit.run, [*SMALL, *SMALL_COLD_START, "--csv", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "An epoch of 3 x 8 images" in shown
    assert "Cold start 2-3, 1 epochs per stage" in shown
    with open(out) as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [
        "plain Lightning", "classes chosen in the run",
        "plain Lightning", "classes chosen in the run",
        "whole run", "all selections",
    ]  # fmt: skip
    assert all(float(row["median"]) > 0 for row in rows)
    assert [int(row["rounds"]) for row in rows[:4]] == [2] * 4  # not the first nor the last epoch
    assert float(rows[5]["median"]) < float(rows[4]["median"])


@pytest.mark.parametrize("words", [["--epochs", "2"], ["--classes", "0"]])
def test_sizes_that_measure_nothing_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(fit.add_arguments, fit.run, words) == 2
    assert "Expected at least 1 class and image and at least 3 epochs" in capsys.readouterr().err


def test_a_schedule_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, "--cold-start-epochs", "1", "--schedule", "2;3"]
    assert main(fit.add_arguments, fit.run, words) == 2
    assert "--schedule to be numbers with commas" in capsys.readouterr().err
