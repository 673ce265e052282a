"""kill -9 anywhere, the same command again: classes, labels, losses and weights are the same."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.lightning_modules.runs import BATCHES, STAGE_OF_EPOCH, Plan, Trace, finished, in_process
from tests.lightning_modules.runs import run as run_plan

KILLS: list[tuple[str, tuple[Any, ...]]] = [
    ("epoch", ("backward", 0, 0)),  # before there is any checkpoint
    ("epoch", ("backward", 1, 2)),
    ("epoch", ("backward", 2, 5)),
    ("epoch", ("backward", 4, 13)),
    ("epoch", ("centroids", 1)),  # of the novel classes, at the start of stage 2
    ("epoch", ("select", 1)),  # at the start of stage 3
    ("epoch", ("epoch start", 2, True)),  # chosen, but the model is still that of stage 1
    ("epoch", ("epoch start", 3, False)),  # chosen, and the model is new
    ("epoch", ("checkpoint", 0)),
    ("epoch", ("checkpoint", 5)),  # the copy called last, at the end of stage 2
    ("every 3 steps", ("backward", 0, 3)),
    ("every 3 steps", ("backward", 3, 9)),
    ("every 3 steps", ("checkpoint", 11)),
    ("every 4 steps", ("select", 0)),  # resumes from the last step of a stage
    ("every 4 steps", ("backward", 3, 1)),
    ("validation", ("backward", 1, 3)),
    ("validation", ("select", 1)),  # resumes from the validation that ends a stage
]


OTHERS: list[tuple[dict[str, Any], str, tuple[Any, ...]]] = [
    ({"cold_start": {"warm_start": True}}, "epoch", ("backward", 3, 2)),
    ({"trainer": {"max_steps": 38}}, "epoch", ("backward", 3, 3)),
    ({"trainer": {"max_steps": 38}}, "every 4 steps", ("backward", 2, 2)),
    ({"trainer": {"accumulate_grad_batches": 3}}, "every 3 steps", ("backward", 3, 9)),
    ({"trainer": {"limit_train_batches": 3}}, "every 4 steps", ("backward", 3, 1)),
    # 16, 32 and 56 images: killed in the third pass of stage 1, and in the second of stage 2
    ({"data": {"min_epoch_images": 50}}, "every 3 steps", ("backward", 1, 9)),
    ({"data": {"min_epoch_images": 50}}, "every 3 steps", ("backward", 2, 10)),
]


def train(plan: Plan) -> int:
    plan.folder.mkdir(exist_ok=True)
    return finished(in_process(run_plan, plan))


def outcome(folder: Path) -> tuple[dict[str, torch.Tensor], list[Any]]:
    classes = [json.loads((folder / f"{it}.json").read_text()) for it in ("classes", "records")]
    return torch.load(folder / "weights.pt", weights_only=True), classes


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert train(Plan(folder)) == 0
    return folder


def assert_same_run(folder: Path, reference: Path) -> None:
    weights, classes = outcome(folder)
    expected_weights, expected_classes = outcome(reference)
    assert classes == expected_classes
    assert weights.keys() == expected_weights.keys()
    for name, tensor in expected_weights.items():
        assert torch.equal(weights[name], tensor), name
    steps = Trace(folder / "trace.jsonl").steps()
    expected = Trace(reference / "trace.jsonl").steps()
    assert steps.keys() == expected.keys()
    for place, (step,) in expected.items():
        assert set(steps[place]) == {step}, f"epoch, batch {place}"


def test_the_uninterrupted_run_has_every_batch_of_every_stage(uninterrupted: Path) -> None:
    steps = Trace(uninterrupted / "trace.jsonl").steps()
    expected = {(e, b) for e, stage in enumerate(STAGE_OF_EPOCH) for b in range(BATCHES[stage])}
    assert steps.keys() == expected


@pytest.mark.parametrize(("checkpoint", "kill"), KILLS)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    checkpoint: str, kill: tuple[Any, ...], uninterrupted: Path, tmp_path: Path
) -> None:
    plan = Plan(tmp_path, checkpoint, kill)
    assert train(plan) == -signal.SIGKILL
    assert not (tmp_path / "weights.pt").exists()
    assert train(replace(plan, kill=None)) == 0
    assert_same_run(tmp_path, uninterrupted)


def test_so_does_one_with_other_numbers_of_workers(uninterrupted: Path, tmp_path: Path) -> None:
    plan = Plan(tmp_path, "every 3 steps", ("backward", 2, 4))
    workers = {"num_workers": 2, "persistent_workers": True}
    assert train(plan) == -signal.SIGKILL
    assert train(replace(plan, kill=("backward", 3, 6), data=workers)) == -signal.SIGKILL
    assert train(replace(plan, kill=None)) == 0
    assert_same_run(tmp_path, uninterrupted)


@pytest.mark.parametrize(("options", "checkpoint", "kill"), OTHERS)
def test_so_does_one_with_other_settings(
    options: dict[str, Any], checkpoint: str, kill: tuple[Any, ...], tmp_path: Path
) -> None:
    reference = Plan(tmp_path / "reference", checkpoint, **options)
    plan = replace(reference, folder=tmp_path / "killed", kill=kill)
    assert train(reference) == 0
    assert train(plan) == -signal.SIGKILL
    assert train(replace(plan, kill=None)) == 0
    assert_same_run(plan.folder, reference.folder)
