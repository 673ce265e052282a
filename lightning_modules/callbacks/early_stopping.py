"""`StageEarlyStopping`: Lightning's early stopping, which ends a stage instead of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.callbacks.early_stopping import EarlyStoppingReason

from lightning_modules.both import kinds


def callbacks_of(trainer: pl.Trainer, *names: str) -> list[Any]:
    """The Trainer's callbacks, which it declares nowhere; only Lightning's of these `names`."""
    found: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    return [one for one in found if not names or isinstance(one, kinds("callbacks", *names))]


class StageEarlyStopping(EarlyStopping):
    """Ends the stage of a `ColdStartSelection` when a metric stops improving.

    The next stage begins with the next epoch, with the best score and the patience set back. In the
    last stage, and without `ColdStartSelection`, it is plain `EarlyStopping`. All its arguments are
    those of `EarlyStopping`.

    Example:
        >>> StageEarlyStopping("val_loss", patience=2).patience
        2
    """

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the metric, if it is to be checked here."""
        with self._ending_the_stage(trainer):
            super().on_train_epoch_end(trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the metric, if it is to be checked here."""
        with self._ending_the_stage(trainer):
            super().on_validation_end(trainer, pl_module)

    @contextmanager
    def _ending_the_stage(self, trainer: pl.Trainer) -> Iterator[None]:
        stopping_before = trainer.should_stop
        yield
        if trainer.should_stop and not stopping_before:
            ends = (getattr(one, "end_stage", None) for one in callbacks_of(trainer))
            if any(end is not None and end(trainer) for end in ends):
                trainer.should_stop = False

    def start_stage(self) -> None:
        """Forget the scores of the stage before."""
        worst = torch.tensor(torch.inf)
        self.best_score = worst if self.monitor_op == torch.lt else -worst
        self.wait_count = self.stopped_epoch = 0
        self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
        self.stopping_reason_message = None
