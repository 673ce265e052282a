"""A pool that people label between stages: the run stops and the same command goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from pytorch_lightning.callbacks import ModelCheckpoint

from fsl_basesel.data import LabellingQueue, LabelsPending
from lightning_modules import BaseClassDataModule
from tests.lightning_modules.runs import Trace, tiny_cold_start, tiny_model, tiny_task, tiny_trainer


def pictures(folder: Path, shade: int, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.new("L", (8, 8), shade + number).save(folder / f"{number}.png")


def command(root: Path) -> BaseClassDataModule:
    """What a person runs again and again."""
    pool = LabellingQueue(
        root / "previews", root / "labelled", root / "queue.json", size=8, channels=1, needed=3
    )
    data = BaseClassDataModule(pool, tiny_task(), 4)
    saving = ModelCheckpoint(root / "checkpoints", save_last=True)
    callbacks = (tiny_cold_start(schedule=(2, 3), epochs_per_stage=2), Trace(root / "trace"))
    trainer = tiny_trainer(root, *callbacks, saving)
    trainer.fit(tiny_model(), data, ckpt_path="last")
    torch.save(trainer.lightning_module.state_dict(), root / "weights.pt")
    return data


def label(root: Path, waiting: LabelsPending) -> None:
    for name in waiting.classes:
        pictures(root / "labelled" / name, shade=20 * int(name.split()[1]), count=4)


def test_the_run_waits_for_labels_and_goes_on(tmp_path: Path) -> None:
    def prepared(name: str) -> Path:
        for number in range(5):
            pictures(tmp_path / name / "previews" / f"class {number}", 20 * number, 2)
        return tmp_path / name

    root = prepared("by and by")
    waits: list[list[str]] = []
    for expected in (2, 1):
        for _ in range(2):  # the second time too early: nothing has changed
            with pytest.raises(LabelsPending, match="run the same command again") as caught:
                command(root)
        waits.append(caught.value.classes)
        assert len(waits[-1]) == expected
        label(root, caught.value)
    data = command(root)
    assert data.classes == (*waits[0], *waits[1])

    at_once = prepared("at once")
    for names in waits:
        for name in names:
            pictures(at_once / "labelled" / name, 20 * int(name.split()[1]), 4)
    assert command(at_once).classes == data.classes
    steps: list[Any] = [Trace(folder / "trace").steps() for folder in (root, at_once)]
    assert steps[0] == steps[1]  # no batch was trained twice
    weights = [torch.load(folder / "weights.pt", weights_only=True) for folder in (root, at_once)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
