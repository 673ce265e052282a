"""`pytorch_lightning` and `lightning.pytorch`: two packages that define the same classes.

Callbacks of one serve the Trainers of both; data modules and models inherit from both.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl

PACKAGES = ("pytorch_lightning", "lightning.pytorch")


def kinds(module: str, *names: str) -> Any:
    """Classes of these names in both packages, for `isinstance`; "" is the package itself.

    Example:
        >>> kinds("callbacks", "ModelCheckpoint")[0].__name__
        'ModelCheckpoint'
    """
    found: list[type] = []
    for package in PACKAGES:
        if package in sys.modules:
            home = importlib.import_module(f"{package}.{module}" if module else package)
            found += [getattr(home, name) for name in names]
    return tuple(found)


def plain_checkpoint_io(io: Any) -> bool:
    """Whether checkpoints are written by Lightning's own plain writer, of either package."""
    return type(io).__name__ == "TorchCheckpointIO" and type(io).__module__.startswith(
        ("lightning_fabric.", "lightning.fabric.")
    )


if TYPE_CHECKING:
    DataModule = pl.LightningDataModule
    Module = pl.LightningModule
else:
    if importlib.util.find_spec("lightning") is not None:
        importlib.import_module("lightning.pytorch")

    class DataModule(*kinds("", "LightningDataModule")):
        """A data module for Trainers of both packages, if both are installed."""

    class Module(*kinds("", "LightningModule")):
        """A model for Trainers of both packages, if both are installed."""

        # Hooks whose code is not the same in both: one package would take them for overridden.
        configure_sharded_model = None
        train_dataloader = val_dataloader = test_dataloader = predict_dataloader = None
