"""A training loop in plain PyTorch, without Lightning and without learn2learn.

    python examples/plain_pytorch.py

Everything of this library it needs is in `fsl_basesel`: a pool of candidates, a novel task,
centroids of features, a selection with its proof, and the images of the selected classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

import fsl_basesel as fb
from fsl_basesel.data import ImageSet, glyph_splits


def network(classes: int, seed: int) -> tuple[nn.Module, nn.Module]:
    """A small network and a classifier on its 64 features."""
    torch.manual_seed(seed)
    widths = (1, 16, 32, 64)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers), nn.Linear(64, classes)


def train(images: ImageSet, classes: int, epochs: int, seed: int) -> nn.Module:
    """Train a classifier of the classes; return the network without its last layer."""
    features, classifier = network(classes, seed)
    optimizer = torch.optim.Adam([*features.parameters(), *classifier.parameters()], 3e-3)
    loader = DataLoader(images, batch_size=64, shuffle=True)
    for _ in range(epochs):
        for batch, labels in loader:
            loss = nn.functional.cross_entropy(classifier(features(batch)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return features.eval()


@torch.no_grad()
def features_of(features: nn.Module, images: ImageSet) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of all images."""
    batches = [(features(batch), labels) for batch, labels in DataLoader(images, batch_size=256)]
    return tuple(torch.cat(part).numpy() for part in zip(*batches, strict=True))


def nearest_centroid(features: nn.Module, support: ImageSet, test: ImageSet) -> float:
    """Accuracy of the paper's 1-NN head."""
    centroids = fb.class_centroids(*features_of(features, support))
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    queries, labels = features_of(features, test)
    return float(((queries @ centroids.T).argmax(1) == labels).mean())


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Select, train and test; accuracies of a random and of the selected base set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--novel", type=int, default=30)
    parser.add_argument("--pretraining", type=int, default=30, help="classes of the first network")
    parser.add_argument("--classes", type=int, default=30, help="how many classes to select")
    parser.add_argument("--images", type=int, default=60, help="images of each class")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    splits = glyph_splits(
        "plain",
        args.candidates,
        args.novel,
        args.pretraining,
        args.seed,
        per_class=args.images,
        preview=10,
        shots=5,
        queries=min(40, args.images - 5),
    )
    first = train(splits.pretraining.training_set(), args.pretraining, args.epochs, args.seed)
    pool, novel = splits.candidates, splits.novel
    problem = fb.SelectionProblem.from_centroids(
        fb.class_centroids(*features_of(first, pool.preview_set())),
        fb.class_centroids(*features_of(first, novel.support_set())),
        m=args.classes,
        k=3,
        names=pool.names,
        novel_names=novel.names,
    )
    accuracies = {}
    for method in ("random", "auto"):
        selection = fb.select(problem, method, seed=args.seed)
        pool.expand(set(selection.indices) - set(pool.expanded))
        images = pool.training_set(selection.indices)
        trained = train(images, args.classes, args.epochs, args.seed)
        accuracy = nearest_centroid(trained, novel.support_set(), novel.test_set())
        accuracies[method] = accuracy
        print(
            f"{method}: value {selection.value:.4f}, gap {selection.gap:.2%}, "
            f"{args.novel}-way 5-shot accuracy {accuracy:.3f}"
        )
    return accuracies


if __name__ == "__main__":
    main()
