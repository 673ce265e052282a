"""A learn2learn ANIL experiment as a curriculum: the same line, called again with more classes.

python examples/learn2learn_anil.py
FSL_BASESEL_DATA=folder python examples/learn2learn_anil.py --data omniglot
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


def adapt(
    features: nn.Module, head: Any, task: tuple, shots: int, steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and accuracy of one task after a few steps of the head."""
    (support, support_labels), (query, labels) = l2l.data.partition_task(*task, shots=shots)
    learnt, asked = features(support), features(query)
    learner = head.clone()
    for _ in range(steps):
        learner.adapt(nn.functional.cross_entropy(learner(learnt), support_labels))
    logits = learner(asked)
    return nn.functional.cross_entropy(logits, labels), l2l.utils.accuracy(logits, labels)


def main(argv: Sequence[str] | None = None) -> float:
    """Train in stages and test; the accuracy on the novel classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_arguments(parser)
    parser.add_argument("--schedule", type=int, nargs="+", default=[10, 25, 50], help="classes")
    parser.add_argument("--ways", type=int, default=5)
    parser.add_argument("--shots", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="steps of the adaptation")
    parser.add_argument("--iterations", type=int, default=30, help="of each stage")
    parser.add_argument("--tasks", type=int, default=4, help="tasks of an iteration")
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
    features = nn.Sequential(l2l.vision.models.CNN4Backbone(32, channels=1), nn.Flatten())
    head = l2l.algorithms.MAML(nn.Linear(32, args.ways), lr=0.1)
    optimizer = torch.optim.Adam([*features.parameters(), *head.parameters()], 1e-3)

    chosen = random.sample(candidates.labels, args.schedule[0])
    for stage, size in enumerate(args.schedule):
        if stage:
            # What the network has learnt so far says which classes to add.
            problem = selection_problem(
                candidates, features, novel, m=size - len(chosen), k=3, selected=chosen, preview=5
            )
            chosen = chosen + fb.select(problem).indices
        select_classes(train_tasks, chosen)  # the line that is new
        for _ in range(args.iterations):
            optimizer.zero_grad()
            for _ in range(args.tasks):
                task = train_tasks.sample()
                loss, accuracy = adapt(features.train(), head, task, args.shots, args.steps)
                (loss / args.tasks).backward()
            optimizer.step()
        print(f"stage {stage + 1}, {size} classes: accuracy of the last task {accuracy:.2f}")
    features.eval()
    tasks = [test_tasks.sample() for _ in range(50)]
    tested = [adapt(features, head, task, args.shots, args.steps)[1] for task in tasks]
    mean = float(torch.stack(tested).mean())
    print(f"novel classes, {args.ways}-way {args.shots}-shot: accuracy {mean:.3f}")
    return mean


if __name__ == "__main__":
    main()
