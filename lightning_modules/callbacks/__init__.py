"""Callbacks that choose base classes during a run and evaluate on the novel task."""

from lightning_modules.callbacks.cold_start import ColdStartSelection
from lightning_modules.callbacks.early_stopping import StageEarlyStopping
from lightning_modules.callbacks.novel_evaluation import NovelEvaluation
from lightning_modules.callbacks.select_base_classes import SelectBaseClasses

__all__ = ["ColdStartSelection", "NovelEvaluation", "SelectBaseClasses", "StageEarlyStopping"]
