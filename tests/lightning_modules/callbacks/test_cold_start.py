"""`ColdStartSelection`: one fit, stages inside it, the right images in every epoch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger

import fsl_basesel as fb
from fsl_basesel.data import ClassPool, glyphs
from fsl_basesel.errors import InputError
from lightning_modules import BaseClassDataModule, BaseClassifier, ColdStartSelection
from lightning_modules.data import step_seed
from lightning_modules.features import image_centroids
from tests.lightning_modules.runs import (
    EPOCHS,
    SCHEDULE,
    STAGE_OF_EPOCH,
    WithDropout,
    tiny_cold_start,
    tiny_data,
    tiny_model,
    tiny_trainer,
)


class Watch(pl.Callback):
    """Calls functions at the start of every epoch and for every batch."""

    def __init__(
        self,
        epoch: Callable[[pl.Trainer, Any], None] = lambda trainer, module: None,
        batch: Callable[[pl.Trainer, Any, Any], None] = lambda trainer, module, batch: None,
    ) -> None:
        self.epoch, self.batch = epoch, batch

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.epoch(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self.batch(trainer, pl_module, batch)


def by_content(pool: ClassPool, per_class: int) -> dict[bytes, tuple[int, int]]:
    """Class and number of every image of the pool, found by its pixels."""
    classes = np.repeat(np.arange(len(pool)), per_class)
    items = np.tile(np.arange(per_class), len(pool))
    pictures = pool.source.images(classes, items)
    found = {
        picture.numpy().tobytes(): (int(c), int(i))
        for picture, c, i in zip(pictures, classes, items, strict=True)
    }
    assert len(found) == len(classes)
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_every_epoch_sees_all_images_of_the_classes_of_its_stage_and_no_others(
    workers: int, tmp_path: Path
) -> None:
    schedule, per_class = (6, 12, 25, 50, 100), 4
    pool, novel = glyphs(
        candidates=104, novel=5, seed=0, per_class=per_class, preview=2, shots=2, queries=1, size=8
    )
    known = by_content(pool, per_class)
    data = BaseClassDataModule(
        pool, novel, 24, num_workers=workers, persistent_workers=workers > 0, eval_batch_size=256
    )
    seen: dict[int, list[tuple[int, int, int]]] = {}

    def look(trainer: pl.Trainer, module: Any, batch: Any) -> None:
        for picture, label in zip(*batch, strict=True):
            place = known[picture.numpy().tobytes()]
            seen.setdefault(trainer.current_epoch, []).append((*place, int(label)))

    epochs = (2, 1, 1, 1, 1)
    cold_start = ColdStartSelection(schedule, epochs, k=1, verbose=False, certify=False)
    trainer = tiny_trainer(tmp_path, cold_start, Watch(batch=look))
    trainer.fit(BaseClassifier(WithDropout()), data)

    assert trainer.current_epoch == sum(epochs)
    chosen = data.class_numbers
    assert len(set(chosen)) == 100
    stage_of_epoch = [stage for stage, count in enumerate(epochs) for _ in range(count)]
    for epoch, stage in enumerate(stage_of_epoch):
        size = schedule[stage]
        expected = {
            (c, i, label) for label, c in enumerate(chosen[:size]) for i in range(per_class)
        }
        assert len(seen[epoch]) == len(set(seen[epoch]))
        # One image may be left over, too few for a batch of its own.
        assert set(seen[epoch]) <= expected
        assert len(expected) - len(seen[epoch]) <= 1
    files = sorted(path.name for path in tmp_path.glob("selection-stage-*.json"))
    assert files == [f"selection-stage-{i}.json" for i in range(1, 6)]
    saved = [fb.Selection.load(tmp_path / file) for file in files]
    assert [c for selection in saved for c in selection.indices] == list(chosen)
    assert saved[0].method == "random"


def test_each_selection_is_that_of_the_model_of_the_stage_before(tmp_path: Path) -> None:
    ends: dict[int, dict[str, torch.Tensor]] = {}

    class Keep(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
            state = pl_module.state_dict()
            ends[trainer.current_epoch] = {name: t.clone() for name, t in state.items()}

    data, model = tiny_data(), tiny_model()
    trainer = tiny_trainer(tmp_path, Keep(), tiny_cold_start(method="greedy-target"))
    trainer.fit(model, data)
    novel = data.novel
    assert novel is not None
    for stage in (1, 2):
        last = sum(EPOCHS[:stage]) - 1
        model.load_state_dict(ends[last])
        problem = fb.SelectionProblem.from_centroids(
            image_centroids(data.pool.preview_set(), 12, model, batch_size=16),
            image_centroids(novel.support_set(), 4, model, batch_size=16),
            m=SCHEDULE[stage] - SCHEDULE[stage - 1],
            k=2,
            selected=data.class_numbers[: SCHEDULE[stage - 1]],
        )
        expected = fb.select(problem, "greedy-target").indices
        assert list(data.class_numbers[SCHEDULE[stage - 1] : SCHEDULE[stage]]) == expected


def test_limits_hold_in_every_stage(tmp_path: Path) -> None:
    groups, data = ["a", "b", "c"] * 4, tiny_data()
    limits = {"groups": groups, "at_most": 3, "at_least": {"c": 1}}
    names = {"exclude": ["base 5"], "include": ["base 7"]}
    callback = tiny_cold_start(schedule=(3, 5, 9), epochs_per_stage=1, **limits, **names)
    tiny_trainer(tmp_path, callback, limit_train_batches=1).fit(tiny_model(), data)
    chosen = list(data.class_numbers)
    assert len(chosen) == 9
    assert 5 not in chosen
    assert 7 in chosen[:3]
    assert "c" in {groups[u] for u in chosen[:3]}
    assert Counter(groups[u] for u in chosen) == {"a": 3, "b": 3, "c": 3}
    assert callback.settings()["limits"] != tiny_cold_start(**names).settings()["limits"]
    assert "limits" not in tiny_cold_start().settings()
    with pytest.raises(InputError, match="no `budget` for ColdStartSelection"):
        tiny_cold_start(budget=5.0)
    trainer = tiny_trainer(tmp_path)
    trainer.callbacks.append(tiny_cold_start(schedule=(3, 10), epochs_per_stage=1, **limits))
    with pytest.raises(InputError, match="m to be at most 9, the classes that `at_most`"):
        trainer.fit(tiny_model(), tiny_data())


def test_a_stage_begins_with_a_new_model_and_a_new_optimizer(tmp_path: Path) -> None:
    begun: dict[int, dict[str, torch.Tensor]] = {}
    rates: list[float] = []
    momenta: list[int] = []

    def look(trainer: pl.Trainer, module: Any) -> None:
        begun[trainer.current_epoch] = {n: t.clone() for n, t in module.state_dict().items()}
        rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        momenta.append(len(trainer.optimizers[0].state))
        assert module.head.active == SCHEDULE[STAGE_OF_EPOCH[trainer.current_epoch]]

    model = BaseClassifier("conv3", lr=0.05, milestones=(60,))
    parameters = {name: id(tensor) for name, tensor in model.backbone.named_parameters()}
    cold_start = tiny_cold_start()
    trainer = tiny_trainer(tmp_path, cold_start, Watch(epoch=look), limit_train_batches=2)
    trainer.fit(model, tiny_data())
    assert parameters == {name: id(t) for name, t in model.backbone.named_parameters()}
    for stage, epoch in ((1, 2), (2, 3)):
        fresh = model.fresh_state(step_seed(cold_start.seed, "weights", stage))
        assert fresh is not None
        for name, tensor in fresh.items():
            if name != "head.active":
                assert torch.equal(begun[epoch][name], tensor), name
    assert rates == pytest.approx([0.05, 0.005, 0.05, 0.05, 0.005])
    assert [count == 0 for count in momenta] == [True, False, True, True, False]


def test_a_model_that_cannot_be_built_anew_begins_again_with_its_first_weights(
    tmp_path: Path,
) -> None:
    model = tiny_model()
    first = {name: t.clone() for name, t in model.state_dict().items()}
    begun = {}

    def look(trainer: pl.Trainer, module: Any) -> None:
        begun[trainer.current_epoch] = {n: t.clone() for n, t in module.state_dict().items()}

    watch = Watch(epoch=look)
    tiny_trainer(tmp_path, tiny_cold_start(), watch, limit_train_batches=2).fit(model, tiny_data())
    for name, tensor in first.items():
        assert torch.equal(begun[2][name], tensor)
        assert torch.equal(begun[3][name], tensor)
    assert not torch.equal(begun[1]["backbone.net.0.weight"], first["backbone.net.0.weight"])


def test_a_warm_start_keeps_the_weights(tmp_path: Path) -> None:
    begun, ended = {}, {}

    class Keep(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
            ended[trainer.current_epoch] = pl_module.head.weight.detach().clone()

    def look(trainer: pl.Trainer, module: Any) -> None:
        begun[trainer.current_epoch] = module.head.weight.detach().clone()

    data = tiny_data()
    callbacks = (tiny_cold_start(warm_start=True), Watch(epoch=look), Keep())
    tiny_trainer(tmp_path, *callbacks, limit_train_batches=2).fit(tiny_model(), data)
    assert torch.equal(begun[2][:2], ended[1][:2])
    assert torch.equal(begun[3][:4], ended[2][:4])
    assert len(data.classes) == 7


def test_any_rising_schedule_will_do_and_classes_to_start_with(tmp_path: Path) -> None:
    data = tiny_data()
    cold_start = tiny_cold_start(schedule=(3, 9), epochs_per_stage=1, selected=["base 7", "base 2"])
    tiny_trainer(tmp_path, cold_start, limit_train_batches=1).fit(tiny_model(), data)
    assert data.classes[:2] == ("base 7", "base 2")
    assert len(data.classes) == 9


def test_the_first_classes_are_random_by_the_seed(tmp_path: Path) -> None:
    def first(seed: int) -> tuple[str, ...]:
        data = tiny_data()
        cold_start = tiny_cold_start(schedule=(5,), epochs_per_stage=1, seed=seed)
        tiny_trainer(tmp_path, cold_start, limit_train_batches=1).fit(tiny_model(), data)
        return data.classes

    draws = [first(seed) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_selections_are_logged_saved_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = CSVLogger(tmp_path, name="", version="run")
    cold_start = tiny_cold_start(verbose=True)
    trainer = tiny_trainer(tmp_path, cold_start, logger=logger, limit_train_batches=1)
    trainer.fit(tiny_model(), tiny_data())
    folder = tmp_path / "run"
    saved = json.loads((folder / "selection-stage-3.json").read_text())
    header, *rows = [line.split(",") for line in (folder / "metrics.csv").read_text().split()]
    logged = [dict(zip(header, row, strict=True)) for row in rows]
    selections = [row for row in logged if row["selection/stage"]]
    assert [float(row["selection/stage"]) for row in selections] == [1, 2, 3]
    assert [float(row["selection/classes"]) for row in selections] == list(SCHEDULE)
    assert float(selections[2]["selection/value"]) == pytest.approx(saved["value"])
    assert float(selections[2]["selection/upper_bound"]) >= saved["value"]
    assert float(selections[2]["selection/gap"]) == pytest.approx(saved["gap"])
    assert float(selections[2]["selection/seconds"]) > 0
    shown = capsys.readouterr().out
    for title in ("stage 1 of 3", "stage 2 of 3", "stage 3 of 3"):
        assert title in shown
    assert f"added: {saved['names'][0]}" in shown
    assert [record["epochs"] for record in cold_start.records] == list(EPOCHS)


def test_general_selection_needs_no_novel_task(tmp_path: Path) -> None:
    data = tiny_data(novel=None)
    tiny_trainer(tmp_path, tiny_cold_start(), limit_train_batches=1).fit(tiny_model(), data)
    assert len(data.classes) == 7
    saved = fb.Selection.load(tmp_path / "selection-stage-2.json")
    assert saved.hyperparameters["n_novel"] == 12


class PlainModule(pl.LightningModule):
    """A module of someone else: an encoder by another name and no head to activate."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = WithDropout()
        self.classify = torch.nn.LazyLinear(7)

    def configure_optimizers(self) -> Any:
        # Asks for the number of steps, so that Lightning makes the loader before all else.
        self.steps = self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), 0.01)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.classify(self.encode(batch[0])), batch[1])

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        return self.encoder(images).flatten(1)


def test_works_with_a_module_of_ones_own(tmp_path: Path) -> None:
    data, model = tiny_data(), PlainModule()
    model.classify(model.encode(torch.zeros(2, 1, 8, 8)))
    trainer = tiny_trainer(tmp_path, tiny_cold_start(features="encode"))
    trainer.fit(model, data)
    assert len(data.classes) == 7
    assert trainer.global_step == 2 * 4 + 8 + 2 * 14
    assert model.steps == 14 * 5  # the last stage's batches; the first stage's were 4


class Stateful(PlainModule):
    """It keeps something in its state that is no tensor."""

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        assert state == {"version": 3}


def test_a_state_may_hold_more_than_tensors(tmp_path: Path) -> None:
    for epochs in (2, 5):  # the second run resumes the first
        data, model = tiny_data(), Stateful()
        model.classify(model.encode(torch.zeros(2, 1, 8, 8)))
        saver = pl.callbacks.ModelCheckpoint(tmp_path, save_last=True)
        cold_start = tiny_cold_start(features="encode")
        trainer = tiny_trainer(
            tmp_path, cold_start, saver, max_epochs=epochs, limit_train_batches=1
        )
        trainer.fit(model, data, ckpt_path="last", weights_only=True)
    assert len(data.classes) == 7


def test_the_trainer_is_left_as_it_was(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), max_epochs=50, limit_train_batches=1)
    io = trainer.strategy.checkpoint_io
    data = tiny_data()
    trainer.fit(tiny_model(), data)
    assert trainer.current_epoch == 5
    assert (trainer.max_epochs, trainer.reload_dataloaders_every_n_epochs) == (50, 0)
    assert trainer.strategy.checkpoint_io is io
    assert data.chooser is None


def test_a_second_fit_starts_anew(tmp_path: Path) -> None:
    data, cold_start = tiny_data(), tiny_cold_start()
    tiny_trainer(tmp_path, cold_start, limit_train_batches=1).fit(tiny_model(), data)
    first = data.classes
    tiny_trainer(tmp_path, cold_start, limit_train_batches=1).fit(tiny_model(), data)
    assert data.classes == first
