"""`pytorch_lightning` and `lightning.pytorch` are two packages with the same classes twice.

Callbacks of one serve the Trainers of both, and a data module may inherit from both. A model must
be of its Trainer's package: `lightning_modules` has those for `pytorch_lightning`, and
`lightning_modules.lightning_pytorch` the same models for `lightning.pytorch`.
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


def _tell_of_both(package: str) -> None:
    """Have a Trainer of `package` name both packages if it is given a model of the other one.

    Lightning does so for its own classes only, not for what inherits from them.
    """
    home = importlib.import_module(f"{package}.utilities.compile")
    check = getattr(home, "_check_mixed_imports", None)
    if check is None:
        return
    (other,) = (name for name in PACKAGES if name != package)

    def check_bases(model: object) -> None:
        check(model)
        if any(base.__module__.startswith(f"{other}.") for base in type(model).__mro__):
            raise TypeError(
                f"Expected a model of `{package}`, the package of the Trainer, but "
                f"{type(model).__qualname__} is of `{other}`; use one package for both. The models "
                "of lightning_modules are for `pytorch_lightning`, and those of "
                "lightning_modules.lightning_pytorch for `lightning.pytorch`."
            )

    home._check_mixed_imports = check_bases  # type: ignore[attr-defined]


if TYPE_CHECKING:
    DataModule = pl.LightningDataModule
else:
    if importlib.util.find_spec("lightning") is not None:
        importlib.import_module("lightning.pytorch")
        for each in PACKAGES:
            _tell_of_both(each)

    class DataModule(*kinds("", "LightningDataModule")):
        """A data module for Trainers of both packages, if both are installed."""
