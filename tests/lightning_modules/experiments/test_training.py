"""How long networks train: as many images as asked for, and never fewer with more classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from hypothesis import given
from hypothesis import strategies as st

from lightning_modules.callbacks import ColdStartSelection
from lightning_modules.classifier import one_cycle
from lightning_modules.data import epoch_batches
from lightning_modules.experiments import plan
from lightning_modules.experiments.training import data_module, min_epoch_images, train
from tests.lightning_modules.experiments.small import small_yaml


def images_seen(classes: int, per_class: int, training: dict[str, Any]) -> int:
    """Training images that the batches of all epochs have together."""
    images, least = classes * per_class, min_epoch_images(training)
    return sum(
        len(batch)
        for epoch in range(training["epochs"])
        for batch in epoch_batches(images, training["batch_size"], 0, epoch, min_images=least)
    )


@given(
    per_class=st.integers(2, 12),
    batch_size=st.integers(2, 20),
    epochs=st.integers(1, 4),
    min_images=st.integers(0, 400),
)
def test_more_classes_never_see_fewer_images(
    per_class: int, batch_size: int, epochs: int, min_images: int
) -> None:
    training = {"epochs": epochs, "batch_size": batch_size, "min_images": min_images}
    seen = [images_seen(classes, per_class, training) for classes in range(1, 21)]
    for classes, images in enumerate(seen, 1):
        asked = max(min_images, epochs * classes * per_class)
        # An epoch rounds up to whole images and may leave out one that would be a batch alone.
        assert asked - epochs <= images < asked + epochs
    assert seen == sorted(seen)


def test_the_glyphs_see_as_many_images_as_their_comment_says() -> None:
    trial = plan.load("worth-glyphs").rows()[0].trial
    per_class = trial.data["init_args"]["per_class"]
    seen = {m: images_seen(m, per_class, trial.training) for m in (6, 20, 49, 50, 100, 400)}
    assert seen == {6: 12000, 20: 12000, 49: 12000, 50: 12000, 100: 24000, 400: 96000}


class Count(pl.Callback):
    """The images and the learning rates of each epoch of a real run."""

    def __init__(self) -> None:
        self.images: list[int] = []
        self.rates: list[list[float]] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.images.append(0)
        self.rates.append([])

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self.images[-1] += len(batch[1])
        self.rates[-1].append(trainer.optimizers[0].param_groups[0]["lr"])


def test_every_stage_of_a_cold_start_is_as_long_as_asked_in_one_cycle(tmp_path: Path) -> None:
    training = {"batch_size": 8, "epochs": 1, "min_images": 50, "trainer": {"accelerator": "cpu"}}
    trial = plan.load(small_yaml(tmp_path, training=training)).rows()[0].trial
    data = data_module(trial.data, trial.seed, training, "candidates")
    stages = ColdStartSelection((2, 3, 5), training["epochs"], dirpath=tmp_path, verbose=False)
    count = Count()
    train(data, trial.model, training, trial.seed, None, [stages, count])
    assert count.images == [50, 50, 70]  # 28, 42 and 70 images
    for rates in count.rates:
        expected = [0.1 * one_cycle(step / len(rates)) for step in range(len(rates))]
        assert rates == pytest.approx(expected)


def test_a_network_of_few_classes_trains_as_long_as_one_of_more(tmp_path: Path) -> None:
    training = {"batch_size": 8, "epochs": 2, "min_images": 90, "trainer": {"accelerator": "cpu"}}
    trial = plan.load(small_yaml(tmp_path, training=training)).rows()[0].trial
    found = []
    for m in (2, 3, 4):
        data, count = data_module(trial.data, 0, training, "candidates"), Count()
        data.add_classes(range(m))
        train(data, trial.model, training, 0, training["epochs"], [count])
        found.append(count.images)
        steps = [rate for rates in count.rates for rate in rates]
        assert steps == pytest.approx([0.1 * one_cycle(i / len(steps)) for i in range(len(steps))])
    assert found == [[45, 45], [45, 45], [56, 56]]
