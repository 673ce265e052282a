"""What the selection callbacks leave for the report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.report import record
from fsl_basesel.report.content import content_of
from fsl_basesel.report.run import read_run
from fsl_basesel.similarity import ClassCentroids
from lightning_modules import SelectBaseClasses
from tests.lightning_modules.runs import (
    Plan,
    run_on_two,
    tiny_cold_start,
    tiny_data,
    tiny_model,
    tiny_trainer,
)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_the_centroids_are_those_the_selection_was_made_with(tmp_path: Path) -> None:
    tiny_trainer(tmp_path, tiny_cold_start()).fit(tiny_model(), tiny_data())
    assert not (tmp_path / "classes-stage-1.npz").exists()  # random: nothing was known
    for stage in (2, 3):
        candidates, novel = record.load_classes(tmp_path / f"classes-stage-{stage}.npz")
        saved = fb.Selection.load(tmp_path / f"selection-stage-{stage}.json")
        settings = saved.hyperparameters
        problem = fb.SelectionProblem.from_centroids(
            candidates.values,
            novel.values,
            m=settings["m"],
            k=settings["k"],
            selected=settings["selected"],
        )
        assert problem.value(saved.indices) == pytest.approx(saved.value, rel=1e-6)
        assert [candidates.names[u] for u in saved.indices] == saved.names
    pictures = record.load_pictures(tmp_path / "pictures.npz")
    assert set(pictures.candidates) == set(candidates.names)
    assert set(pictures.novel) == set(novel.names)


def test_general_selection_keeps_no_novel_classes(tmp_path: Path) -> None:
    callback = SelectBaseClasses(m=3, k=1, general=True, verbose=False)
    tiny_trainer(tmp_path, callback, max_epochs=1).fit(tiny_model(), tiny_data())
    assert record.load_classes(tmp_path / "classes-stage-1.npz")[1] is None
    assert record.load_pictures(tmp_path / "pictures.npz").novel == {}


def dots(candidates: np.ndarray, novel: np.ndarray) -> np.ndarray:
    return novel @ candidates.T


@pytest.mark.parametrize(
    "given",
    [
        {"weights": [1.0, 0.0, 2.0, 5.0]},
        {"weights": [1.0, *range(11)], "general": True},
        {"cost": [1.0, 2.0, 3.0] * 4, "budget": 6.0},
        {"groups": ["a", "b"] * 6, "at_most": 2},
        {"similarity": dots},
    ],
    ids=" ".join,
)
def test_what_centroids_do_not_tell_is_kept_too(tmp_path: Path, given: dict[str, Any]) -> None:
    """The page has controls and chooses again from the problem that the callback solved."""
    callback = SelectBaseClasses(m=3, k=1, verbose=False, **given)
    tiny_trainer(tmp_path, callback, max_epochs=1).fit(tiny_model(), tiny_data())
    content = content_of(read_run(tmp_path))
    selection, problem = content.run.last.selection, content.problems[1]
    assert problem.value(selection.indices) == pytest.approx(selection.value, rel=1e-9)
    again = fb.select(problem)
    assert (again.names, again.spent) == (selection.names, selection.spent)
    if "weights" in given:
        weights = np.array(given["weights"])
        np.testing.assert_allclose(problem.weights, weights / weights.sum())
    assert [one.kind for one in content.controls[1]] == ["random", "pool"]


def test_a_trial_run_leaves_nothing(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), fast_dev_run=True)
    trainer.fit(tiny_model(), tiny_data())
    assert files(tmp_path) == set()


def test_a_folder_that_cannot_be_written_ends_the_run_as_it_does_for_the_selection(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(record, "save_npz", full)
    with pytest.raises(OSError, match="Read-only"):
        tiny_trainer(tmp_path, tiny_cold_start()).fit(tiny_model(), tiny_data())


def test_a_file_that_could_not_be_finished_leaves_the_old_one(
    tmp_path: Path, monkeypatch: Any
) -> None:
    record.save_classes(tmp_path, 1, ClassCentroids(np.eye(2)))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        record.save_classes(tmp_path, 1, ClassCentroids(np.eye(3)))
    assert files(tmp_path) == {"classes-stage-1.npz"}
    assert len(record.load_classes(tmp_path / "classes-stage-1.npz")[0]) == 2


def test_two_processes_leave_the_same_files_as_one(tmp_path: Path) -> None:
    assert run_on_two(Plan(tmp_path)) == [0, 0]
    left = {name for name in files(tmp_path) if name.endswith(".npz")}
    assert left == {"classes-stage-2.npz", "classes-stage-3.npz", "pictures.npz"}
