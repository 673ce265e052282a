"""The benchmark of episodes: it runs, and it times what it says."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import episodes
import pytest
import torch

from fsl_basesel.errors import InputError

SMALL = "--ways 4 --shots 1 --queries 3 --classes 6 --images 9 --dims 8 --rounds 2".split()


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    episodes.add_arguments(parser)
    return parser.parse_args(list(words))


def test_it_runs_and_writes_a_row_for_everyone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("learn2learn")
    monkeypatch.setenv("COLUMNS", "120")
    path, threads = tmp_path / "times.csv", torch.get_num_threads()
    assert episodes.run(parsed(*SMALL, "--csv", str(path))) == 0
    assert torch.get_num_threads() == threads
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    names = [(row["setting"].split(",")[0], row["name"]) for row in rows]
    for part in ("sampling", "cosine episode", "euclidean episode"):
        assert (part, "ours") in names
        assert any(mine == part and "learn2learn" in name for mine, name in names)
    assert all(float(row["median"]) > 0 for row in rows)
    assert "times ours" in capsys.readouterr().out


def test_all_contenders_draw_episodes_of_the_same_shape():
    pytest.importorskip("learn2learn")
    from rich.console import Console

    sampling = episodes._contenders(parsed(*SMALL), Console(quiet=True))["sampling"]
    drawn = {name: work() for name, work in sampling.items()}
    ours = drawn.pop("ours")
    assert ours.support.shape == (4, 8)
    assert ours.query.shape == (12, 8)
    for name, task in drawn.items():
        if name == "easyfsl":
            assert task[0].shape == ours.support.shape
            assert task[2].shape == ours.query.shape
        else:
            assert task[0].shape == (16, 8)
            assert sorted(task[1].tolist()) == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4


def test_numbers_without_sense_are_refused():
    with pytest.raises(InputError, match="every number to be at least 1"):
        episodes.run(parsed("--rounds", "0"))
