"""Two processes with DDP on the CPU: the same classes in both, and as in one process."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from lightning_modules import NovelEvaluation
from lightning_modules.features import image_centroids
from tests.lightning_modules.runs import (
    Plan,
    Smooth,
    Trace,
    finished,
    in_process,
    run,
    run_on_two,
)

# With validation DDP would make the statistics of batch normalisation alike at its end.
NO_VALIDATION = {"limit_val_batches": 0}


class Centroids(pl.Callback):
    """At the end of a run: centroids taken by all processes together, and by this one alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        previews = trainer.datamodule.pool.preview_set()  # type: ignore[attr-defined]
        buffers = {name: tensor.clone() for name, tensor in pl_module.named_buffers()}
        # 48 images in batches of 40: the second process gets 8, and of batches of 48 none.
        together = image_centroids(previews, 12, pl_module, batch_size=40, trainer=trainer)
        few = image_centroids(previews, 12, pl_module, batch_size=48, trainer=trainer)
        alone = image_centroids(previews, 12, pl_module, batch_size=16)
        for name, tensor in pl_module.named_buffers():
            assert torch.equal(tensor, buffers[name])
        mean = next(tensor for name, tensor in buffers.items() if name.endswith("running_mean"))
        parts = {"together": together, "few": few, "alone": alone, "mean": mean.numpy()}
        np.savez(self.folder / f"centroids-{trainer.global_rank}.npz", **parts)


def evaluation(folder: Path) -> NovelEvaluation:
    return NovelEvaluation(
        ways=3, shots=1, queries=2, episodes=4, dirpath=folder, verbose=False, batch_size=8
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    plan = Plan(folder, trainer=NO_VALIDATION, extra=(Centroids(folder), evaluation(folder)))
    assert run_on_two(plan) == [0, 0]
    return folder


def outcome(folder: Path, suffix: str = "") -> tuple[dict[str, torch.Tensor], list[str]]:
    classes = json.loads((folder / f"classes{suffix}.json").read_text())
    return torch.load(folder / f"weights{suffix}.pt", weights_only=True), classes


def test_both_processes_have_the_same_classes_and_weights(two: Path) -> None:
    weights, classes = outcome(two)
    other_weights, other_classes = outcome(two, "-1")
    assert classes == other_classes
    assert len(classes) == 7
    for name, tensor in weights.items():
        if "running" not in name:  # statistics of batch normalisation are each process's own
            assert torch.equal(tensor, other_weights[name]), name


def test_sharded_centroids_are_those_of_one_process(two: Path) -> None:
    first, second = (np.load(two / f"centroids-{rank}.npz") for rank in (0, 1))
    assert not np.allclose(first["mean"], second["mean"])  # so it matters whose statistics are used
    for name in ("together", "few"):
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], first["alone"], rtol=1e-6, atol=1e-6)


def test_the_processes_share_the_images_out(two: Path) -> None:
    mine, others = (Trace(two / name).steps() for name in ("trace.jsonl", "trace-1.jsonl"))
    assert mine.keys() == others.keys()
    assert [sum(epoch == e for e, _ in mine) for epoch in range(5)] == [2, 2, 4, 7, 7]
    for epoch, classes in enumerate((2, 2, 4, 7, 7)):
        labels = [
            label
            for trace in (mine, others)
            for (e, _), seen in trace.items()
            if e == epoch
            for label in seen[0][1]
        ]
        assert sorted(labels) == sorted([*range(classes)] * 8)


def test_two_processes_select_and_train_as_one_with_twice_the_batch(tmp_path: Path) -> None:
    together = Plan(tmp_path / "two", backbone=Smooth, data={"batch_size": 2})
    alone = Plan(tmp_path / "one", backbone=Smooth, data={"batch_size": 4})
    for plan in (together, alone):
        plan.folder.mkdir()
    assert run_on_two(together) == [0, 0]
    assert finished(in_process(run, alone)) == 0
    weights, classes = outcome(together.folder)
    expected_weights, expected_classes = outcome(alone.folder)
    assert classes == expected_classes
    for name, tensor in expected_weights.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=1e-5)


def test_a_run_killed_after_the_last_step_of_a_stage_goes_on_as_if_it_had_not(
    two: Path, tmp_path: Path
) -> None:
    # Epochs of 2, 2 and 4 batches: the checkpoint of step 8 is resumed, the end of stage 2.
    extra = (evaluation(tmp_path),)
    plan = Plan(tmp_path, "every 4 steps", ("backward", 3, 2), trainer=NO_VALIDATION, extra=extra)
    assert run_on_two(plan) == [-signal.SIGKILL] * 2
    assert run_on_two(replace(plan, kill=None)) == [0, 0]
    assert_same(tmp_path, two)
    for name in ("records.json", "novel_3way_1shot.csv"):
        assert (tmp_path / name).read_text() == (two / name).read_text()
    assert len((two / "novel_3way_1shot.csv").read_text().splitlines()) == 1 + 3 * 2


def still_at_first(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
    """A schedule whose first epoch leaves the weights as they are."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: float(epoch > 0))


def test_one_process_goes_on_as_two_from_the_start_of_an_epoch(tmp_path: Path) -> None:
    """The first epoch changes no weight, so from the second on both are runs of two processes."""
    model = {"momentum": 0.0, "weight_decay": 0.0, "lr_scheduler": still_at_first}
    always = Plan(tmp_path / "two", backbone=Smooth, model=model)
    later = replace(always, folder=tmp_path / "later", kill=("backward", 1, 0))
    for plan in (always, later):
        plan.folder.mkdir()
    assert run_on_two(always) == [0, 0]
    assert finished(in_process(run, later)) == -signal.SIGKILL
    assert run_on_two(replace(later, kill=None)) == [0, 0]
    assert_same(later.folder, always.folder)
    torch.manual_seed(5)
    untrained = Smooth().state_dict()
    weights, _ = outcome(later.folder)
    assert not torch.equal(weights["backbone.net.0.weight"], untrained["net.0.weight"])


def assert_same(folder: Path, reference: Path) -> None:
    weights, classes = outcome(folder)
    expected_weights, expected_classes = outcome(reference)
    assert classes == expected_classes
    for name, tensor in expected_weights.items():
        assert torch.equal(weights[name], tensor), name
