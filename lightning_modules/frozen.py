"""`fit --train frozen`: classes chosen and novel classes told apart by fixed features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import fsl_basesel as fb
from fsl_basesel.backbones import load_backbone
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import csv_text, write_text
from fsl_basesel.photographs import EmbeddingJob
from fsl_basesel.report.record import save_classes, save_pictures, selection_file
from lightning_modules.callbacks.novel_evaluation import Moment, row_of
from lightning_modules.callbacks.select_base_classes import SelectBaseClasses
from lightning_modules.data import BaseClassDataModule
from lightning_modules.episodes import TaskEpisodes
from lightning_modules.evaluation import NovelAccuracy, novel_accuracy
from lightning_modules.fitting import show_result, write_report
from lightning_modules.heads import WhitenedCentroid
from lightning_modules.resume import require_same

if TYPE_CHECKING:
    from lightning_modules.cli import FitCLI

IDENTITY = "frozen.json"


def frozen_run(command: FitCLI, backbone: str, control: bool) -> None:
    """Choose classes and judge the head `WhitenedCentroid` on them; nothing is trained.

    Features are cached, so a run that was killed goes on where it was.
    """
    data, callback, folder = command.datamodule, command.selection, command.folder
    if data.novel is None:
        raise InputError("Expected --novel, the task to tell apart, for --train frozen.")
    if not isinstance(callback, SelectBaseClasses):
        raise InputError(
            "Expected one selection for --train frozen but got --schedule; use -m instead."
        )
    callback.data = data
    _require_own(folder, data.identity() | callback.settings())
    network = load_backbone(backbone)
    data.add_classes(callback.selected)
    problem = callback.problem(command.trainer, command.model, callback.m, by=backbone)
    assert callback._centroids is not None
    selection = fb.select(problem, callback.method, callback.seed)
    selection.save(folder / selection_file(1))
    save_classes(folder, 1, *callback._centroids)
    save_pictures(folder, data.pool, data.novel)
    before = list(problem.selected)
    result = _accuracy(data, before + selection.indices, network)
    m = len(before) + callback.m
    row = row_of(Moment(0, 0, 0, m), result, callback.seed)
    write_text(folder / f"novel_allway_{data.novel.shots}shot.csv", csv_text([row]))
    random = None
    if control:
        drawn = fb.select(problem, "random", callback.seed, certify=False).indices
        random = _accuracy(data, before + drawn, network)
    show_result(folder, m, result, random)
    write_report(folder)


def _require_own(folder: Path, identity: dict[str, Any]) -> None:
    """Refuse a folder with the run of other data or settings."""
    try:
        require_same(json.loads((folder / IDENTITY).read_text(encoding="utf-8")), identity)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise InputError(f"{error} Or name another folder with --run.") from error
    write_text(folder / IDENTITY, json.dumps(identity, indent=2) + "\n")


def _accuracy(data: BaseClassDataModule, classes: list[int], network: Any) -> NovelAccuracy:
    """Accuracy on the draws of the novel task, with these base classes."""
    novel = data.novel
    assert novel is not None
    data.pool.expand(classes)
    options: dict[str, Any] = {"per_class": None, "on_corrupt": "skip"}
    source = data.pool.source.subset(classes)
    base = EmbeddingJob(source, network, title="Base classes", **options).features()
    head = WhitenedCentroid(*map(torch.from_numpy, base))
    values, labels = EmbeddingJob(
        novel.source, network, title="Novel classes", **options
    ).features()
    plan = TaskEpisodes(novel, novel.shots)
    counts = np.bincount(labels, minlength=len(novel))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    rows = starts[plan.images.classes] + plan.images.items
    inputs = torch.from_numpy(values[rows])
    return novel_accuracy(head, plan, inputs, plan.episodes, torch.device("cpu"))
