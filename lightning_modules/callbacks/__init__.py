"""Callbacks that choose base classes during a run and evaluate on the novel task."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_modules.callbacks.cold_start import ColdStartSelection
    from lightning_modules.callbacks.early_stopping import StageEarlyStopping
    from lightning_modules.callbacks.select_base_classes import SelectBaseClasses

_HOMES = {
    "ColdStartSelection": "lightning_modules.callbacks.cold_start",
    "SelectBaseClasses": "lightning_modules.callbacks.select_base_classes",
    "StageEarlyStopping": "lightning_modules.callbacks.early_stopping",
}
"""Where each public name lives; it is imported when first asked for."""

__all__ = ["ColdStartSelection", "SelectBaseClasses", "StageEarlyStopping"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
