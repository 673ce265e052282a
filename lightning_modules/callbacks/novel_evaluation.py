"""`NovelEvaluation`: few-shot accuracy on the novel classes while base classes are trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn
from rich.console import Console

from fsl_basesel import checks
from fsl_basesel.data import NovelTask
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import csv_text, write_text
from lightning_modules.callbacks.base import SelectionCallback
from lightning_modules.callbacks.early_stopping import callbacks_of
from lightning_modules.callbacks.schedule import next_stage_is_due
from lightning_modules.evaluation import NovelAccuracy, evaluate_novel
from lightning_modules.heads import Head, NearestCentroid, SoftmaxRegression

Row = dict[str, Any]
"""One head at one moment, as plain types: a line of the CSV file."""


class Moment(NamedTuple):
    """The moment of an evaluation: how far the run was."""

    stage: int
    epoch: int
    step: int
    base_classes: int


class NovelEvaluation(pl.Callback):
    """Evaluates the features of the model on episodes of the novel task.

    The same episodes in every run with the same seed, so methods can be compared episode by
    episode. Means and 95 % intervals go to the loggers as `novel/<head>_5way_1shot` (and
    `..._ci95`), where `ModelCheckpoint(monitor=...)` finds them too, and with the accuracy of each
    episode to `novel_5way_1shot.csv` in the run's folder. A resumed run has the same file.

    Args:
        heads: few-shot classifiers on the model's features; None is the paper's two, or the model
            itself where that is a head.
        ways: classes of an episode, drawn at random; None is the paper's protocol, in which every
            episode has all novel classes with the task's own support and test sets.
        shots: images of each class to learn from.
        queries: images of each class to classify; None is 15 in episodes drawn at random, and all
            test images of the task in the paper's protocol.
        episodes: how many; None is 600 drawn at random and 10 in the paper's protocol.
        every: "stage": at the end of each stage of a selection callback, and of the run. "epoch":
            after every epoch. "end": once, when training ends.
        novel: the novel task; None is that of the data module.
        seed: seed of random episodes.
        features: attribute of the model that turns images into features.
        batch_size: images that go through the model together.
        dirpath: where the CSV file is written; None is the run's log folder.
        verbose: print the accuracies at the end of stages and of the run.

    Example:
        >>> NovelEvaluation(ways=5, shots=1, every="stage").title
        '5way_1shot'
        >>> NovelEvaluation(shots=20).episodes  # all ways: the paper's protocol
        10
    """

    def __init__(
        self,
        heads: Sequence[Head] | None = None,
        ways: int | None = None,
        shots: int = 5,
        queries: int | None = None,
        episodes: int | None = None,
        every: str = "stage",
        *,
        novel: NovelTask | None = None,
        seed: int = 0,
        features: str = "features",
        batch_size: int = 256,
        dirpath: str | Path | None = None,
        verbose: bool = True,
    ) -> None:
        counts = {"ways": ways, "shots": shots, "queries": queries, "episodes": episodes}
        for name, value in counts.items():
            if value is not None:
                checks.integer(value, name, 1)
        self.heads = None if heads is None else list(heads)
        self.ways, self.shots, self.queries = ways, shots, queries
        self.episodes = (10 if ways is None else 600) if episodes is None else episodes
        self.every = checks.one_of(every, ("stage", "epoch", "end"), "every")
        self.novel, self.seed = novel, seed
        self.features, self.batch_size = features, batch_size
        self.dirpath = None if dirpath is None else Path(dirpath)
        self.verbose = verbose
        self.rows: list[Row] = []
        """What was measured so far, one row for each head and moment."""
        self.results: list[NovelAccuracy] = []
        """The latest accuracies, one for each head."""
        self._due: Moment | None = None
        self._selection: SelectionCallback | None = None

    @property
    def title(self) -> str:
        """The protocol in a word, for names of metrics and files."""
        return f"{'all' if self.ways is None else self.ways}way_{self.shots}shot"

    @property
    def state_key(self) -> str:
        """Different for callbacks with different protocols."""
        return self._generate_state_key(
            protocol=self.title,
            queries=self.queries,
            episodes=self.episodes,
            seed=self.seed,
            heads=None if self.heads is None else [head.name for head in self.heads],
        )

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the novel task; come before selection callbacks, which may replace the weights."""
        if stage != TrainerFn.FITTING:
            return
        self._task(trainer)
        self.rows, self.results, self._due = [], [], None
        others = [one for one in callbacks_of(trainer) if one is not self]
        mine = self.title, self.dirpath
        for other in others:
            if isinstance(other, NovelEvaluation) and (other.title, other.dirpath) == mine:
                raise InputError(
                    f"Expected one NovelEvaluation for {self.title} in a folder, as both write "
                    f"novel_{self.title}.csv, but got two; give one of them a `dirpath`, or put "
                    "their heads together."
                )
        self._selection = next((one for one in others if isinstance(one, SelectionCallback)), None)
        if self._selection is not None:
            others.insert(others.index(self._selection), self)
            # A new list: Lightning is going through the old one.
            trainer.callbacks = others  # type: ignore[attr-defined]

    def _task(self, trainer: pl.Trainer) -> NovelTask:
        novel = self.novel or getattr(getattr(trainer, "datamodule", None), "novel", None)
        if not isinstance(novel, NovelTask):
            raise InputError(
                "Expected a novel task to evaluate on but neither NovelEvaluation nor the data "
                "module has one; pass novel=... to one of them."
            )
        return novel

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate if this is the moment, before checkpoints are written."""
        self._due = self._moment(trainer)
        if self.every == "epoch" or self._is_last_epoch(trainer):
            for name, value in self._evaluate(trainer, pl_module).items():
                pl_module.log(name, value, on_step=False, on_epoch=True, sync_dist=True)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate a stage that turned out to be over only after its last epoch."""
        if self.every == "stage" and self._due is not None:
            if self._moment(trainer).stage > self._due.stage:
                self._log_now(trainer, pl_module)
            self._due = None

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate a run that turned out to be over only after its last epoch."""
        if self._due is not None:
            self._log_now(trainer, pl_module)

    def _moment(self, trainer: pl.Trainer) -> Moment:
        state = None if self._selection is None else self._selection.stage_state
        stage = 0 if state is None else state.stage
        classes = len(getattr(getattr(trainer, "datamodule", None), "classes", ()))
        return Moment(stage, trainer.current_epoch, trainer.global_step, classes)

    def _is_last_epoch(self, trainer: pl.Trainer) -> bool:
        """Whether this epoch ends the run, or a stage to evaluate, as far as is known by now."""
        after, limit = trainer.current_epoch + 1, trainer.max_epochs
        enough = limit is not None and 0 <= limit <= after
        if enough or 0 <= trainer.max_steps <= trainer.global_step or trainer.should_stop:
            return True
        if self.every != "stage" or self._selection is None or self._selection.stage_state is None:
            return False
        return next_stage_is_due(self._selection.schedule, self._selection.stage_state, after)

    def _log_now(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        numbers = self._evaluate(trainer, pl_module)
        for logger in trainer.loggers:
            logger.log_metrics(numbers, step=trainer.global_step)

    def _evaluate(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, float]:
        """Measure, note and write; what is to be logged."""
        moment, self._due = self._due, None
        assert moment is not None
        trial = bool(trainer.fast_dev_run)  # type: ignore[attr-defined]
        workers = getattr(getattr(trainer, "datamodule", None), "workers_once", {})
        heads = self.heads
        if heads is None:
            papers: list[Head] = [NearestCentroid(), SoftmaxRegression()]
            heads = [pl_module] if isinstance(pl_module, Head) else papers
        self.results = evaluate_novel(
            pl_module,
            self._task(trainer),
            heads,
            self.ways,
            self.shots,
            self.queries,
            min(2, self.episodes) if trial else self.episodes,
            self.seed,
            features=self.features,
            batch_size=self.batch_size,
            trainer=trainer,
            **workers,
        )
        self.rows += [row_of(moment, result, self.seed) for result in self.results]
        folder = self.dirpath or Path(trainer.log_dir or trainer.default_root_dir)
        if trainer.is_global_zero:
            if not trial:
                write_text(folder / f"novel_{self.title}.csv", csv_text(self.rows))
            if self.verbose and self.every != "epoch":
                for result in self.results:
                    Console().print(f"Novel classes after stage {moment.stage + 1}: {result}")
        numbers = {}
        for result in self.results:
            numbers[f"novel/{result.head}_{self.title}"] = result.mean
            numbers[f"novel/{result.head}_{self.title}_ci95"] = result.interval
        return numbers

    def state_dict(self) -> dict[str, Any]:
        """What was measured, and whether something still has to be."""
        return {"rows": self.rows, "due": None if self._due is None else list(self._due)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what was measured before the checkpoint."""
        self.rows = list(state_dict["rows"])
        self._due = None if state_dict["due"] is None else Moment(*state_dict["due"])


def row_of(moment: Moment, result: NovelAccuracy, seed: int) -> Row:
    """A line of the CSV file."""
    return moment._asdict() | {
        "stage": moment.stage + 1,
        "head": result.head,
        "ways": result.ways,
        "shots": result.shots,
        "episodes": len(result.accuracies),
        "seed": seed,
        "accuracy": result.mean,
        "ci95": result.interval,
        "episode_accuracies": " ".join(f"{value:.6f}" for value in result.accuracies),
    }
