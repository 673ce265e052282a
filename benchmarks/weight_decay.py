"""Softmax regression on real features: how much does its weight decay matter?

    FSL_BASESEL_DATA=folder nice python benchmarks/weight_decay.py

EfficientNet-Lite0 features of ImageNet-1k (6 images a class) and Caltech-101 (20 images a class),
random episodes; the same ones for every weight decay. Prints the table of docs/results.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fsl_basesel.data import NovelTask, from_features
from lightning_modules.evaluation import evaluate_novel
from lightning_modules.heads import Head, NearestCentroid, SoftmaxRegression

DECAYS = (1e-5, 1e-4, 5e-4, 1e-3, 1e-2, 1e-1)
# File, name, and (ways, shots, queries, episodes) of each kind.
SETTINGS = {
    "imagenet1k_efflite0_feats.npz": (
        "ImageNet-1k",
        [(5, 1, 5, 200), (5, 5, 1, 400), (100, 1, 5, 5), (100, 5, 1, 5)],
    ),
    "caltech101_efflite0_feats.npz": (
        "Caltech-101",
        [(5, 1, 15, 200), (5, 5, 15, 100), (100, 1, 15, 5), (100, 5, 15, 3)],
    ),
}


def main(argv: Sequence[str] | None = None) -> str:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FSL_BASESEL_DATA", ".")))
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    heads: list[Head] = [SoftmaxRegression(weight_decay=decay) for decay in DECAYS]
    heading = ["features", "episodes", *(f"{decay:g}" for decay in DECAYS), "nearest centroid"]
    lines = [f"| {' | '.join(heading)} |", "|---" * len(heading) + "|"]
    for name, (title, kinds) in SETTINGS.items():
        with np.load(args.data / name) as file:
            features, labels = file["feat"].astype(np.float32), file["label"].astype(int)
        source = from_features(features, labels)
        task = NovelTask(source, shots=1, queries=int(source.sizes.max()) - 1)
        for ways, shots, queries, episodes in kinds:
            kind = (ways, shots, queries, episodes)
            found = [evaluate_novel(None, task, [h], *kind)[0] for h in (*heads, NearestCentroid())]
            cells = [title, f"{ways}-way {shots}-shot", *(f"{100 * r.mean:.2f}" for r in found)]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    text = "\n".join(lines)
    print(text)
    return text


if __name__ == "__main__":
    main()
