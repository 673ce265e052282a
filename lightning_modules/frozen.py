"""`fit --train frozen`: classes chosen and novel classes told apart by fixed features."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fsl_basesel as fb
from fsl_basesel.backbones import load_backbone
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import csv_text, write_text
from fsl_basesel.photographs import EmbeddingJob
from fsl_basesel.report.record import save_classes, save_pictures, selection_file
from lightning_modules import found
from lightning_modules.callbacks.novel_evaluation import Moment, row_of
from lightning_modules.data import BaseClassDataModule
from lightning_modules.episodes import TaskEpisodes
from lightning_modules.evaluation import NovelAccuracy, novel_accuracy
from lightning_modules.experiments.from_settings import build
from lightning_modules.features import extractor_centroids
from lightning_modules.fitting import compare, say, write_report
from lightning_modules.heads import WhitenedCentroid
from lightning_modules.resume import require_same

IDENTITY = "frozen.json"


def frozen_run(asked: argparse.Namespace, settings: found.Settings) -> NovelAccuracy:
    """Choose classes and judge the head `WhitenedCentroid` on them; nothing is trained.

    Features are cached, so a run that was killed goes on where it was.

    Returns:
        The accuracy on the novel task.
    """
    data = build(settings["data"])
    if data.novel is None:
        raise InputError("Expected --novel, the task to tell apart, for --train frozen.")
    folder = Path(settings["run"])
    chosen = found.selection_of(settings)
    assert chosen is not None
    arguments = chosen["init_args"]
    m, k, seed = arguments["m"], arguments.get("k", 3), arguments.get("seed", 0)
    _require_own(folder, data.identity() | {"extractor": asked.backbone, "m": m, "k": k})
    network = load_backbone(asked.backbone)
    candidates, novel = extractor_centroids(data, data.novel, asked.backbone, "features")
    assert novel is not None
    problem = fb.SelectionProblem.from_centroids(
        candidates.values,
        novel.values,
        m,
        k,
        names=candidates.names,
        novel_names=novel.names,
        similarity=arguments.get("similarity", "cosine"),
    )
    selection = fb.select(problem, arguments.get("method", "auto"), seed=seed)
    selection.save(folder / selection_file(1))
    save_classes(folder, 1, candidates, novel)
    save_pictures(folder, data.pool, data.novel)
    result = _accuracy(data, selection.indices, network)
    row = row_of(Moment(0, 0, 0, m), result, seed)
    name = f"novel_allway_{data.novel.shots}shot.csv"
    write_text(folder / name, csv_text([row]))
    if asked.control is None:
        say(f"Novel task: {result} over {len(result.accuracies)} draws")
    else:
        drawn = fb.select(problem, "random", seed=seed, certify=False).indices
        setting = {"experiment": "fit", "domain": folder.name, "m": m}
        compare(folder, result, _accuracy(data, drawn, network), setting)
    write_report(folder)
    return result


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
    head = WhitenedCentroid(torch.from_numpy(base.values), torch.from_numpy(base.labels))
    task = EmbeddingJob(novel.source, network, title="Novel classes", **options).features()
    plan = TaskEpisodes(novel, novel.shots)
    counts = np.bincount(task.labels, minlength=len(novel))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    rows = starts[plan.images.classes] + plan.images.items
    inputs = torch.from_numpy(task.values[rows])
    return novel_accuracy(head, plan, inputs, plan.episodes, torch.device("cpu"))
