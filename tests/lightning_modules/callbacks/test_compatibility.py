"""A cold start beside Lightning's own features: each works, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import (
    EarlyStopping,
    LearningRateFinder,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from pytorch_lightning.strategies import FSDPStrategy
from pytorch_lightning.tuner import Tuner

from fsl_basesel.errors import InputError
from lightning_modules import BaseClassDataModule, SelectBaseClasses, StageEarlyStopping
from lightning_modules.callbacks import compatibility
from tests.lightning_modules.runs import (
    EPOCHS,
    tiny_cold_start,
    tiny_data,
    tiny_model,
    tiny_pool,
    tiny_trainer,
)


class Labels(pl.Callback):
    """The labels of every batch, by epoch."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[int, ...]]] = {}

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self.seen.setdefault(trainer.current_epoch, []).append(tuple(batch[1].tolist()))


# ModelCheckpoint


def test_monitored_checkpoints_are_ranked_within_their_stage(tmp_path: Path) -> None:
    best = ModelCheckpoint(tmp_path, "{epoch}", monitor="train_loss", save_top_k=1)
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), best)
    trainer.fit(tiny_model(), tiny_data())
    state = torch.load(best.best_model_path, weights_only=True)
    place = state["callbacks"]["ColdStartSelection"]["place"]
    assert place[0] == 2  # though the loss over 2 classes was lower than any over 7
    assert len(list(tmp_path.glob("epoch=*.ckpt"))) == 3  # one best of every stage


def test_a_checkpoint_callback_that_keeps_nothing_is_pointed_out(tmp_path: Path) -> None:
    nothing = ModelCheckpoint(tmp_path, save_top_k=0, save_last=True)
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), nothing, limit_train_batches=1)
    with pytest.warns(UserWarning, match="save_top_k=0, save_last=True"):
        trainer.fit(tiny_model(), tiny_data())


# Early stopping


def never_better(**options: Any) -> StageEarlyStopping:
    return StageEarlyStopping(min_delta=1e9, patience=1, **options)


@pytest.mark.parametrize("monitor", ["train_loss", "val_loss"])
def test_early_stopping_ends_the_stage(monitor: str, tmp_path: Path) -> None:
    cold_start, labels, data = tiny_cold_start(epochs_per_stage=9), Labels(), tiny_data()
    trainer = tiny_trainer(tmp_path, never_better(monitor=monitor), cold_start, labels)
    trainer.fit(tiny_model(), data)
    assert [record["epochs"] for record in cold_start.records] == [2, 2, 2]
    assert trainer.current_epoch == 6
    assert {e: max(max(b) for b in seen) + 1 for e, seen in labels.seen.items()} == {
        0: 2, 1: 2, 2: 4, 3: 4, 4: 7, 5: 7,
    }  # fmt: skip


def test_early_stopping_in_mid_epoch_ends_the_stage_with_the_epoch(tmp_path: Path) -> None:
    cold_start = tiny_cold_start(epochs_per_stage=9)
    stopping = never_better(monitor="val_loss", check_on_train_epoch_end=False)
    trainer = tiny_trainer(tmp_path, stopping, cold_start, val_check_interval=0.5)
    trainer.fit(tiny_model(), tiny_data())
    assert [record["epochs"] for record in cold_start.records][:2] == [1, 1]
    assert trainer.should_stop


def test_a_stage_that_improves_lasts_its_time(tmp_path: Path) -> None:
    cold_start = tiny_cold_start()
    stopping = StageEarlyStopping("train_loss", patience=5)
    tiny_trainer(tmp_path, stopping, cold_start).fit(tiny_model(), tiny_data())
    assert [record["epochs"] for record in cold_start.records] == list(EPOCHS)


def test_without_a_cold_start_it_is_plain_early_stopping(tmp_path: Path) -> None:
    data = tiny_data()
    data.add_classes([0, 1])
    trainer = tiny_trainer(tmp_path, never_better(monitor="train_loss"), max_epochs=9)
    trainer.fit(tiny_model(), data)
    assert trainer.current_epoch == 2


def test_plain_early_stopping_is_refused(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, EarlyStopping("val_loss"), tiny_cold_start())
    with pytest.raises(
        InputError, match=r"EarlyStopping\(monitor='val_loss'\).*StageEarlyStopping"
    ):
        trainer.fit(tiny_model(), tiny_data())
    plain = EarlyStopping("val_loss")  # with one selection there is one stage
    selecting = SelectBaseClasses(3, verbose=False)
    trainer = tiny_trainer(tmp_path, plain, selecting, max_epochs=1, limit_train_batches=1)
    trainer.fit(tiny_model(), tiny_data())


# Limits


def test_max_steps_ends_the_run_in_its_stage(tmp_path: Path) -> None:
    data = tiny_data()
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), max_steps=11)
    trainer.fit(tiny_model(), data)
    assert trainer.global_step == 11
    assert len(data.classes) == 4


def test_max_epochs_below_the_schedule_ends_the_run_and_is_pointed_out(tmp_path: Path) -> None:
    data = tiny_data()
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), max_epochs=3, limit_train_batches=1)
    with pytest.warns(UserWarning, match=r"max_epochs=3\) ends the run in stage 2 of 3; .* has 5"):
        trainer.fit(tiny_model(), data)
    assert trainer.current_epoch == 3
    assert len(data.classes) == 4


def test_limit_train_batches_counts_in_every_stage(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), limit_train_batches=3)
    trainer.fit(tiny_model(), tiny_data())
    assert trainer.global_step == 3 * 5
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), limit_train_batches=0.5)
    trainer.fit(tiny_model(), tiny_data())
    assert trainer.global_step == 2 * 2 + 4 + 7 * 2


def test_overfit_batches_sees_the_same_batches_in_every_epoch_of_a_stage(tmp_path: Path) -> None:
    labels = Labels()
    trainer = tiny_trainer(tmp_path, tiny_cold_start(epochs_per_stage=2), labels, overfit_batches=3)
    trainer.fit(tiny_model(), tiny_data())
    for epoch in (0, 2, 4):
        assert len(labels.seen[epoch]) == 3
        assert labels.seen[epoch] == labels.seen[epoch + 1]


def test_fast_dev_run_tries_a_selection_too_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cold_start, data = tiny_cold_start(), tiny_data()
    chosen: list[int] = []
    original = cold_start.choose

    def choose(trainer: pl.Trainer, module: Any, stage: int) -> Any:
        chosen.append(stage)
        return original(trainer, module, stage)

    cold_start.choose = choose  # type: ignore[method-assign]
    trainer = tiny_trainer(tmp_path, cold_start, fast_dev_run=2)
    trainer.fit(tiny_model(), data)
    assert chosen == [0, 1]
    assert trainer.global_step == 2
    assert len(data.classes) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("interval", [1, 3, 0.25])
def test_val_check_interval(interval: float, tmp_path: Path) -> None:
    checked: list[int] = []

    class Count(pl.Callback):
        def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
            checked.append(trainer.current_epoch)

    trainer = tiny_trainer(tmp_path, tiny_cold_start(), Count(), val_check_interval=interval)
    trainer.fit(tiny_model(), tiny_data())
    batches = [4, 4, 8, 14, 14]
    every = [interval if interval >= 1 else max(1, int(b * interval)) for b in batches]
    expected = [b // int(e) for b, e in zip(batches, every, strict=True)]
    assert [checked.count(epoch) for epoch in range(5)] == expected


def test_a_val_check_interval_beyond_a_stage_is_refused(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), val_check_interval=6)
    with pytest.raises(
        ValueError, match=r"must be less than or equal to .* training batches \(4\)"
    ):
        trainer.fit(tiny_model(), tiny_data())
    trainer = tiny_trainer(
        tmp_path, tiny_cold_start(), val_check_interval=6, check_val_every_n_epoch=None
    )
    trainer.fit(tiny_model(), tiny_data())
    assert trainer.global_step == 44


def test_validation_sees_the_classes_of_its_stage_however_rarely_it_runs(tmp_path: Path) -> None:
    seen: dict[int, set[int]] = {}

    class See(pl.Callback):
        def on_validation_batch_start(
            self, trainer: pl.Trainer, pl_module: Any, batch: Any, *rest: Any
        ) -> None:
            seen.setdefault(trainer.current_epoch, set()).update(batch[1].tolist())

    trainer = tiny_trainer(
        tmp_path,
        tiny_cold_start(epochs_per_stage=2),
        See(),
        check_val_every_n_epoch=3,
        num_sanity_val_steps=1,
        limit_train_batches=1,
    )
    trainer.fit(tiny_model(), tiny_data())
    assert seen == {0: {0, 1}, 2: {0, 1, 2, 3}, 5: set(range(7))}  # epoch 0: the sanity check


def test_gradients_accumulate_within_an_epoch(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), accumulate_grad_batches=3)
    trainer.fit(tiny_model(), tiny_data())
    assert trainer.global_step == 2 * 2 + 3 + 2 * 5  # the last batches of an epoch make a step too


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_precision(precision: Any, tmp_path: Path) -> None:
    data = tiny_data()
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), precision=precision, limit_train_batches=2)
    trainer.fit(tiny_model(), data)
    assert len(data.classes) == 7


# The tuner


def test_the_learning_rate_finder_stays_in_the_first_stage(tmp_path: Path) -> None:
    model, data, labels = tiny_model(), tiny_data(), Labels()
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), labels)
    found = Tuner(trainer).lr_find(model, data, num_training=18)  # over 4 epochs
    assert found is not None
    assert len(found.results["loss"]) == 18
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), labels)
    trainer.fit(model, data)
    assert len(data.classes) == 7
    assert max(label for batch in labels.seen[0] for label in batch) == 1


def test_the_learning_rate_finder_as_a_callback(tmp_path: Path) -> None:
    data = tiny_data()
    finder = LearningRateFinder(num_training_steps=12)
    trainer = tiny_trainer(tmp_path, finder, tiny_cold_start())
    trainer.fit(tiny_model(), data)
    assert trainer.current_epoch == 5
    assert len(data.classes) == 7


def test_the_batch_size_finder(tmp_path: Path) -> None:
    model, data = tiny_model(), tiny_data()
    trainer = tiny_trainer(tmp_path, tiny_cold_start())
    size = Tuner(trainer).scale_batch_size(
        model, datamodule=data, init_val=2, max_trials=3, steps_per_trial=2
    )
    assert size == data.batch_size == 8
    trainer = tiny_trainer(tmp_path, tiny_cold_start())
    trainer.fit(model, data)
    assert trainer.global_step == 2 * 2 + 4 + 7 * 2


# Misuse


def test_no_data_module_is_refused(tmp_path: Path) -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(4, 1, 8, 8)))
    trainer = tiny_trainer(tmp_path, tiny_cold_start())
    with pytest.raises(InputError, match="find a BaseClassDataModule but the Trainer got loaders"):
        trainer.fit(tiny_model(capacity=3), loader)


def test_a_second_selection_callback_is_refused(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), SelectBaseClasses(3))
    with pytest.raises(InputError, match="has 2: ColdStartSelection, SelectBaseClasses; keep one"):
        trainer.fit(tiny_model(), tiny_data())


def test_a_schedule_longer_than_the_pool_is_refused(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, tiny_cold_start(schedule=(6, 13), epochs_per_stage=1))
    with pytest.raises(InputError, match=r"at least 13 classes.* but got 12; shorten the schedule"):
        trainer.fit(tiny_model(), tiny_data())


def test_too_many_classes_to_start_with_are_refused(tmp_path: Path) -> None:
    start = ["base 1", "base 2", "base 3"]
    trainer = tiny_trainer(tmp_path, tiny_cold_start(selected=start))
    with pytest.raises(InputError, match=r"at most 2 classes to start with, .* but got 3"):
        trainer.fit(tiny_model(), tiny_data())


def test_a_module_without_features_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, tiny_cold_start(features="encoder"))
    with pytest.raises(InputError, match="Expected BaseClassifier to have `encoder`"):
        trainer.fit(tiny_model(), tiny_data())


def test_a_head_that_is_too_small_is_refused(tmp_path: Path) -> None:
    model = tiny_model(capacity=3)
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), limit_train_batches=1)
    with pytest.raises(InputError, match="from 1 to 3 active classes, the capacity of the head"):
        trainer.fit(model, tiny_data())


def test_averaging_weights_over_stages_is_refused(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, StochasticWeightAveraging(0.1), tiny_cold_start())
    with pytest.raises(InputError, match="no StochasticWeightAveraging beside ColdStartSelection"):
        trainer.fit(tiny_model(), tiny_data())


def test_strategies_that_shard_weights_are_refused() -> None:
    class Sharded:
        strategy = FSDPStrategy.__new__(FSDPStrategy)
        callbacks: tuple[pl.Callback, ...] = ()

    with pytest.raises(InputError, match=r'got FSDPStrategy, .* use strategy="ddp"'):
        compatibility.require_stages_possible(Sharded(), "ColdStartSelection")  # type: ignore[arg-type]


def test_a_class_too_small_for_validation_is_named(tmp_path: Path) -> None:
    data = BaseClassDataModule(tiny_pool(), val_per_class=10)
    trainer = tiny_trainer(tmp_path, tiny_cold_start())
    with pytest.raises(InputError, match="more than `val_per_class` = 10 images in every class"):
        trainer.fit(tiny_model(), data)
