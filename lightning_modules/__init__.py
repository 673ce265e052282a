"""Few-shot training on selected base classes with Lightning and learn2learn.

`lightning_modules` calls `fsl_basesel`. The other way round only the commands that train do: `fit`,
`demo` and `reproduce`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lightning_modules.requirements import require_learn2learn

if TYPE_CHECKING:
    from lightning_modules.callbacks.cold_start import ColdStartSelection
    from lightning_modules.callbacks.early_stopping import StageEarlyStopping
    from lightning_modules.callbacks.novel_evaluation import NovelEvaluation
    from lightning_modules.callbacks.select_base_classes import SelectBaseClasses
    from lightning_modules.classifier import BaseClassifier
    from lightning_modules.data import BaseClassDataModule

_HOMES = {
    "BaseClassDataModule": "lightning_modules.data",
    "BaseClassifier": "lightning_modules.classifier",
    "ColdStartSelection": "lightning_modules.callbacks.cold_start",
    "NovelEvaluation": "lightning_modules.callbacks.novel_evaluation",
    "SelectBaseClasses": "lightning_modules.callbacks.select_base_classes",
    "StageEarlyStopping": "lightning_modules.callbacks.early_stopping",
}
"""Where each public name lives; Lightning is imported when the first one is asked for."""

__all__ = [
    "BaseClassDataModule",
    "BaseClassifier",
    "ColdStartSelection",
    "NovelEvaluation",
    "SelectBaseClasses",
    "StageEarlyStopping",
    "require_learn2learn",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
