"""Train a network of an experiment, quietly, and judge it on the novel classes."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn

from fsl_basesel.data import NovelTask
from fsl_basesel.errors import InputError
from lightning_modules import heads as known_heads
from lightning_modules.classifier import BaseClassifier
from lightning_modules.data import BaseClassDataModule
from lightning_modules.features import image_features
from lightning_modules.settings import build


def data_module(
    data: dict[str, Any], seed: int, training: dict[str, Any], part: str
) -> BaseClassDataModule:
    """The data module of a trial, `part` "candidates" or "pretraining", for a training."""
    arguments = data["init_args"] | {
        "seed": seed,
        "batch_size": training["batch_size"],
        "min_epoch_images": min_epoch_images(training),
        "part": part,
    }
    made = build(data | {"init_args": arguments})
    if not isinstance(made, BaseClassDataModule):
        raise InputError(
            f"Expected {data['class_path']} to be a BaseClassDataModule but got {type(made)}."
        )
    return made


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

    `model` has arguments of `BaseClassifier`, `training["trainer"]` of the Trainer; `epochs` is
    None where a callback says.
    """
    # Lightning's remarks on each of many runs stay off the screen.
    warnings.filterwarnings("ignore", module=r"pytorch_lightning\..*")
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
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


def class_accuracies(
    module: nn.Module,
    novel: NovelTask,
    heads: Sequence[str],
    shots: Sequence[int],
    supports: int,
) -> dict[str, dict[int, np.ndarray]]:
    """How often each novel class is told right, `[supports, |N|]` by head and number of shots.

    The support images of `novel` are cut into `supports` sets, each of which is learnt from alone;
    the test images are the same for all. The first set is the one that selections have seen.
    """
    width = max(shots)
    if novel.shots != supports * width:
        raise InputError(
            f"Expected {supports * width} support images of each novel class but got {novel.shots}."
        )
    support, test = novel.support_set(), novel.test_set()
    found = image_features(novel.all_images(), module)
    learn = found[: len(support)].reshape(len(novel), supports, width, -1).transpose(0, 1)
    query = found[len(support) :].expand(supports, -1, -1)
    answers = torch.from_numpy(test.labels).to(found.device)
    counts = np.bincount(test.labels, minlength=len(novel))
    results: dict[str, dict[int, np.ndarray]] = {}
    for name in heads:
        if name not in known_heads.__all__:
            known = ", ".join(known_heads.__all__)
            raise InputError(f"Expected heads of {known} but got {name!r}.")
        head = getattr(known_heads, name)().to(found.device)
        results[name] = {}
        for count in shots:
            labels = torch.arange(len(novel), device=found.device).repeat_interleave(count)
            with torch.no_grad():
                scores = head.scores(learn[:, :, :count].flatten(1, 2), labels, query, len(novel))
            right = (scores.argmax(-1) == answers).cpu().numpy()
            correct = [np.bincount(test.labels, row, minlength=len(novel)) for row in right]
            results[name][count] = np.stack(correct) / counts
    return results
