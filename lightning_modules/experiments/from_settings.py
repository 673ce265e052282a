"""Objects from the plain settings of a YAML file."""

from __future__ import annotations

from typing import Any

from fsl_basesel.errors import InputError
from lightning_modules.data import BaseClassDataModule
from lightning_modules.experiments.training import min_epoch_images
from lightning_modules.keys import class_named


def build(spec: Any) -> Any:
    """What `{class_path: ..., init_args: {...}}` describes; anything else stays as it is.

    Example:
        >>> build({"class_path": "datetime.timedelta", "init_args": {"hours": 1}}).seconds
        3600
    """
    if not isinstance(spec, dict) or "class_path" not in spec:
        return spec
    found = class_named(spec["class_path"])
    return found(**{key: build(value) for key, value in spec.get("init_args", {}).items()})


def data_module(
    data: dict[str, Any], seed: int, training: dict[str, Any], part: str
) -> BaseClassDataModule:
    """The data module of a trial.

    Args:
        data: its `class_path` and `init_args`.
        seed: seed of the order of images.
        training: batch size and least number of images of the training it is for.
        part: "candidates" or "pretraining".
    """
    arguments = data["init_args"] | {
        "seed": seed,
        "batch_size": training["batch_size"],
        "min_epoch_images": min_epoch_images(training),
        "part": part,
    }
    made = build(data | {"init_args": arguments})
    if not isinstance(made, BaseClassDataModule):
        raise InputError(
            f"Expected {data['class_path']} to be a BaseClassDataModule but got {type(made)}."
        )
    return made
