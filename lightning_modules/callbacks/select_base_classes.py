"""`SelectBaseClasses`: one selection at the start of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl

from fsl_basesel import checks
from fsl_basesel.errors import InputError
from fsl_basesel.selection import Selection
from fsl_basesel.selectors.base import Selector
from lightning_modules.callbacks.base import SelectionCallback
from lightning_modules.callbacks.schedule import Schedule


class SelectBaseClasses(SelectionCallback):
    """Chooses `m` base classes before training starts: the paper's Pre-trained Selection.

    The features come from `extractor`, a model trained on other classes, or else from the model
    that is to be trained, as it is when training starts. If the data module has no novel task, the
    candidates stand for it: General Selection.

    Args:
        m: how many classes to choose, 100 by default; with a budget how many at most, and then it
            must be given: it is the size of the model's head.
        k: nearest base classes that count for a novel class; None is 3, in General Selection 1.
        lam: weight of the diversity term (lambda in the paper).
        method: name of a method (`fsl_basesel.methods()`) or a `Selector` with its settings.
        selected: classes of the pool, by name, that are base classes already; `m` are added.
        options: those of `SelectionCallback`; `features` is an attribute of the extractor.

    Example:
        >>> callback = SelectBaseClasses(m=100, k=3, method="greedy-target")
        >>> callback.schedule.sizes
        (100,)
    """

    def __init__(
        self,
        m: int | None = None,
        k: int | None = None,
        lam: float = 0.0,
        method: str | Selector = "auto",
        *,
        selected: Sequence[str] = (),
        **options: Any,
    ) -> None:
        if m is None and options.get("budget") is not None:
            raise InputError(
                "Expected `m` with a budget, as the head of the model needs a number of classes, "
                "but got none; say how many classes there may be at most."
            )
        self.m = checks.integer(100 if m is None else m, "m", 1)
        # Its one stage lasts as long as the Trainer says.
        schedule = Schedule.of((len(selected) + self.m,), 1)
        super().__init__(schedule, k, lam, method, selected=selected, **options)

    def settings(self) -> dict[str, Any]:
        """What a checkpoint must agree on; the epochs are the Trainer's business."""
        settings = super().settings()
        del settings["epochs_per_stage"]
        return settings

    def choose(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: int) -> Selection:
        """Select by the features of the extractor."""
        problem = self.problem(trainer, pl_module, self.m, self.extractor)
        selection = self.select(trainer, problem)
        if not selection.indices and not self.selected:
            raise InputError(
                "Expected limits within which at least one class can be chosen but the budget of "
                f"{problem.budget:g} buys none; raise it."
            )
        return selection
