"""What a selection callback requires of the Trainer, checked before training starts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytorch_lightning as pl

from fsl_basesel.data import ClassPool
from fsl_basesel.errors import InputError
from lightning_modules.both import kinds
from lightning_modules.callbacks.early_stopping import StageEarlyStopping, callbacks_of
from lightning_modules.callbacks.schedule import Schedule
from lightning_modules.data import BaseClassDataModule


def require_data_module(trainer: pl.Trainer, callback: str) -> BaseClassDataModule:
    """The run's data module, which must be a `BaseClassDataModule`."""
    data = getattr(trainer, "datamodule", None)
    if not isinstance(data, BaseClassDataModule):
        raise InputError(
            f"Expected {callback} to find a BaseClassDataModule but the Trainer got "
            f"{'loaders' if data is None else type(data).__name__}; call "
            "trainer.fit(model, BaseClassDataModule(pool, novel))."
        )
    return data


def require_alone(trainer: pl.Trainer, kind: type[pl.Callback]) -> None:
    """Refuse a second selection callback: two of them would give the same labels away."""
    found = [type(other).__name__ for other in callbacks_of(trainer) if isinstance(other, kind)]
    if len(found) > 1:
        raise InputError(
            f"Expected one selection callback but the Trainer has {len(found)}: "
            f"{', '.join(found)}; keep one."
        )


def require_stages_possible(trainer: pl.Trainer, callback: str) -> None:
    """Refuse what cannot work when the classes, and with them the model, change in mid-run."""
    strategy = trainer.strategy
    sharded = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")
    if isinstance(strategy, kinds("strategies", *sharded)):
        raise InputError(
            f"Expected {callback} with a strategy that keeps whole weights in every process but "
            f"got {type(strategy).__name__}, which shards them, so that no stage could begin with "
            'a new model; use strategy="ddp".'
        )
    for stopping in callbacks_of(trainer, "EarlyStopping"):
        if not isinstance(stopping, StageEarlyStopping):
            raise InputError(
                f"Expected no EarlyStopping(monitor={stopping.monitor!r}) beside {callback}, since "
                "it would end the whole run in an early stage; use StageEarlyStopping with the "
                "same arguments, which ends the stage."
            )
    for other in callbacks_of(trainer, "StochasticWeightAveraging", "WeightAveraging"):
        raise InputError(
            f"Expected no {type(other).__name__} beside {callback}, since it would average models "
            "of different stages; train the last stage in a run of its own with "
            "SelectBaseClasses(selected=...)."
        )


def warn_of_empty_checkpoints(trainer: pl.Trainer) -> None:
    """Say that a ModelCheckpoint which looks as if it kept the last state keeps nothing."""
    for saver in callbacks_of(trainer, "ModelCheckpoint"):
        if saver.save_top_k == 0 and saver.save_last:
            warnings.warn(
                "ModelCheckpoint(save_top_k=0, save_last=True) writes no file, so this run cannot "
                "be resumed; use save_top_k=1.",
                stacklevel=2,
            )


def require_classes(
    schedule: Schedule, selected: Sequence[str], pool: ClassPool, callback: str
) -> None:
    """Refuse a schedule that the pool cannot fill, and classes to start with that it has not."""
    if schedule.sizes[-1] > len(pool):
        raise InputError(
            f"Expected a pool of at least {schedule.sizes[-1]} classes, which {callback} is to "
            f"reach, but got {len(pool)}; shorten the schedule or enlarge the pool."
        )
    pool.source.positions(selected)
    if len(selected) > schedule.sizes[0]:
        raise InputError(
            f"Expected at most {schedule.sizes[0]} classes to start with, the size of the first "
            f"stage, but got {len(selected)}; begin the schedule with a larger stage."
        )


def builds_itself_later(pl_module: pl.LightningModule) -> bool:
    """Whether the model makes its layers in `configure_model`, after callbacks are set up."""
    plain = [kind.configure_model for kind in kinds("", "LightningModule")]  # type: ignore[attr-defined]
    return type(pl_module).configure_model not in plain


def warn_of_early_end(trainer: pl.Trainer, schedule: Schedule, planned: int | None) -> None:
    """Say that the Trainer will stop before the schedule is through."""
    limit = trainer.fit_loop.max_epochs
    if planned is None or limit is None or limit >= planned or trainer.fast_dev_run:  # type: ignore[attr-defined]
        return
    stage = sum(sum(schedule.epochs[: s + 1]) < limit for s in range(len(schedule))) + 1
    warnings.warn(
        f"Trainer(max_epochs={limit}) ends the run in stage {stage} of {len(schedule)}; the "
        f"schedule has {planned} epochs. Raise max_epochs, or leave it out.",
        stacklevel=2,
    )
