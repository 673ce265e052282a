"""`fsl-basesel fit`: a training run described by a YAML file, resumed by the same command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from jsonargparse import ArgumentError
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger

from fsl_basesel.cli.fit import DESCRIPTION, FLAGS
from fsl_basesel.errors import InputError
from lightning_modules.callbacks.base import SelectionCallback
from lightning_modules.callbacks.novel_evaluation import NovelEvaluation
from lightning_modules.classifier import BaseClassifier
from lightning_modules.data import BaseClassDataModule


class FitCLI(LightningCLI):
    """Lightning's command line with one folder per run, in which everything of it is kept.

    `run/checkpoints` has the checkpoints, `run/selection-stage-i.json` the selections, `run/*.csv`
    the accuracies on the novel task and `run/metrics/version_i` the logged figures and the settings
    of the i-th start.
    """

    def __init__(self, args: Sequence[str] | None = None) -> None:
        super().__init__(
            BaseClassifier,
            BaseClassDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            seed_everything_default=0,
            parser_kwargs={
                "prog": "fsl-basesel fit",
                "description": DESCRIPTION,
                "exit_on_error": False,
            },
            args=None if args is None else list(args),
            run=False,
            # The optimizer of the command line is built once; a stage needs a new one. The model
            # takes functions that make optimizer and schedule instead.
            auto_configure_optimizers=False,
            # Its checkpoints would hold more than plain types.
            load_from_checkpoint_support=False,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The run's folder and the checkpoint to resume from."""
        for flag, (default, text) in FLAGS.items():
            parser.add_argument(flag, type=str, default=default, help=text)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse; an error is one line, not the whole list of options before it."""
        try:
            self.config = parser.parse_args(args)
        except ArgumentError as error:
            raise InputError(f"{error} (see fsl-basesel fit --help)") from error

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.config["run"])

    @property
    def checkpoints(self) -> Path:
        """Where the run's checkpoints are."""
        return self.folder / "checkpoints"

    def instantiate_classes(self) -> None:
        """Build everything; what a class says about its arguments is the error that is shown."""
        try:
            super().instantiate_classes()
        except ValueError as error:
            raise _input_error(error) or error from error

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """A Trainer that logs, saves and selects into the run's folder unless told otherwise."""
        settings = self.config_init["trainer"]
        defaults: dict[str, Any] = {}
        if settings["default_root_dir"] is None:
            defaults["default_root_dir"] = str(self.folder)
        if settings["logger"] is None and not settings["fast_dev_run"]:
            defaults["logger"] = CSVLogger(str(self.folder), name="metrics")
        callbacks = _as_list(settings["callbacks"])
        saving = [one for one in callbacks if isinstance(one, Checkpoint)]
        if not saving and settings["enable_checkpointing"] is not False:
            callbacks.append(ModelCheckpoint(self.checkpoints, save_last=True))
        for callback in callbacks:
            if isinstance(callback, SelectionCallback | NovelEvaluation):
                callback.dirpath = callback.dirpath or self.folder
            elif isinstance(callback, ModelCheckpoint):
                callback.dirpath = callback.dirpath or str(self.checkpoints)
        defaults["callbacks"] = callbacks
        return super().instantiate_trainer(**(defaults | kwargs))

    def fit(self) -> None:
        """Train, from the last checkpoint of the run if there is one."""
        asked = self.config["ckpt_path"]
        resume: str | None = asked
        if asked == "none" or (asked == "last" and not list(self.checkpoints.glob("last*.ckpt"))):
            resume = None
        self.trainer.fit(self.model, self.datamodule, ckpt_path=resume, weights_only=True)


def cli_main(args: Sequence[str] | None = None) -> FitCLI:
    """Run the command.

    Args:
        args: words of the command line; None takes those of the process.

    Returns:
        The finished command, with its `model`, `datamodule` and `trainer`.
    """
    command = FitCLI(args)
    command.fit()
    return command


def _input_error(error: BaseException | None) -> InputError | None:
    """The error of ours that led to this one, if there is one."""
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error


def _as_list(callbacks: Any) -> list[pl.Callback]:
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
