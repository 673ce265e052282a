"""Run folders for the tests of the report: small ones that are real, and hostile ones."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl

import fsl_basesel as fb
from fsl_basesel.data import glyphs
from fsl_basesel.report.record import save_classes
from fsl_basesel.similarity import ClassCentroids
from lightning_modules import (
    BaseClassDataModule,
    BaseClassifier,
    ColdStartSelection,
    NovelEvaluation,
)

HOSTILE = [
    "<script>document.title = 'owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</style></title></svg><b>bold",
    "'; alert(1); //",
    "$x_1$ & <i>",
    "名前 ‮right to left",
    "שלום (עולם) 12",
    "control \x00\x07 characters",
    "{{template}} ${js} %s",
    "new\nline\ttab",
    "x" * 500,
]


def trained(folder: Path) -> Path:
    """A cold start on glyphs, in a few seconds."""
    pool, novel = glyphs("fine", 24, 8, preview=5, per_class=32, shots=5, queries=8)
    data = BaseClassDataModule(pool, novel, batch_size=64)
    selection = ColdStartSelection((3, 6, 10), 1, k=2, verbose=False)
    evaluation = NovelEvaluation(shots=2, queries=4, episodes=3, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(
            default_root_dir=folder,
            logger=False,
            accelerator="cpu",
            callbacks=[evaluation, selection],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(BaseClassifier("conv3"), data)
    write_results(folder)
    (folder / "settings.yaml").write_text("schedule: [3, 6, 10]\nname: <b>&amp;\n")
    return folder


def selected(
    folder: Path,
    candidates: int = 30,
    novel: int | None = 10,
    names: list[str] | None = None,
    centroids: bool = True,
    **settings: Any,
) -> Path:
    """A selection of random vectors, with or without its centroids."""
    draw = np.random.default_rng(0)
    base = np.abs(draw.normal(size=(candidates, 16)))
    target = None if novel is None else np.abs(draw.normal(size=(novel, 16)))
    given = names or []
    base_names = [*given, *(f"class {i}" for i in range(len(given), candidates))]
    novel_names = [*(f"novel {n}" for n in given), *(f"task {i}" for i in range(len(given), 10**6))]
    problem = fb.SelectionProblem.from_centroids(
        base,
        target,
        **({"m": 8, "k": 3} | settings),
        names=base_names,
        novel_names=None if novel is None else novel_names[:novel],
    )
    selection = fb.select(problem, "greedy-target", certify=centroids)
    selection.save(folder / "selection.json")
    if centroids:
        classes = None if target is None else ClassCentroids(target, novel_names[:novel])
        save_classes(folder, 1, ClassCentroids(base, base_names), classes)
    return folder


def write_results(folder: Path) -> None:
    """A table of methods with an effect that is there, and one that is not."""
    fixed = {"experiment": "table", "domain": "fine", "setting": "cold-start", "k": 2, "lam": 0}
    rows = []
    draw = np.random.default_rng(3)
    for m in (6, 10):
        for seed in range(5):
            start = 0.4 + draw.normal(0, 0.02)
            for label, effect in (
                ("Random", 0.0),
                ("Random (second draw)", 0.0),
                ("<b>auto", 0.05),
            ):
                accuracy = start + effect + (draw.normal(0, 0.005) if label != "Random" else 0)
                rows.append(
                    fixed
                    | {
                        "method": label,
                        "label": label,
                        "m": m,
                        "seed": seed,
                        "head": "NearestCentroid",
                    }
                    | {"shots": 5, "accuracy": accuracy, "value": 0.5, "upper_bound": 0.5}
                    | {"gap": 0, "seconds": 1}
                )
    with open(folder / "results.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
