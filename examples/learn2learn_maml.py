"""A learn2learn MAML experiment, and the one line that lets it train on selected classes.

python examples/learn2learn_maml.py
FSL_BASESEL_DATA=folder python examples/learn2learn_maml.py --data omniglot
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from typing import Any

import learn2learn as l2l
import torch
from example_data import add_data_arguments, meta_dataset, sources
from learn2learn.data.transforms import FusedNWaysKShots, LoadData, RemapLabels
from torch import nn

import fsl_basesel as fb
from lightning_modules.learn2learn import select_classes, selection_problem


def adapt(learner: Any, task: tuple, shots: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and accuracy of one task after a few steps on its support set."""
    (support, support_labels), (query, labels) = l2l.data.partition_task(*task, shots=shots)
    for _ in range(steps):
        learner.adapt(nn.functional.cross_entropy(learner(support), support_labels))
    logits = learner(query)
    return nn.functional.cross_entropy(logits, labels), l2l.utils.accuracy(logits, labels)


def main(argv: Sequence[str] | None = None) -> float:
    """Train and test; the accuracy on the novel classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_arguments(parser)
    parser.add_argument("--classes", type=int, default=50, help="how many classes to train on")
    parser.add_argument("--ways", type=int, default=5)
    parser.add_argument("--shots", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1, help="steps of the adaptation")
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--tasks", type=int, default=8, help="tasks of an iteration")
    args = parser.parse_args(argv)
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    candidates, novel = (meta_dataset(source) for source in sources(args))
    train_tasks, test_tasks = (
        l2l.data.Taskset(
            dataset,
            [
                FusedNWaysKShots(dataset, args.ways, 2 * args.shots),
                LoadData(dataset),
                RemapLabels(dataset),
            ],
        )
        for dataset in (candidates, novel)
    )
    network = l2l.vision.models.OmniglotFC(28**2, args.ways)

    # The line that is new. OmniglotFC normalises each batch by itself, so the selection looks at
    # the pixels instead; a network with running statistics would do better.
    select_classes(
        train_tasks,
        fb.select(
            selection_problem(candidates, nn.Flatten(), novel, m=args.classes, k=3, preview=5)
        ),
    )

    maml = l2l.algorithms.MAML(network, lr=0.5)
    optimizer = torch.optim.Adam(maml.parameters(), 3e-3)
    for iteration in range(args.iterations):
        optimizer.zero_grad()
        accuracies = []
        for _ in range(args.tasks):
            loss, accuracy = adapt(maml.clone(), train_tasks.sample(), args.shots, args.steps)
            (loss / args.tasks).backward()
            accuracies.append(accuracy)
        optimizer.step()
        if (iteration + 1) % 20 == 0:
            print(f"iteration {iteration + 1}: accuracy {torch.stack(accuracies).mean():.2f}")
    tested = [adapt(maml.clone(), test_tasks.sample(), args.shots, args.steps) for _ in range(50)]
    mean = float(torch.stack([accuracy for _, accuracy in tested]).mean())
    print(f"novel classes, {args.ways}-way {args.shots}-shot: accuracy {mean:.3f}")
    return mean


if __name__ == "__main__":
    main()
