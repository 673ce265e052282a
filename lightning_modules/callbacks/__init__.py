"""Callbacks that choose base classes during a run and evaluate on the novel task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning_modules

if TYPE_CHECKING:
    from lightning_modules.callbacks.cold_start import ColdStartSelection
    from lightning_modules.callbacks.early_stopping import StageEarlyStopping
    from lightning_modules.callbacks.novel_evaluation import NovelEvaluation
    from lightning_modules.callbacks.select_base_classes import SelectBaseClasses

__all__ = ["ColdStartSelection", "NovelEvaluation", "SelectBaseClasses", "StageEarlyStopping"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(lightning_modules, name)
