"""What `fit` finds out by itself: from the folders, the pictures and the machine.

The result is a dict as a YAML file would give it. Settings of a YAML file go over it, and flags of
the command line over both.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fsl_basesel.data import counter
from fsl_basesel.data.folder import class_index
from fsl_basesel.errors import InputError

Settings = dict[str, Any]
PAPER = 100
"""Base classes in the end, in the paper and where there are so many."""

SAMPLED = 60
"""Pictures whose size is looked at."""

_PACKAGE = "lightning_modules"
DATA, MODEL = f"{_PACKAGE}.sources.ImageFolderDataModule", f"{_PACKAGE}.BaseClassifier"
COLD_START, ONCE = f"{_PACKAGE}.ColdStartSelection", f"{_PACKAGE}.SelectBaseClasses"
EVALUATION = f"{_PACKAGE}.NovelEvaluation"


@dataclass(frozen=True)
class Folders:
    """What a folder of class folders holds.

    Attributes:
        classes: number of classes.
        images: pictures of all classes together.
        smallest: pictures of the class that has the fewest.
        side: median of the shorter sides of a sample of pictures.
        channels: 1 if every picture of the sample is grey, else 3.
    """

    classes: int
    images: int
    smallest: int
    side: int
    channels: int


def look_at(path: str) -> Folders:
    """Count the classes and pictures of a folder and look at the sizes of some."""
    found = class_index(Path(path))
    counts = [len(files) for files in found.values()]
    files = [(name, file) for name, inside in found.items() for file in inside]
    order = counter.shuffled(counter.key(0, "sizes"), np.arange(len(files)))[:SAMPLED]
    sides, grey = [], True
    for name, file in (files[i] for i in order.tolist()):
        try:
            with Image.open(os.path.join(path, name, file)) as picture:
                sides.append(min(picture.size))
                grey &= picture.mode in ("1", "L", "LA", "I;16", "I", "F")
        except OSError:
            continue  # whoever reads it in earnest will tell
    side = int(np.median(sides)) if sides else 64
    return Folders(len(found), sum(counts), min(counts), side, 1 if grey and sides else 3)


def doubled_up_to(m: int) -> list[int]:
    """Sizes of stages that about double, from at most 6 to `m`.

    Example:
        >>> doubled_up_to(100), doubled_up_to(15), doubled_up_to(2)
        ([6, 12, 25, 50, 100], [3, 7, 15], [2])
    """
    sizes = [m]
    while sizes[0] > 6:
        sizes.insert(0, sizes[0] // 2)
    return sizes


def base_classes(asked: argparse.Namespace, pool: Folders) -> int:
    """How many base classes to choose: as asked for, 100, or half of a smaller pool."""
    m = asked.m or (PAPER if pool.classes >= PAPER else max(1, pool.classes // 2))
    if not 1 <= m <= pool.classes:
        raise InputError(
            f"Expected -m from 1 to {pool.classes}, the classes of {asked.pool}, but got {m}."
        )
    return m


def schedule_of(text: str) -> list[int]:
    """`--schedule 6,12,25` as numbers.

    Example:
        >>> schedule_of("6,12,25")
        [6, 12, 25]
    """
    try:
        return [int(part) for part in text.replace("-", ",").split(",")]
    except ValueError:
        raise InputError(
            f"Expected --schedule to be numbers of classes, as in 6,12,25, but got {text!r}."
        ) from None


def settings_for(asked: argparse.Namespace, gpu: bool) -> Settings:
    """Settings of a run on the folder `asked.pool`, for all that was not asked for.

    Args:
        asked: flags of the command line, None where one is absent.
        gpu: whether there is a GPU to train on.
    """
    pool = look_at(asked.pool)
    task = None if asked.novel is None else look_at(asked.novel)
    shots = None if task is None else asked.shots or max(1, min(5, task.smallest // 2))
    m = base_classes(asked, pool)
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    size = asked.size or max(8, min(128 if gpu else 64, pool.side))
    workers = min(8, cores) if gpu else min(4, cores // 2 - 1) if cores > 3 else 0
    per_class = pool.images / pool.classes
    batch = 64 if m * per_class >= 512 else 16
    pretrained = asked.backbone is not None and asked.train in (None, "finetune")
    data: Settings = {
        "path": asked.pool,
        "size": size,
        "channels": pool.channels,
        "batch_size": batch,
        "num_workers": workers,
        "persistent_workers": workers > 0,
        "on_corrupt": "skip",
        "augment": {
            "class_path": f"{_PACKAGE}.augment.CropAndFlip",
            "init_args": {"padding": max(1, size // 8)},
        },
    }
    if task is not None:
        queries = max(1, min(100, task.smallest - (shots or 1)))
        data |= {"novel_path": asked.novel, "shots": shots, "queries": queries}
    if asked.label is not None:
        queue = str(Path(asked.run or "runs/fit") / "classes-to-label.json")
        data |= {"labelled": asked.label, "queue": queue, "needed": asked.needed or 1}
    return {
        "run": asked.run or "runs/fit",
        "seed_everything": asked.seed or 0,
        "data": {"class_path": DATA, "init_args": data},
        "model": {"class_path": MODEL, "init_args": _model(asked, pool, size, gpu, pretrained)},
        "trainer": _trainer(asked, m, shots, gpu, pretrained),
    }


def _model(
    asked: argparse.Namespace, pool: Folders, size: int, gpu: bool, pretrained: bool
) -> Settings:
    if pretrained:
        return {"backbone": asked.backbone, "lr": 0.01, "schedule": "one-cycle"}
    if pool.channels == 1 and size <= 40:
        network = {"backbone": "conv4"}
    elif gpu:
        network = {"backbone": "resnet18", "stem": "cifar" if size <= 96 else "imagenet"}
    else:
        network = {"backbone": "resnet8"}
    return network | {"in_channels": pool.channels, "schedule": "one-cycle"}


def _trainer(
    asked: argparse.Namespace, m: int, shots: int | None, gpu: bool, pretrained: bool
) -> Settings:
    epochs = asked.epochs or (10 if pretrained else 120 if gpu else 30)
    chosen: Settings = {"k": asked.k or 3}
    trainer: Settings = {"log_every_n_steps": 1, "enable_model_summary": False}
    staged = asked.backbone is None or asked.schedule is not None
    if asked.backbone is not None:
        chosen["extractor"] = asked.backbone
    if staged:
        sizes = doubled_up_to(m) if asked.schedule is None else schedule_of(asked.schedule)
        chosen |= {"schedule": sizes, "epochs_per_stage": epochs}
    else:
        chosen["m"] = m
        trainer["max_epochs"] = epochs
    selection = {"class_path": COLD_START if staged else ONCE, "init_args": chosen}
    evaluation = {"class_path": EVALUATION, "init_args": {"shots": shots}}
    return trainer | {"callbacks": ([] if shots is None else [evaluation]) + [selection]}


def merged(below: Settings, above: Settings) -> Settings:
    """Settings of `above` and, where it is silent, of `below`.

    Callbacks of `below` stay unless `above` has one of the same kind; another class as data or
    model replaces all of it.

    Example:
        >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
        {'a': {'b': 3, 'c': 2}}
    """
    both = dict(below)
    for name, value in above.items():
        old = both.get(name)
        if name == "callbacks" and isinstance(old, list) and isinstance(value, list):
            kinds = {_kind(entry) for entry in value}
            both[name] = [entry for entry in old if _kind(entry) not in kinds] + value
        elif isinstance(old, dict) and isinstance(value, dict) and _same_class(old, value):
            both[name] = merged(old, value)
        else:
            both[name] = value
    return both


def _same_class(old: Settings, new: Settings) -> bool:
    return "class_path" not in new or new["class_path"] == old.get("class_path")


def _kind(entry: Any) -> str:
    """The class of a callback by its last name; the two that select are one kind."""
    path = entry.get("class_path", "") if isinstance(entry, dict) else str(entry)
    name = path.rpartition(".")[2]
    return "selection" if name in ("ColdStartSelection", "SelectBaseClasses") else name


def callbacks_of(settings: Settings) -> Iterator[Settings]:
    """The callbacks that settings describe."""
    found = settings.get("trainer", {}).get("callbacks") or []
    yield from (entry for entry in found if isinstance(entry, dict))


def selection_of(settings: Settings) -> Settings | None:
    """The selection callback that settings describe, if there is one."""
    return next((one for one in callbacks_of(settings) if _kind(one) == "selection"), None)


def put_flags(settings: Settings, asked: argparse.Namespace) -> None:
    """Put the flags of the command line over everything else."""
    data = settings.setdefault("data", {}).setdefault("init_args", {})
    own = {"path": asked.pool, "novel_path": asked.novel, "size": asked.size, "shots": asked.shots}
    own |= {"labelled": asked.label, "needed": asked.needed}
    data |= {name: value for name, value in own.items() if value is not None}
    if asked.run is not None:
        settings["run"] = asked.run
    if asked.seed is not None:
        settings["seed_everything"] = asked.seed
        data["seed"] = data["split_seed"] = asked.seed
        settings.setdefault("model", {}).setdefault("init_args", {})["seed"] = asked.seed
    for entry in callbacks_of(settings):
        if _kind(entry) == "NovelEvaluation" and asked.shots is not None:
            entry.setdefault("init_args", {})["shots"] = asked.shots
    chosen = selection_of(settings)
    wanted = {"k": asked.k, "seed": asked.seed, "m": asked.m, "schedule": asked.schedule}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if chosen is None:
        if set(wanted) - {"seed"}:
            raise InputError(
                "Expected a selection callback for -m, -k and --schedule but the settings have "
                "none; add ColdStartSelection or SelectBaseClasses to trainer.callbacks."
            )
        return
    staged = chosen["class_path"].endswith("ColdStartSelection")
    arguments = chosen.setdefault("init_args", {})
    if "schedule" in wanted:
        wanted["schedule"] = schedule_of(wanted["schedule"])
        if not staged:
            raise InputError(
                "Expected --schedule with ColdStartSelection but the YAML file has "
                "SelectBaseClasses, which chooses once; use -m instead."
            )
    if "m" in wanted and staged:
        m = wanted.pop("m")
        if asked.schedule is None:
            wanted["schedule"] = doubled_up_to(m)
        elif wanted["schedule"][-1] != m:
            raise InputError(
                f"Expected --schedule to end with -m {m} but got {asked.schedule}; leave one out."
            )
    arguments |= wanted
    if asked.epochs is not None:
        if staged:
            arguments["epochs_per_stage"] = asked.epochs
        else:
            settings.setdefault("trainer", {})["max_epochs"] = asked.epochs


def gpu_there() -> bool:
    """Whether there is a GPU that torch can use."""
    return torch.cuda.is_available()
