"""`ColdStartSelection`: base classes chosen in stages, each by the model of the stage before."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities.memory import recursive_detach
from torch import Tensor

from fsl_basesel.errors import InputError
from fsl_basesel.selection import Selection
from fsl_basesel.selectors.base import Selector
from fsl_basesel.selectors.baselines import RandomSelection
from fsl_basesel.similarity import SimilarityFunction
from lightning_modules.callbacks.base import SelectionCallback
from lightning_modules.callbacks.early_stopping import callbacks_of
from lightning_modules.callbacks.schedule import Schedule, StageState, last_epoch
from lightning_modules.data import step_seed


class ColdStartSelection(SelectionCallback):
    """The paper's cold start, in one `trainer.fit`: a few random classes, then more in stages.

    The first stage trains on random classes. At the start of each further stage the model of the
    stage before chooses the classes to add. The run ends with the schedule, or with the Trainer's
    `max_epochs` if that comes first.

    A stage begins with a new model, as in the paper: the weights of a freshly built one are loaded
    in place and the optimizer and its schedule are made anew. With `warm_start` the weights go on
    (a curriculum) and only the optimizer and its schedule are new. A model of your own needs
    `features`; if it also has `fresh_state(seed)`, which returns a state dict, its new models come
    from there, and else they start from the weights it had when the run began, which are then kept
    in every checkpoint. `activate(classes)`, if it has it, is called when the classes change.

    `ModelCheckpoint(monitor=...)` ranks the checkpoints of each stage among themselves, since a
    loss over 6 classes does not compare with one over 100. `EarlyStopping` is refused, as it would
    end the run; `StageEarlyStopping` ends the stage.

    Args:
        schedule: base classes in each stage, rising.
        epochs_per_stage: epochs of every stage, or of each.
        k: how many of its nearest base classes count for a novel class (K in the paper).
        lam: weight of the diversity term (lambda in the paper).
        method: name of a method (`fsl_basesel.methods()`) or a `Selector` with its settings.
        similarity: as in `SelectionCallback`; the paper's by default, also without a task.
        warm_start: keep the weights from stage to stage.
        options: those of `SelectionCallback` but `budget`. `extractor` chooses the first classes,
            which are random without one; `selected` are in the first stage anyway; `seed` is also
            that of the first classes and of the weights of new models.

    Example:
        >>> callback = ColdStartSelection(schedule=(50, 100), epochs_per_stage=(10, 20), k=1)
        >>> callback.schedule.epochs
        (10, 20)
    """

    def __init__(
        self,
        schedule: Sequence[int] = (6, 12, 25, 50, 100),
        epochs_per_stage: int | Sequence[int] = 120,
        k: int = 3,
        lam: float = 0.0,
        method: str | Selector = "auto",
        *,
        similarity: str | SimilarityFunction = "cosine",
        warm_start: bool = False,
        **options: Any,
    ) -> None:
        stages = Schedule.of(schedule, epochs_per_stage)
        super().__init__(stages, k, lam, method, similarity=similarity, **options)
        if "budget" in self.limits:
            raise InputError(
                "Expected no `budget` for ColdStartSelection, whose schedule says how many classes "
                "each stage has, but got one; use SelectBaseClasses(m, budget=...) or at_most."
            )
        self.warm_start = warm_start
        self._initial: dict[str, Tensor] | None = None

    def settings(self) -> dict[str, Any]:
        """What a checkpoint must agree on to be resumed, as plain types."""
        return super().settings() | {"warm_start": self.warm_start}

    def epochs_planned(self, state: StageState) -> int:
        """The run ends with the schedule."""
        return last_epoch(self.schedule, state)

    def choose(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: int) -> Selection:
        """The first classes at random or by the extractor, then by the features of the model."""
        m = self.schedule.sizes[stage] - len(self.data.class_numbers)
        by = self.extractor if stage == 0 else None
        if stage == 0 and by is None:
            problem = self.nothing_known(m, self.data.class_numbers)
            return RandomSelection().select(problem, self.seed)
        return self.select(trainer, self.problem(trainer, pl_module, m, by))

    def end_stage(self, trainer: pl.Trainer) -> bool:
        """End the stage after this epoch; False in the last stage, which ends with the run."""
        if self.stage_state is None or self.stage_state.stage + 1 >= len(self.schedule):
            return False
        self.stage_state = self.stage_state._replace(over=trainer.current_epoch)
        self._tell_epochs(trainer, trainer.lightning_module, self.stage_state)
        return True

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the first weights of a model that cannot be built anew; all processes agree now."""
        super().on_train_start(trainer, pl_module)
        needed = not self.warm_start and len(self.schedule) > 1
        untrained = trainer.global_step == 0 and trainer.current_epoch == 0
        if needed and untrained:
            self._initial = None
            if self._fresh_state(pl_module, 0) is None:
                state = recursive_detach(dict(pl_module.state_dict()), to_cpu=True)
                self._initial = copy.deepcopy(state)

    def _fresh_state(self, pl_module: pl.LightningModule, stage: int) -> dict[str, Tensor] | None:
        build = getattr(pl_module, "fresh_state", None)
        return build(step_seed(self.seed, "weights", stage)) if callable(build) else None

    def begin_stage(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A new model, unless the start is warm; a new optimizer; scores count from here."""
        assert self.stage_state is not None
        if not self.warm_start:
            fresh = self._fresh_state(pl_module, self.stage_state.stage)
            fresh = self._initial if fresh is None else fresh
            assert fresh is not None
            pl_module.load_state_dict(fresh)  # in place: optimizer, DDP and loggers know these
        self.activate(pl_module)
        trainer.strategy.setup_optimizers(trainer)
        for stopping in callbacks_of(trainer, "EarlyStopping"):
            stopping.start_stage()  # a plain one was refused
        for saver in callbacks_of(trainer, "ModelCheckpoint"):
            if saver.monitor:  # it ranks from here on; files of earlier stages stay on disk
                saver.best_k_models = {}
                saver.best_model_path = saver.kth_best_model_path = ""
                saver.best_model_score = saver.current_score = None

    def state_dict(self) -> dict[str, Any]:
        """Settings, place, classes and records, and first weights where they are needed."""
        return super().state_dict() | {"initial": self._initial}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the first weights; `on_load_checkpoint` has done the rest."""
        self._initial = state_dict.get("initial")
