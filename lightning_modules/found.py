"""Settings that `fit` derives from the folders, the pictures and the machine.

The result is a dict as a YAML file would give it. Settings of a YAML file override it, and flags of
the command line override both.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fsl_basesel.data import counter
from fsl_basesel.data.folder import class_index
from fsl_basesel.errors import InputError
from fsl_basesel.parallel import cores
from fsl_basesel.report.run import QUEUE
from lightning_modules.settings import Settings, callbacks_of

PAPER = 100
"""Number of base classes at the end, as in the paper, if the pool has enough."""

SAMPLED = 60
"""Pictures whose size is looked at."""

_PACKAGE = "lightning_modules"
DATA, MODEL = f"{_PACKAGE}.sources.ImageFolderDataModule", f"{_PACKAGE}.BaseClassifier"
COLD_START, ONCE = f"{_PACKAGE}.ColdStartSelection", f"{_PACKAGE}.SelectBaseClasses"
EVALUATION = f"{_PACKAGE}.NovelEvaluation"


@dataclass(frozen=True)
class Folders:
    """What a folder of class folders holds: its pictures, and the size of a sample of them."""

    classes: int
    images: int
    smallest: int  # pictures of the class that has the fewest
    side: int  # median of the shorter sides
    channels: int  # 1 if all are grey, else 3


def look_at(path: str) -> Folders:
    """Count the classes and pictures of a folder and look at the sizes of some."""
    found = class_index(Path(path))
    files = [(name, file) for name, inside in found.items() for file in inside]
    order = counter.shuffled(counter.key(0, "sizes"), np.arange(len(files)))[:SAMPLED]
    sides, grey = [], True
    for name, file in (files[i] for i in order.tolist()):
        try:
            with Image.open(os.path.join(path, name, file)) as picture:
                sides.append(min(picture.size))
                grey &= picture.mode in ("1", "L", "LA", "I;16", "I", "F")
        except OSError:
            continue  # reported when the image is read for training
    side = int(np.median(sides)) if sides else 64
    smallest = min(len(inside) for inside in found.values())
    return Folders(len(found), len(files), smallest, side, 1 if grey and sides else 3)


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


def settings_for(asked: argparse.Namespace, gpu: bool) -> Settings:
    """Settings of a run on the folder `asked.pool`; `put_flags` then puts the flags over them."""
    pool = look_at(asked.pool)
    usual = PAPER if pool.classes >= PAPER else max(1, pool.classes // 2)
    m = usual if asked.m is None else asked.m
    if not 1 <= m <= pool.classes:
        raise InputError(
            f"Expected -m from 1 to {pool.classes}, the classes of {asked.pool}, but got {m}."
        )
    size = asked.size or max(8, min(128 if gpu else 64, pool.side))
    count = cores()
    workers = min(8, count) if gpu else min(4, count // 2 - 1) if count > 3 else 0
    run = asked.run or "runs/fit"
    data: Settings = {
        "size": size,
        "channels": pool.channels,
        "batch_size": 64 if m * pool.images / pool.classes >= 512 else 16,
        "num_workers": workers,
        "persistent_workers": workers > 0,
        "on_corrupt": "skip",
        "augment": {
            "class_path": f"{_PACKAGE}.augment.CropAndFlip",
            "init_args": {"padding": max(1, size // 8)},
        },
    }
    if asked.label is not None:
        data["queue"] = str(Path(run) / QUEUE)
    callbacks = []
    if asked.novel is not None:
        task = look_at(asked.novel)
        shots = asked.shots or max(1, min(5, task.smallest // 2))
        data |= {"shots": shots, "queries": max(1, min(100, task.smallest - shots))}
        callbacks.append({"class_path": EVALUATION, "init_args": {"shots": shots}})
    finetune = asked.backbone is not None and asked.train in (None, "finetune")
    epochs = 10 if finetune else 120 if gpu else 30
    trainer: Settings = {"log_every_n_steps": 1, "enable_model_summary": False}
    chosen: Settings = {} if asked.backbone is None else {"extractor": asked.backbone}
    staged = asked.backbone is None or asked.schedule is not None
    if staged:
        chosen |= {"schedule": doubled_up_to(m), "epochs_per_stage": epochs}
    else:
        chosen["m"] = m
        trainer["max_epochs"] = epochs
    callbacks.append({"class_path": COLD_START if staged else ONCE, "init_args": chosen})
    return {
        "run": run,
        "seed_everything": 0,
        "data": {"class_path": DATA, "init_args": data},
        "model": {"class_path": MODEL, "init_args": _model(asked, pool, size, gpu, finetune)},
        "trainer": trainer | {"callbacks": callbacks},
    }


def _model(
    asked: argparse.Namespace, pool: Folders, size: int, gpu: bool, finetune: bool
) -> Settings:
    if finetune:
        return {"backbone": asked.backbone, "lr": 0.01, "schedule": "one-cycle"}
    if pool.channels == 1 and size <= 40:
        network = {"backbone": "conv4"}
    elif gpu:
        network = {"backbone": "resnet18", "stem": "cifar" if size <= 96 else "imagenet"}
    else:
        network = {"backbone": "resnet8"}
    return network | {"in_channels": pool.channels, "schedule": "one-cycle"}


def put_flags(settings: Settings, asked: argparse.Namespace) -> None:
    """Put the flags of the command line over everything else."""

    def put(into: Settings, **flags: object) -> None:
        into |= {name: value for name, value in flags.items() if value is not None}

    put(settings, run=asked.run, seed_everything=asked.seed, ckpt_path=asked.ckpt_path)
    data = settings.setdefault("data", {}).setdefault("init_args", {})
    put(data, path=asked.pool, novel_path=asked.novel, size=asked.size, shots=asked.shots)
    put(data, labelled=asked.label, needed=asked.needed, seed=asked.seed, split_seed=asked.seed)
    put(settings.setdefault("model", {}).setdefault("init_args", {}), seed=asked.seed)
    for entry in callbacks_of(settings, "NovelEvaluation"):
        put(entry.setdefault("init_args", {}), shots=asked.shots)
    chosen = next(iter(callbacks_of(settings, "selection")), None)
    if chosen is None:
        if any(one is not None for one in (asked.k, asked.m, asked.schedule, asked.similarity)):
            raise InputError(
                "Expected a selection callback for -m, -k, --similarity and --schedule but the "
                "settings have none; add ColdStartSelection or SelectBaseClasses to "
                "trainer.callbacks."
            )
        return
    arguments = chosen.setdefault("init_args", {})
    put(arguments, k=asked.k, similarity=asked.similarity, seed=asked.seed)
    if not chosen["class_path"].endswith("ColdStartSelection"):
        if asked.schedule is not None:
            raise InputError(
                "Expected --schedule with ColdStartSelection but the YAML file has "
                "SelectBaseClasses, which chooses once; use -m instead."
            )
        put(arguments, m=asked.m)
        put(settings.setdefault("trainer", {}), max_epochs=asked.epochs)
        return
    sizes = None if asked.m is None else doubled_up_to(asked.m)
    if asked.schedule is not None:
        try:
            sizes = [int(part) for part in asked.schedule.replace("-", ",").split(",")]
        except ValueError:
            raise InputError(
                "Expected --schedule to be numbers of classes, as in 6,12,25, but got "
                f"{asked.schedule!r}."
            ) from None
        if asked.m not in (None, sizes[-1]):
            raise InputError(
                f"Expected --schedule to end with -m {asked.m} but got {asked.schedule}; leave one "
                "out."
            )
    put(arguments, schedule=sizes, epochs_per_stage=asked.epochs)
