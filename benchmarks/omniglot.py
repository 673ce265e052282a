"""Omniglot: does it matter which background characters a network is trained on?

    FSL_BASESEL_DATA=folder nice python benchmarks/omniglot.py

964 background characters are the candidates, the 659 evaluation characters are novel. In each of
five seeds a network is trained on 32 random candidates; its features choose 64 more, by every
method; then a new network is trained on the 96, once as a classifier and once as a ProtoNet, and
judged on the novel characters. Within a seed everything but the choice is the same: the first 32,
the initial weights, the number of training images, the episodes. Figures in docs/results.md.

Every network leaves a file in `--out`, so the command can be stopped and started again.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

import fsl_basesel as fb
from fsl_basesel.data import ClassPool, ImageSource, NovelTask, from_arrays, from_features
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import write_text
from fsl_basesel.report.paired import estimate, points
from lightning_modules import BaseClassDataModule, BaseClassifier
from lightning_modules.backbones import ConvNet
from lightning_modules.evaluation import evaluate_novel
from lightning_modules.features import image_centroids
from lightning_modules.heads import NearestCentroid, ProtoNet
from lightning_modules.learn2learn import SelectedTasks

METHODS: dict[str, tuple[str, float]] = {
    "Random": ("random", 0.0),
    "Alg. 1": ("greedy-novel", 0.0),
    "Alg. 2": ("greedy-target", 0.0),
    "auto": ("auto", 0.0),
    "auto, λ = 0.5": ("auto", 0.5),
}
TRAININGS = {"classifier": "nearest centroid", "protonet": "ProtoNet"}
WAYS, SHOTS, QUERIES = 20, 1, 4


@dataclass(frozen=True)
class Omniglot:
    """Images and labels of the two parts, and the pool of candidates."""

    pool: ClassPool
    pixels: np.ndarray
    labels: np.ndarray
    names: list[str]

    def novel(self, source: ImageSource, seed: int) -> NovelTask:
        """Five images of each novel class to learn from, fifteen to test on; draw `seed`."""
        return NovelTask(source, shots=5, queries=15, repeat=seed)


def load(folder: str, novel: int) -> Omniglot:
    """The data, with the first `novel` of the evaluation characters."""
    path = Path(folder) / "omniglot28.npz"
    if not path.exists():
        raise InputError(f"Expected {path} to exist; set FSL_BASESEL_DATA to the folder it is in.")
    with np.load(path) as file:
        pixels = 255 * np.unpackbits(file["bits"], axis=1)[:, :784].reshape(-1, 28, 28)
        labels, names = file["label"].astype(int), [str(name) for name in file["class_name"]]
        background = file["is_background"]
    base, rest = np.flatnonzero(background), np.flatnonzero(~background)[:novel]
    everything = from_arrays(pixels, labels, names)
    inside = np.isin(labels, rest)
    return Omniglot(
        ClassPool(everything.subset(base.tolist()), preview=5),
        pixels[inside],
        np.searchsorted(rest, labels[inside]),
        [names[c] for c in rest],
    )


def network(seed: int) -> ConvNet:
    """Four blocks of up to 32 channels; the weights are a function of the seed."""
    torch.manual_seed(seed)
    # Channels last is twice as fast here, on a CPU.
    return ConvNet((16, 32, 32, 32), 1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def train(data: Omniglot, classes: list[int], how: str, epochs: int, seed: int) -> Any:
    """A network trained on these candidates, as a classifier or as a ProtoNet."""
    module: pl.LightningModule
    if how == "classifier":
        images = BaseClassDataModule(data.pool, batch_size=64, seed=seed)
        module = BaseClassifier(network(seed), lr=0.05, capacity=len(classes), seed=seed)
    else:
        # As many images in all as the classifier sees.
        tasks = max(1, epochs * 20 * len(classes) // (WAYS * (SHOTS + QUERIES)))
        ways = min(WAYS, len(classes))
        images = SelectedTasks(data.pool, None, ways, SHOTS, QUERIES, tasks, seed=seed)
        module, epochs = ProtoNet(network(seed), shots=SHOTS), 1
    images.add_classes(classes)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, images)
    return module


@torch.no_grad()
def evaluate(data: Omniglot, module: Any, how: str, seed: int) -> dict[str, float]:
    """Accuracies on the novel classes: all of them at once, and 20 at a time."""
    module.eval()
    batches = torch.from_numpy(data.pixels).split(512)
    features = torch.cat([module.features(part[:, None].float() / 255) for part in batches])
    # The order of a class's images is that of the images themselves, so draws are the same.
    task = data.novel(from_features(features, data.labels, data.names), seed)
    head = NearestCentroid() if how == "classifier" else ProtoNet()
    (everything,) = evaluate_novel(None, task, [head], shots=5, episodes=1)
    (sampled,) = evaluate_novel(None, task, [head], min(20, len(task)), 1, 15, 400, seed)
    return {"all-way 5-shot": everything.mean, "20-way 1-shot": sampled.mean}


def run_seed(data: Omniglot, seed: int, args: argparse.Namespace) -> None:
    """All networks of a seed that have left no file yet."""
    wanted = [(method, how) for method in METHODS for how in TRAININGS]
    missing = [pair for pair in wanted if not file_of(args.out_dir, seed, *pair).exists()]
    if not missing:
        return
    candidates = len(data.pool)
    nothing_known = fb.SelectionProblem(np.zeros((1, candidates)), m=args.start, k=1)
    start = fb.select(nothing_known, "random", seed=seed, certify=False).indices
    extractor = train(data, start, "classifier", args.epochs, seed)
    novel = data.novel(from_arrays(data.pixels, data.labels, data.names), seed)
    centroids = (
        image_centroids(data.pool.preview_set(), candidates, extractor),
        image_centroids(novel.support_set(), len(novel), extractor),
    )
    problem = fb.SelectionProblem.from_centroids(*centroids, m=args.classes, k=3, selected=start)
    for method, how in missing:
        began = time.process_time()
        name, lam = METHODS[method]
        selection = fb.select(problem.replace(lam=lam), name, seed=seed)
        module = train(data, start + selection.indices, how, args.epochs, seed)
        result = {
            "seed": seed,
            "method": method,
            "training": how,
            "value": problem.value(selection.indices),
            "gap": selection.gap,
            **evaluate(data, module, how, seed),
            "cpu_seconds": time.process_time() - began,
        }
        write_text(file_of(args.out_dir, seed, method, how), json.dumps(result, indent=1) + "\n")
        print(json.dumps(result), flush=True)


def file_of(folder: Path, seed: int, method: str, how: str) -> Path:
    word = "".join(c if c.isalnum() else "-" for c in method)
    return folder / f"{seed}_{word}_{how}.json"


def table(results: Sequence[dict[str, Any]]) -> str:
    """Means over seeds, and paired differences to Random with 95 % intervals, in points."""
    lines = [
        "| training, head | method | h (λ = 0) | 659-way 5-shot | against Random | 20-way 1-shot "
        "| against Random |",
        "|---|---|---|---|---|---|---|",
    ]
    by = {(r["training"], r["method"], r["seed"]): r for r in results}
    seeds = sorted({r["seed"] for r in results})
    for how, head in TRAININGS.items():
        for method in METHODS:
            rows = [by[how, method, seed] for seed in seeds]
            random = [by[how, "Random", seed] for seed in seeds]
            cells = [f"{how}, {head}", method, f"{np.mean([r['value'] for r in rows]):.4f}"]
            for measure in ("all-way 5-shot", "20-way 1-shot"):
                cells.append(f"{100 * np.mean([r[measure] for r in rows]):.2f} %")
                pairs = zip(rows, random, strict=True)
                found = estimate([a[measure] - b[measure] for a, b in pairs])
                cells.append("" if method == "Random" else points(found, sign=True))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> str:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("FSL_BASESEL_DATA", "."))
    parser.add_argument("--out-dir", type=Path, default=Path("runs/omniglot"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--start", type=int, default=32, help="random classes every method has")
    parser.add_argument("--classes", type=int, default=64, help="classes to choose (m)")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--novel", type=int, default=659, help="novel classes")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in ("pytorch_lightning", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    args.out_dir.mkdir(parents=True, exist_ok=True)
    data = load(args.data, args.novel)
    for seed in range(args.seeds):
        run_seed(data, seed, args)
    results = [json.loads(path.read_text()) for path in sorted(args.out_dir.glob("*.json"))]
    total = sum(result["cpu_seconds"] for result in results)
    text = table(results)
    print(text)
    print(f"{total / 60:.1f} minutes of one core, the first networks of each seed not counted")
    return text


if __name__ == "__main__":
    main()
