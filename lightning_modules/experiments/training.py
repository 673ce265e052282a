"""Train a network of an experiment: quietly, and not too short where it has few classes."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl

from lightning_modules.classifier import BaseClassifier
from lightning_modules.data import BaseClassDataModule


def min_epoch_images(training: dict[str, Any]) -> int:
    """Images of an epoch at least, for all epochs of a training to have its `min_images`.

    Epochs are made longer and not more numerous, since whole ones overshoot: three passes over 20
    classes are more images than the one pass over 50 that is enough for these. So a network sees
    max(`min_images`, epochs x images of its classes) images, which never falls with more classes.

    Example:
        >>> min_epoch_images({"epochs": 1, "min_images": 12000}), min_epoch_images({"epochs": 12})
        (12000, 0)
    """
    return math.ceil(training.get("min_images", 0) / training["epochs"])


def train(
    data: BaseClassDataModule,
    model: dict[str, Any],
    training: dict[str, Any],
    seed: int,
    epochs: int | None,
    callbacks: Sequence[pl.Callback] = (),
) -> BaseClassifier:
    """A network trained on the classes of `data`, or on those its callbacks choose.

    Args:
        data: images.
        model: arguments of `BaseClassifier`.
        training: its `trainer`, if any, has arguments of the Trainer.
        seed: seed of the weights.
        epochs: how many; None where a callback says.
        callbacks: of the Trainer.
    """
    quiet()
    module = BaseClassifier(**model, seed=seed)
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **training.get("trainer", {}),
    )
    trainer.fit(module, data)
    return module.eval().to(trainer.strategy.root_device)  # Lightning takes it back to the CPU


def quiet() -> None:
    """Keep Lightning's remarks on each of many runs off the screen."""
    warnings.filterwarnings("ignore", module=r"pytorch_lightning\..*")
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
