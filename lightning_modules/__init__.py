"""Few-shot training on selected base classes with Lightning and learn2learn.

`lightning_modules` imports `fsl_basesel`. Of `fsl_basesel`, only the commands that train (`fit`,
`demo`, `reproduce`) and `backbones`, for a network in a run's checkpoint, import
`lightning_modules`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_modules.callbacks import ColdStartSelection as ColdStartSelection
    from lightning_modules.callbacks import NovelEvaluation as NovelEvaluation
    from lightning_modules.callbacks import SelectBaseClasses as SelectBaseClasses
    from lightning_modules.callbacks import StageEarlyStopping as StageEarlyStopping
    from lightning_modules.classifier import BaseClassifier as BaseClassifier
    from lightning_modules.data import BaseClassDataModule as BaseClassDataModule

_HOMES = {
    "BaseClassDataModule": "lightning_modules.data",
    "BaseClassifier": "lightning_modules.classifier",
    "ColdStartSelection": "lightning_modules.callbacks.cold_start",
    "NovelEvaluation": "lightning_modules.callbacks.novel_evaluation",
    "SelectBaseClasses": "lightning_modules.callbacks.select_base_classes",
    "StageEarlyStopping": "lightning_modules.callbacks.early_stopping",
}
"""Where each public name lives; Lightning is imported when the first one is used."""

INSTALL_LEARN2LEARN = (
    "pip install gym requests tqdm && pip install --no-deps --use-pep517 "
    "--config-settings=--build-option=build_ext learn2learn==0.2.0"
)

__all__ = [*_HOMES, "require_learn2learn"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def require_learn2learn() -> ModuleType:
    """Import learn2learn, which is optional: `pip install` alone cannot build it on Python >= 3.11.

    The error, if it or something it imports is not installed, has the commands that install both.
    """
    try:
        return importlib.import_module("learn2learn")
    except ImportError as error:
        raise ImportError(
            f"Expected learn2learn 0.2.0 to be installed but importing it failed ({error}); "
            f"install it with: {INSTALL_LEARN2LEARN}",
            name=error.name,
        ) from error
