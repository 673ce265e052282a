"""What all selection callbacks share: when classes are chosen, and how a run is resumed exactly.

Classes are chosen when Lightning asks the data module for the loader of an epoch. That is the one
moment between two epochs at which neither a batch nor a checkpoint is under way, and the last one
at which the number of batches may still change. So a checkpoint never falls between a choice and
the training on it: it has the classes its weights were trained on, and a run resumed from it
chooses again, from the same weights, what it chose before.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.trainer.states import TrainerFn
from rich.console import Console

from fsl_basesel import checks
from fsl_basesel.data.cache import fingerprint
from fsl_basesel.data.reading import text_of
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.report.record import save_stage
from fsl_basesel.selecting import select
from fsl_basesel.selection import Selection
from fsl_basesel.selectors import selector_of
from fsl_basesel.selectors.base import Selector
from fsl_basesel.similarity import (
    ClassCentroids,
    SimilarityFunction,
    default_objective,
    known_similarity,
)
from lightning_modules.both import plain_checkpoint_io
from lightning_modules.callbacks import compatibility, stage_report
from lightning_modules.callbacks.early_stopping import callbacks_of
from lightning_modules.callbacks.schedule import Schedule, StageState, next_stage_is_due
from lightning_modules.data import (
    NEWER,
    BaseClassDataModule,
    reseed,
    saved_identity,
    step_seed,
)
from lightning_modules.features import (
    Extractor,
    centroids_of,
    extractor_centroids,
    feature_function,
    text_of_extractor,
)
from lightning_modules.resume import LAST, AtomicCheckpointIO, Unfinished, damage, require_same


class SelectionCallback(pl.Callback):
    """Chooses base classes inside `trainer.fit`; see `SelectBaseClasses` and `ColdStartSelection`.

    Args:
        schedule: base classes and epochs of each stage.
        k: how many of its nearest base classes count for a novel class (K in the paper).
        lam: weight of the diversity term (lambda in the paper).
        method: name of a method (`fsl_basesel.methods()`) or a `Selector` with its settings.
        similarity: "cosine" (the paper), "centred", "whitened" or a function; see
            `SelectionProblem.from_centroids`, also for defaults.
        extractor: network that chooses in the first stage; None is the model that is trained, or
            chance in a cold start. A module with `features`, the path of a `BaseClassifier`
            checkpoint, or a name that `fsl_basesel.backbones.load_backbone` takes, such as
            "efficientnet-lite0".
        selected: classes of the pool, by name, that are base classes from the beginning.
        general: select as if the novel classes were not known, even if the data module has them.
        weights: how much each novel class counts, in the order of the task (each candidate in
            General Selection); None is all alike.
        cost: difficulty of obtaining each candidate, in the order of the pool.
        mu: weight of `cost`.
        budget: what the chosen classes may cost together; only for a single selection.
        exclude: classes of the pool, by name, that cannot be had.
        include: classes of the pool, by name, that must be chosen; they count towards m.
        groups: group of each candidate, in the order of the pool; None takes the pool's own.
        at_most: how many classes of a group there may be, one number or one for each group.
        at_least: how many classes of a group there must be, from the first stage on.
        certify: attach a proven upper bound to every selection.
        device: where the method runs if it can use a GPU; `auto` is the Trainer's if that is one.
        features: attribute of the model that turns images into features.
        seed: seed of everything random about the selection and the stages.
        reseed: set the global random numbers of torch, `numpy.random` and `random` at every
            training step and validation, to a function of seed, epoch, batch and process. Without
            it a model that draws random numbers, dropout included, does not resume exactly.
        dirpath: where `selection-stage-i.json` and what its report needs (`classes-stage-i.npz`,
            `pictures.npz`) are written; None is the run's log folder.
        verbose: print a table at the end of each stage.
    """

    def __init__(
        self,
        schedule: Schedule,
        k: int | None = None,
        lam: float = 0.0,
        method: str | Selector = "auto",
        *,
        similarity: str | SimilarityFunction | None = None,
        extractor: Extractor | None = None,
        selected: Sequence[str] = (),
        general: bool = False,
        weights: Sequence[float] | None = None,
        cost: Sequence[float] | None = None,
        mu: float = 0.0,
        budget: float | None = None,
        exclude: Sequence[str] = (),
        include: Sequence[str] = (),
        groups: Sequence[str | None] | None = None,
        at_most: int | dict[str, int] | None = None,
        at_least: int | dict[str, int] | None = None,
        certify: bool = True,
        device: str = "auto",
        features: str = "features",
        seed: int = 0,
        reseed: bool = True,
        dirpath: str | Path | None = None,
        verbose: bool = True,
    ) -> None:
        self.schedule, self.extractor = schedule, extractor
        self.selected, self.general = tuple(selected), general
        self.method = selector_of(method)
        if self.method.name == "paper":  # its K and similarity, with and without a task
            k, similarity = default_objective(False, k, similarity)
        self.k = None if k is None else checks.integer(k, "k", 1)
        self.lam, self.mu = checks.non_negative(lam, "lam"), checks.non_negative(mu, "mu")
        self.similarity = None if similarity is None else known_similarity(similarity)
        if callable(similarity) and self.method.needs_centroids:
            raise InputError(
                f"Expected a similarity with a name for method {self.method.name!r}, which "
                "compares centroids itself, but got a function; use another method."
            )
        self.weights = None if weights is None else [float(value) for value in weights]
        self.cost = None if cost is None else [float(value) for value in cost]
        if cost is not None and budget is None and not mu:
            raise InputError(
                "Expected `cost` with a budget, as a penalty (`mu` > 0), or both, but got neither; "
                "add one of them, or leave `cost` out."
            )
        limits: dict[str, Any] = {
            "budget": budget,
            "exclude": tuple(exclude) or None,
            "include": tuple(include) or None,
            "groups": None if groups is None else tuple(groups),
            "at_most": at_most,
            "at_least": at_least,
        }
        self.limits = {name: value for name, value in limits.items() if value is not None}
        """Budget, exclude, include, groups, at_most and at_least, those that were given."""
        self.certify, self.device, self.features = certify, device, features
        self.seed = checks.integer(seed, "seed", 0)
        self.reseed = reseed
        self.dirpath = None if dirpath is None else Path(dirpath)
        self.verbose = verbose
        self.stage_state: StageState | None = None
        """Where in the schedule the run is; None before the first choice."""
        self.records: list[stage_report.Record] = []
        """One for each stage so far."""
        self.data: BaseClassDataModule = None  # type: ignore[assignment]
        """The data module of the run; None before there is one."""
        self._stage_begins = False
        self._before: dict[str, Any] = {}
        self._model: str | None = None
        self._classes: tuple[ClassCentroids, ClassCentroids | None] | None = None
        self._problem: SelectionProblem | None = None
        self._unfinished: Unfinished | None = None

    @property
    def no_task(self) -> bool:
        """Whether candidates stand for the novel classes; False as long as no data are known."""
        return self.general or getattr(self.data, "novel", "not known yet") is None

    @abstractmethod
    def choose(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: int) -> Selection:
        """The classes that come in at the start of a stage."""

    def problem(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        m: int,
        by: Extractor | None = None,
    ) -> SelectionProblem:
        """Which `m` classes to add, by the features of the model, or of another network."""
        novel = None if self.general else self.data.novel
        if by is None:
            found = centroids_of(self.data, novel, pl_module, self.features, trainer)
        else:
            found = extractor_centroids(self.data, novel, by, self.features, trainer)
        candidates, target = self._classes = found
        self._problem = SelectionProblem.from_centroids(
            candidates,
            target,
            m,
            self.k,
            self.lam,
            selected=self.data.class_numbers,
            weights=self.weights,
            cost=self.cost,
            mu=self.mu,
            **self.problem_limits(self.data.class_numbers),
            similarity=self.similarity,
        )
        return self._problem

    def problem_limits(self, inside: Sequence[int]) -> dict[str, Any]:
        """The limits as a `SelectionProblem` takes them; what is in already need not be chosen."""
        pool, found = self.data.pool, dict(self.limits)
        for name in {"exclude", "include"} & set(found):
            found[name] = pool.source.positions(found[name])
        found["include"] = [u for u in found.get("include", ()) if u not in inside]
        if {"at_most", "at_least"} & set(found):
            found.setdefault("groups", pool.groups)
        return found

    def nothing_known(self, m: int, inside: Sequence[int]) -> SelectionProblem:
        """A problem with these limits in which all candidates are alike; `inside` is B_s."""
        names = self.data.pool.names
        return SelectionProblem(
            np.zeros((1, len(names))),
            m,
            k=1,
            selected=inside,
            cost=self.cost if "budget" in self.limits else None,
            **self.problem_limits(inside),
            names=names,
            novel_names=["not known yet"],
        )

    def select(self, trainer: pl.Trainer, problem: SelectionProblem) -> Selection:
        """Select in process 0 and tell the others; an error is one in all processes."""
        device, root = self.device, trainer.strategy.root_device
        if device == "auto" and root.type == "cuda" and self.method.uses_device():
            device = str(root)
        found: Selection | str = ""
        if trainer.is_global_zero:
            try:
                found = select(problem, self.method, self.seed, self.certify, device=device)
            except Exception as error:
                if trainer.world_size == 1:
                    raise
                found = str(error)
        found = trainer.strategy.broadcast(found)
        if isinstance(found, str):
            raise InputError(found)
        return found

    def begin_stage(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Prepare the model for a stage other than the first; its loader is in place."""

    def epochs_planned(self, state: StageState) -> int | None:
        """How many epochs the run has in all, if the schedule says so."""
        return None

    def settings(self) -> dict[str, Any]:
        """What a checkpoint must agree on to be resumed, as plain types.

        The paper's similarity, equal weights and no limits are not named: checkpoints from before
        there were others have none.
        """
        k, similarity = default_objective(self.no_task, self.k, self.similarity)
        name = similarity if isinstance(similarity, str) else None
        name = name or getattr(similarity, "__qualname__", None) or text_of(similarity)
        other = {} if name == "cosine" else {"similarity": name}
        if self.weights is not None:
            other["weights"] = fingerprint([repr(self.weights)])
        if self.limits:
            other["limits"] = fingerprint([repr(sorted(self.limits.items()))])
        return other | {
            "callback": type(self).__name__,
            "schedule": list(self.schedule.sizes),
            "epochs_per_stage": list(self.schedule.epochs),
            "start": list(self.selected),
            "general": self.general,
            "k": k,
            "lam": self.lam,
            "mu": self.mu,
            "selector": repr(self.method),
            "seed": self.seed,
            "cost": None if self.cost is None else fingerprint([repr(self.cost)]),
            "model": self._model,
            "extractor": text_of_extractor(self.extractor),
        }

    def before_checkpoints_are_found(self, trainer: pl.Trainer, data: BaseClassDataModule) -> None:
        """Have `ckpt_path="last"` find this run: a `last.ckpt` is kept, in any version's folder.

        Without a folder of its own, a run writes to a new `version_i` each time it is started, and
        Lightning looks for the last checkpoint in the new one only. If that is so, the newest
        checkpoint of this very run is looked for in the folders of the versions before.
        """
        savers = callbacks_of(trainer, "ModelCheckpoint")
        if savers and not any(one.save_last or f"{one.filename}.ckpt" == LAST for one in savers):
            savers[0].save_last = True
        for saver in savers:
            if saver.dirpath is None:
                saver._find_last_checkpoints = partial(self._last_checkpoints, data, saver)

    def _last_checkpoints(
        self, data: BaseClassDataModule, saver: ModelCheckpoint, trainer: pl.Trainer
    ) -> set[str]:
        found = type(saver)._find_last_checkpoints(saver, trainer)
        if found or not trainer.loggers:
            return found
        logger = trainer.loggers[0]
        root = Path(logger.save_dir or trainer.default_root_dir) / str(logger.name)
        paths = sorted(root.glob("version_*/checkpoints/last*.ckpt"), key=os.path.getmtime)
        self.data, self._model = data, _described(trainer.lightning_module)
        own = next((str(path) for path in reversed(paths) if self._is_own(path)), None)
        return set() if own is None else {own}

    def _is_own(self, path: Path) -> bool:
        """Whether a file is a whole checkpoint of this run; its weights are not read."""
        if damage(path) is not None:
            return False
        try:
            self._require_own(torch.load(path, "cpu", weights_only=True, mmap=True))
        except (InputError, KeyError, TypeError, RuntimeError, UnpicklingError):
            return False
        return True

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Check that this can work, and have the data module ask here before it makes a loader."""
        if stage != TrainerFn.FITTING:
            return
        name = type(self).__name__
        data = compatibility.require_data_module(trainer, name)
        compatibility.require_alone(trainer, SelectionCallback)
        compatibility.require_classes(self.schedule, self.selected, data.pool, name)
        if len(self.schedule) > 1:
            compatibility.require_stages_possible(trainer, name)
        compatibility.warn_of_empty_checkpoints(trainer)
        chosen_by_the_model = self.extractor is None or len(self.schedule) > 1
        if chosen_by_the_model and not compatibility.builds_itself_later(pl_module):
            feature_function(pl_module, self.features)
        self.data, self.stage_state, self.records, self._stage_begins = data, None, [], False
        self._unfinished = None
        self._model = _described(pl_module)
        data.clear_classes()
        if self.limits:  # refuse those that some stage cannot keep to
            inside = data.pool.source.positions(self.selected)
            for size in self.schedule.sizes:
                self.nothing_known(size - len(inside), inside)
        if self.weights is not None:
            checks.shares(self.weights, len(data.pool if self.no_task else data.task))
        data.capacity = self.schedule.sizes[-1]
        data.chooser = partial(self._choose_if_due, trainer, pl_module)
        io = trainer.strategy.checkpoint_io
        self._before = {
            "reload": trainer.reload_dataloaders_every_n_epochs,  # type: ignore[attr-defined]
            "max_epochs": trainer.fit_loop.max_epochs,
            "checkpoint_io": io,
        }
        trainer.reload_dataloaders_every_n_epochs = 1  # type: ignore[attr-defined]
        if plain_checkpoint_io(io):
            trainer.strategy.checkpoint_io = AtomicCheckpointIO(self._require_own)
        self._tell_epochs(trainer, pl_module, StageState(0, 0))
        compatibility.warn_of_early_end(
            trainer, self.schedule, self.epochs_planned(StageState(0, 0))
        )

    def _choose_if_due(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Called before every loader: begin the first stage, or the next one if it is time."""
        if self.stage_state is None:
            self._enter(trainer, pl_module, 0)
        elif self not in callbacks_of(trainer):
            return  # the tuner tries things out, in epochs that do not count
        elif next_stage_is_due(self.schedule, self.stage_state, trainer.current_epoch):
            self._show_table(trainer)
            self._enter(trainer, pl_module, self.stage_state.stage + 1)

    def _enter(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: int) -> None:
        data = self.data
        if stage == 0:
            data.clear_classes()
            data.add_classes(self.selected)
        self._classes = self._problem = None
        began = time.perf_counter()
        selection = self.choose(trainer, pl_module, stage)
        seconds = time.perf_counter() - began
        record = stage_report.record_of(selection, stage, self.schedule.sizes[stage], seconds)
        # Asked in every process, since they agree on the log folder.
        folder = self.dirpath or Path(trainer.log_dir or trainer.default_root_dir)
        if trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self.save_files(folder, stage + 1, selection)
            stage_report.log(trainer, record)
        self._classes = self._problem = None
        data.add_classes(selection.indices)
        self.stage_state = StageState(stage, trainer.current_epoch)
        self.records = [*self.records[:stage], record]
        self._stage_begins = stage > 0
        self._tell_epochs(trainer, pl_module, self.stage_state)
        if stage == 0:
            self.activate(pl_module)

    def save_files(self, folder: Path, number: int, selection: Selection) -> None:
        """Write what the selection of a stage, numbered from 1, leaves for the report."""
        classes, problem, images = self._classes, self._problem, None
        if classes is not None:  # a random first stage has none
            images = self.data.pool, None if self.general else self.data.novel
        more = (self.weights, self.cost, self.limits.get("groups"))
        if more == (None, None, None) and not callable(self.similarity):
            problem = None  # the centroids tell it
        save_stage(folder, number, selection, classes, problem, images)

    def activate(self, pl_module: pl.LightningModule) -> None:
        """Tell a model that wants to know how many classes there are."""
        activate = getattr(pl_module, "activate", None)
        if callable(activate):
            activate(len(self.data.class_numbers))

    def _tell_epochs(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, state: StageState
    ) -> None:
        """Tell the Trainer when the run ends and the model how long the stage is."""
        planned = self.epochs_planned(state)
        if planned is None:
            return
        asked = self._before["max_epochs"]
        trainer.fit_loop.max_epochs = planned if asked in (None, -1) else min(planned, asked)
        if hasattr(pl_module, "stage_epochs"):
            setattr(pl_module, "stage_epochs", self.schedule.epochs[state.stage])  # noqa: B010

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin the stage that was entered when the loader was made."""
        if self._stage_begins:
            self.begin_stage(trainer, pl_module)
            self._stage_begins = False

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Make dropout and the like a function of (seed, epoch, batch, process)."""
        self._reseed(trainer, pl_module, "step", batch_idx)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The same for a model that draws random numbers in its validation."""
        self._reseed(trainer, pl_module, "validation", trainer.fit_loop.batch_idx)

    def _reseed(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, purpose: str, batch: int
    ) -> None:
        if not self.reseed or trainer.state.fn != TrainerFn.FITTING:
            return
        seed = step_seed(self.seed, purpose, trainer.current_epoch, batch, trainer.global_rank)
        reseed(seed)
        if pl_module.device.type != "cpu":
            torch.manual_seed(seed)  # all devices; it takes 0.3 ms

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the metrics of the epoch, for the table."""
        if self.stage_state is None:
            return
        metrics = {
            name: float(value)
            for name, value in trainer.callback_metrics.items()
            if name.startswith(("train", "val")) and value.numel() == 1
        }
        epochs = trainer.current_epoch - self.stage_state.start + 1
        self.records[-1] = self.records[-1] | {"epochs": epochs, "metrics": metrics}
        more = self.stage_state.stage + 1 < len(self.schedule)
        if trainer.fast_dev_run and more:  # type: ignore[attr-defined]
            self.choose(trainer, pl_module, self.stage_state.stage + 1)  # to see that it works

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the table of all stages."""
        self._show_table(trainer)

    def _show_table(self, trainer: pl.Trainer) -> None:
        if self.verbose and trainer.is_global_zero and self.records:
            Console().print(stage_report.stage_table(self.records, len(self.schedule)))

    def state_dict(self) -> dict[str, Any]:
        """Settings, place, classes and records as plain types."""
        return {
            "settings": self.settings(),
            "place": None if self.stage_state is None else list(self.stage_state),
            "records": self.records,
            "data": {} if self.data is None else self.data.state_dict(),
        }

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take up a run where the checkpoint left it; refuse the checkpoint of another run."""
        if trainer.state.fn != TrainerFn.FITTING or self.data is None:
            return
        self._require_own(checkpoint)  # once more, for those who read checkpoints in their own way
        state = checkpoint["callbacks"][self.state_key]
        if type(self.data).__qualname__ not in checkpoint:
            self.data.load_state_dict(state["data"])  # Lightning found none under the class's name
        self.stage_state = None if state["place"] is None else StageState(*state["place"])
        self.records = list(state["records"])
        self._stage_begins = False
        if self.stage_state is not None:
            self._tell_epochs(trainer, pl_module, self.stage_state)
        self._unfinished = Unfinished(checkpoint, trainer.global_rank)
        weights = checkpoint["state_dict"].values()
        if any(getattr(value, "dtype", None) == torch.float64 for value in weights):
            # Lightning makes the model double only after it has rounded these weights to its own.
            trainer.precision_plugin.convert_module(pl_module)
            pl_module.load_state_dict(checkpoint["state_dict"], strict=pl_module.strict_loading)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep the sums of the epoch that is under way."""
        Unfinished.save(trainer, checkpoint)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Before Lightning takes up the state of its loops."""
        if self._unfinished is not None:
            self._unfinished.before_the_loops(trainer)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Finish the step or the epoch in which the checkpoint was written."""
        if self._unfinished is not None:
            self._unfinished.before_the_first_batch(trainer)

    def _require_own(self, checkpoint: dict[str, Any]) -> None:
        """Refuse the checkpoint of another run, before weights that do not fit are loaded."""
        state = checkpoint.get("callbacks", {}).get(self.state_key)
        if state is None or not state["data"]:  # none was trained
            raise InputError(
                f"Expected a checkpoint of a run with {type(self).__name__} but it has no state of "
                "it; to start from its weights load them into the model and leave `ckpt_path` out."
            )
        saved = state["settings"] | saved_identity(state["data"])
        require_same(saved, self.settings() | self.data.identity(), NEWER)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leave the Trainer as it was found."""
        self.teardown(trainer, pl_module, TrainerFn.FITTING)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leave the Trainer as it was found."""
        if self._unfinished is not None:
            self._unfinished.put_back(trainer)
        if self.data is not None:
            self.data.chooser = None
        if self._before:
            reload = self._before["reload"]
            trainer.reload_dataloaders_every_n_epochs = reload  # type: ignore[attr-defined]
            trainer.fit_loop.max_epochs = self._before["max_epochs"]
            trainer.strategy.checkpoint_io = self._before["checkpoint_io"]
            self._before = {}


def _described(pl_module: pl.LightningModule) -> str:
    """The class of a model and the name of its backbone, if it has one."""
    backbone = pl_module.hparams.get("backbone")
    return type(pl_module).__name__ + (f"({backbone})" if isinstance(backbone, str) else "")
