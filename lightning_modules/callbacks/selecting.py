"""From the features of a model to a selection, the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytorch_lightning as pl
from torch import nn

from fsl_basesel.data import ImageSet, NovelTask
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selecting import select
from fsl_basesel.selection import Selection
from fsl_basesel.selectors import Selector
from lightning_modules.centroids import image_centroids
from lightning_modules.datamodule import BaseClassDataModule

Result = TypeVar("Result")


def centroids_of(
    data: BaseClassDataModule,
    novel: NovelTask | None,
    module: nn.Module,
    features: str,
    trainer: pl.Trainer | None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Centroids of the candidates' previews and of the novel classes' support images.

    Returns:
        `[|B|, d]`, and `[|N|, d]` or None without a novel task.
    """
    settings: dict[str, Any] = data.workers | {
        "persistent_workers": False,
        "batch_size": data.eval_batch_size,
        "trainer": trainer,
    }

    def centroids(images: ImageSet, classes: int, title: str) -> np.ndarray:
        return image_centroids(images, classes, module, features, title=title, **settings)

    candidates = centroids(data.pool.preview_set(), len(data.pool), "Candidates")
    if novel is None:
        return candidates, None
    return candidates, centroids(novel.support_set(), len(novel), "Novel classes")


def select_once(
    trainer: pl.Trainer, problem: SelectionProblem, selector: Selector, seed: int, certify: bool
) -> Selection:
    """Select in process 0 and tell the others."""
    return in_first_process(trainer, lambda: select(problem, selector, seed, certify))


def in_first_process(trainer: pl.Trainer, work: Callable[[], Result]) -> Result:
    """What `work` returns in process 0, in all processes; an error is one in all of them."""
    outcome: tuple[Result | None, str | None] = (None, None)
    if trainer.is_global_zero:
        try:
            outcome = (work(), None)
        except Exception as error:
            if trainer.world_size == 1:
                raise
            outcome = (None, str(error))
    result, fault = trainer.strategy.broadcast(outcome)
    if fault is not None:
        raise InputError(fault)
    return result  # type: ignore[return-value]
