"""From the features of a model to a selection, the same in every process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytorch_lightning as pl
from torch import nn

from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selecting import select
from fsl_basesel.selection import Selection
from fsl_basesel.selectors import Selector
from lightning_modules.centroids import image_centroids
from lightning_modules.datamodule import BaseClassDataModule

Result = TypeVar("Result")


def problem_of_features(
    data: BaseClassDataModule,
    module: nn.Module,
    features: str,
    trainer: pl.Trainer | None,
    m: int,
    k: int,
    lam: float = 0.0,
    cost: Sequence[float] | None = None,
    mu: float = 0.0,
) -> SelectionProblem:
    """Which `m` candidates to add to the chosen classes, as the features of `module` see it.

    Centroids are those of the candidates' previews and of the novel classes' support images;
    without a novel task it is General Selection.
    """

    def centroids(images: object, classes: int, title: str) -> object:
        return image_centroids(
            images,  # type: ignore[arg-type]
            classes,
            module,
            features,
            batch_size=data.eval_batch_size,
            trainer=trainer,
            title=title,
            **(data.workers | {"persistent_workers": False}),
        )

    pool, novel = data.pool, data.novel
    candidates = centroids(pool.preview_set(), len(pool), "Candidates")
    target = None
    if novel is not None:
        target = centroids(novel.support_set(), len(novel), "Novel classes")
    return SelectionProblem.from_centroids(
        candidates,  # type: ignore[arg-type]
        target,  # type: ignore[arg-type]
        m,
        k,
        lam,
        data.class_numbers,
        cost,
        mu,
        names=pool.names,
        novel_names=None if novel is None else novel.names,
    )


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
