"""The models of this package for Trainers of `lightning.pytorch`; all else serves both packages.

import lightning.pytorch as pl
from lightning_modules import BaseClassDataModule, ColdStartSelection
from lightning_modules.lightning_pytorch import BaseClassifier
"""

from __future__ import annotations

from typing import Any

try:
    import lightning.pytorch as pl
except ImportError as error:
    raise ImportError(
        "Expected `lightning` to be installed but it is not; run `pip install lightning`, or take "
        "the models from `lightning_modules`, which are those for `pytorch_lightning`."
    ) from error

from lightning_modules.classifier import ClassifierMethods
from lightning_modules.heads.maml import ANILMethods, MAMLMethods
from lightning_modules.heads.protonet import ProtoNetMethods

Module: Any = pl.LightningModule

__all__ = ["ANIL", "MAML", "BaseClassifier", "ProtoNet"]


class BaseClassifier(ClassifierMethods, Module):
    """`lightning_modules.BaseClassifier` for `lightning.pytorch`."""


class ProtoNet(ProtoNetMethods, Module):
    """`lightning_modules.heads.ProtoNet` for `lightning.pytorch`."""


class MAML(MAMLMethods, Module):
    """`lightning_modules.heads.MAML` for `lightning.pytorch`."""


class ANIL(ANILMethods, Module):
    """`lightning_modules.heads.ANIL` for `lightning.pytorch`."""
