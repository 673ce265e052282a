"""`fsl-basesel fit`: a training run on folders or from a YAML file, resumed by the same command."""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from jsonargparse import ArgumentError
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger

from fsl_basesel import checks
from fsl_basesel.cli.fit import flags, parse
from fsl_basesel.data import LabelsPending
from fsl_basesel.errors import InputError
from fsl_basesel.report.record import save_pictures
from lightning_modules import fitting, found
from lightning_modules.both import PACKAGES
from lightning_modules.callbacks.base import SelectionCallback
from lightning_modules.callbacks.novel_evaluation import NovelEvaluation
from lightning_modules.data import BaseClassDataModule
from lightning_modules.settings import Settings, merged, one_line, read

REMARKS = (
    ".*LeafSpec.*",
    "`max_epochs` was not set",
    "Checkpoint directory .* exists and is not empty",
    "\nBy default only one JsonargparseDeprecationWarning",
)
"""Warnings of Lightning about what is in order here: stages say when a run ends, and so on."""


class FitCLI(LightningCLI):
    """Lightning's command line with one folder per run, in which everything of it is kept.

    `run/checkpoints` has the checkpoints, `run/selection-stage-i.json` the selections, `run/*.csv`
    the accuracies on the novel task and `run/metrics/version_i` the logged figures and the settings
    of the i-th start.
    """

    def __init__(self, args: Sequence[str] | None = None) -> None:
        super().__init__(
            pl.LightningModule,
            BaseClassDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            seed_everything_default=0,
            parser_kwargs={
                "prog": "fsl-basesel fit",
                "exit_on_error": False,
                "allow_abbrev": False,
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
        parser.add_argument("--run", type=str, default="runs/fit", help="folder of the run")
        parser.add_argument("--ckpt_path", type=str, default="last", help="see --ckpt-path")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse; an error is one line, not the whole list of options before it."""
        try:
            self.config = parser.parse_args(args)
        except ArgumentError as error:
            raise InputError(one_line(error)) from error

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.config["run"])

    @property
    def checkpoints(self) -> Path:
        """Where the run's checkpoints are."""
        return self.folder / "checkpoints"

    @property
    def selection(self) -> SelectionCallback | None:
        """The callback that chooses the classes."""
        callbacks: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]
        return next((one for one in callbacks if isinstance(one, SelectionCallback)), None)

    @property
    def report_folder(self) -> Path:
        """Where the selections are, and so the report: the run's folder unless set otherwise."""
        own = None if self.selection is None else self.selection.dirpath
        return Path(own or self.folder)

    def instantiate_classes(self) -> None:
        """Build everything; what a class says about its arguments is the error that is shown."""
        try:
            super().instantiate_classes()
        except ValueError as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, InputError):
                cause = cause.__cause__ or cause.__context__
            raise cause or error from error

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """A Trainer that logs, saves and selects into the run's folder unless set otherwise."""
        settings = self.config_init["trainer"]
        defaults: dict[str, Any] = {}
        if settings["default_root_dir"] is None:
            defaults["default_root_dir"] = str(self.folder)
        if settings["logger"] is None and not settings["fast_dev_run"]:
            defaults["logger"] = CSVLogger(str(self.folder), name="metrics")
        given = settings["callbacks"] or []
        callbacks = list(given) if isinstance(given, list | tuple) else [given]
        saving = [one for one in callbacks if isinstance(one, Checkpoint)]
        if not saving and settings["enable_checkpointing"] is not False:
            # One file at a time; the one before it is kept as previous.ckpt.
            saver = ModelCheckpoint(self.checkpoints, filename="last", enable_version_counter=False)
            callbacks.append(saver)
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
        try:
            self.trainer.fit(self.model, self.datamodule, ckpt_path=resume, weights_only=True)
        except InputError as error:
            if "it is of another one" not in str(error):
                raise
            raise InputError(
                f"{error} To keep both, name another folder with --run; --ckpt-path none starts "
                f"anew in {self.folder}."
            ) from error


def fit_command(asked: argparse.Namespace, words: Sequence[str]) -> FitCLI:
    """Run the command with its own flags, see `fsl_basesel.cli.fit`, and options of Lightning."""
    if asked.help_all:
        flags().print_help()
        print("\nOptions of Lightning:\n")
        FitCLI(["--help"])
    for remark in REMARKS:
        warnings.filterwarnings("ignore", message=remark)
    for package in PACKAGES:
        logging.getLogger(f"{package}.utilities.rank_zero").setLevel(logging.WARNING)
    settings = settings_of(asked)
    command = build(settings, words)
    control, frozen = asked.control is not None, asked.pool is not None and asked.train == "frozen"
    if control:
        fitting.require_control_possible(command, () if frozen else words)
    if frozen:
        fitting.frozen_run(command, asked.backbone, control)
        return command
    fitting.announce(command, asked.began, control)
    try:
        command.fit()
    except LabelsPending:
        if command.trainer.is_global_zero:  # the page shows what to label
            folder = command.report_folder
            save_pictures(folder, command.datamodule.pool, command.datamodule.novel)
            fitting.write_report(folder)
        raise
    if asked.pool is not None or control:
        fitting.finish(command, settings, words, control)
    return command


def cli_main(args: Sequence[str]) -> FitCLI:
    """Run the command with these words, as `fsl-basesel fit` does."""
    return fit_command(*parse(list(args)))


def settings_of(asked: argparse.Namespace) -> Settings:
    """Settings of a run: flags over YAML files over what is found out."""
    if asked.train is not None and asked.backbone is None:
        raise InputError(
            f"Expected --train {asked.train} with --backbone but got none; name a network, as in "
            "--backbone efficientnet-lite0, or leave --train out for the paper's cold start."
        )
    if asked.seed is not None:
        checks.integer(asked.seed, "--seed", 0, 2**32 - 1, "4294967295")
    settings: Settings = {"model": {"class_path": found.MODEL}}
    if asked.pool is not None:
        settings = found.settings_for(asked, gpu=torch.cuda.is_available())
    for path in asked.config or ():
        settings = merged(settings, read(path))
    found.put_flags(settings, asked)
    return settings


def build(settings: Settings, words: Sequence[str] = ()) -> FitCLI:
    """The command with everything built, ready to `fit`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.yaml"
        path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        return FitCLI(["--config", str(path), *words])
