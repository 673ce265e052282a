"""A run that breaks right after any checkpoint is resumed: every number is as without the break."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers.logger import Logger
from torchmetrics import MaxMetric

from lightning_modules import BaseClassifier, NovelEvaluation, StageEarlyStopping
from lightning_modules.resume import AtomicCheckpointIO
from tests.lightning_modules.noisy import noisy_task
from tests.lightning_modules.runs import (
    WithDropout,
    tiny_cold_start,
    tiny_data,
    tiny_trainer,
)


class BreakError(Exception):
    """Stands for a kill: nothing is written any more."""


class Log(Logger):
    """All numbers that were logged, by name and step; a step may have two validations."""

    name, version = "log", 0  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[tuple[str, int | None], set[str]] = {}

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        for name, value in metrics.items():
            if "seconds" not in name:
                self.numbers.setdefault((name, step), set()).add(float(value).hex())

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


class Drawing(BaseClassifier):
    """Logs in all ways, draws from all generators, has a schedule of its own."""

    def __init__(self, plateau: str | None = None) -> None:
        torch.manual_seed(5)
        super().__init__(WithDropout(), lr=0.05)
        self.plateau = plateau
        self.largest = MaxMetric()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        images, labels = batch
        scale = 0.1 * (np.random.rand() + random.random())  # noqa: NPY002
        loss = super().training_step((images + scale * torch.rand_like(images), labels), batch_idx)
        self.log("both", loss, on_step=True, on_epoch=True)
        for reduce in ("min", "max", "sum"):
            self.log(reduce, loss, on_step=False, on_epoch=True, reduce_fx=reduce)
        self.largest(loss.detach())
        self.log("largest", self.largest, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        self.log("val_noise", torch.rand(()) + np.random.rand())  # noqa: NPY002

    def configure_optimizers(self) -> Any:
        if self.plateau is None:
            return super().configure_optimizers()
        optimizer = torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, factor=0.5, patience=0, threshold=1e9
        )
        config = {"scheduler": schedule, "monitor": self.plateau, "interval": "epoch"}
        return {"optimizer": optimizer, "lr_scheduler": config}


# The epochs have 4, 4 and 8 batches.
STEPS = {"every_n_train_steps": 1}
VALIDATIONS = {"save_on_train_epoch_end": False}
SETTINGS: dict[str, dict[str, Any]] = {
    "epochs": {},
    "steps": {"saver": STEPS},
    "plateau of a validation": {"plateau": "val_loss"},
    "plateau of training, steps": {"plateau": "train_loss", "saver": STEPS},
    "half epochs, steps": {"saver": STEPS, "trainer": {"val_check_interval": 0.5}},
    "half epochs": {"saver": VALIDATIONS, "trainer": {"val_check_interval": 0.5}},
    "accumulated, half epochs": {
        "saver": VALIDATIONS,
        "trainer": {"val_check_interval": 2, "accumulate_grad_batches": 3},
    },
    "accumulated, steps": {"saver": STEPS, "trainer": {"accumulate_grad_batches": 3}},
    "a limit of steps": {"saver": STEPS, "trainer": {"max_steps": 10}},
    "validation of every second epoch": {"trainer": {"check_val_every_n_epoch": 2}, "saver": STEPS},
    "double precision": {"trainer": {"precision": "64-true"}},
    "early stopping": {"stop": "val_loss", "saver": STEPS},
    "early stopping by training": {"stop": "train_loss"},
}


def fit(folder: Path, log: Log, setting: dict[str, Any]) -> dict[str, Any]:
    """Train, from the last checkpoint if there is one; everything that must be the same."""
    callbacks: list[Any] = [tiny_cold_start(schedule=(2, 4), epochs_per_stage=(2, 1))]
    callbacks.append(NovelEvaluation(ways=3, shots=1, queries=2, episodes=3, verbose=False))
    if "stop" in setting:
        callbacks.append(StageEarlyStopping(setting["stop"], patience=1, min_delta=1e9))
        callbacks[0] = tiny_cold_start(schedule=(2, 4), epochs_per_stage=(4, 4))
    callbacks.append(ModelCheckpoint(folder / "saved", save_last=True, **setting.get("saver", {})))
    options = {"logger": log, "log_every_n_steps": 1} | setting.get("trainer", {})
    trainer = tiny_trainer(folder, *callbacks, **options)
    model, data = Drawing(setting.get("plateau")), tiny_data(novel=noisy_task())
    random.seed(len(log.numbers))  # two starts of a process never agree on these
    np.random.seed(len(log.numbers))  # noqa: NPY002
    last = folder / "saved" / "last.ckpt"
    trainer.fit(model, data, ckpt_path=last if last.is_file() else None, weights_only=True)
    assert trainer.max_steps == options.get("max_steps", -1)
    records = [record | {"seconds": 0} for record in callbacks[0].records]
    return {
        "weights": {name: value.tolist() for name, value in model.state_dict().items()},
        "classes": data.classes,
        "records": json.dumps(records),
        "csv": (folder / "novel_3way_1shot.csv").read_text(),
        "numbers": log.numbers,
        "steps": trainer.global_step,
        "epoch": trainer.current_epoch,
    }


@cache
def unbroken(name: str) -> tuple[dict[str, Any], int]:
    """The run without a break, and how many checkpoints it writes."""
    with Breaking(None) as breaking:
        return fit(Path(mkdtemp()), Log(), SETTINGS[name]), breaking.written


class Breaking:
    """Break a run right after it has written a checkpoint, that of this number."""

    def __init__(self, number: int | None) -> None:
        self.number, self.written = number, 0

    def __enter__(self) -> Breaking:
        self.save = save = AtomicCheckpointIO.save_checkpoint

        def saving(io: Any, *args: Any, **kwargs: Any) -> None:
            save(io, *args, **kwargs)
            self.written += 1
            if self.number is not None and self.written > self.number:
                raise BreakError

        AtomicCheckpointIO.save_checkpoint = saving  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: Any) -> None:
        AtomicCheckpointIO.save_checkpoint = self.save  # type: ignore[method-assign]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_that_breaks_after_a_checkpoint_goes_on_as_if_it_had_not(
    name: str, tmp_path: Path
) -> None:
    expected, written = unbroken(name)
    # Each is written twice: under its own name, and as last.ckpt, which is resumed from.
    points = range(1, written, 2)
    for number in {points[at] for at in ((3, 9, -1) if len(points) > 9 else (0, 2, -1))}:
        folder, log = tmp_path / str(number), Log()
        with Breaking(number), pytest.raises(BreakError):
            fit(folder, log, SETTINGS[name])
        found = fit(folder, log, SETTINGS[name])
        for what, value in expected.items():
            if what == "numbers":
                missing = {key for key in value if found[what].get(key) != value[key]}
                assert (number, missing) == (number, set())
            assert found[what] == value, (number, what)


class Listing(BaseClassifier):
    """Lists what numpy, `random` and torch draw in its first steps."""

    def __init__(self) -> None:
        torch.manual_seed(5)
        super().__init__(WithDropout(), lr=0.05)
        self.drawn: list[tuple[float, float, float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.drawn.append((np.random.rand(), random.random(), float(torch.rand(()))))  # noqa: NPY002
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("reseed", [True, False])
def test_steps_are_seeded_unless_one_says_no(reseed: bool, tmp_path: Path) -> None:
    drawn = []
    for start in range(2):
        model, data = Listing(), tiny_data(novel=noisy_task())
        random.seed(start)
        np.random.seed(start)  # noqa: NPY002
        torch.manual_seed(start)
        callback = tiny_cold_start(schedule=(2,), epochs_per_stage=1, reseed=reseed)
        tiny_trainer(tmp_path / str(start), callback).fit(model, data)
        drawn.append(model.drawn)
    same = [[a == b for a, b in zip(*pair, strict=True)] for pair in zip(*drawn, strict=True)]
    assert same
    assert all(one == [reseed] * 3 for one in same)
