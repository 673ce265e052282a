"""A learn2learn ProtoNet experiment, and the one line that lets it train on selected classes.

python examples/learn2learn_protonet.py
FSL_BASESEL_DATA=folder python examples/learn2learn_protonet.py --data omniglot
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

import learn2learn as l2l
import torch
from example_data import add_data_arguments, meta_dataset, sources
from learn2learn.data.transforms import KShots, LoadData, NWays, RemapLabels
from torch import nn

import fsl_basesel as fb
from lightning_modules.learn2learn import select_classes, selection_problem


def adapt(network: nn.Module, task: tuple, shots: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and accuracy of one task."""
    (support, support_labels), (query, labels) = l2l.data.partition_task(*task, shots=shots)
    classifier = l2l.nn.PrototypicalClassifier(network(support), support_labels)
    logits = classifier(network(query))
    return nn.functional.cross_entropy(logits, labels), l2l.utils.accuracy(logits, labels)


def main(argv: Sequence[str] | None = None) -> float:
    """Train and test; the accuracy on the novel classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_arguments(parser)
    parser.add_argument("--classes", type=int, default=50, help="how many classes to train on")
    parser.add_argument("--ways", type=int, default=10)
    parser.add_argument("--shots", type=int, default=1)
    parser.add_argument("--queries", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=200, help="training tasks")
    args = parser.parse_args(argv)
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    candidates, novel = (meta_dataset(source) for source in sources(args))
    train_tasks, test_tasks = (
        l2l.data.Taskset(
            dataset,
            [
                NWays(dataset, args.ways),
                KShots(dataset, args.shots + args.queries),
                LoadData(dataset),
                RemapLabels(dataset),
            ],
        )
        for dataset in (candidates, novel)
    )
    network = nn.Sequential(l2l.vision.models.CNN4Backbone(32, channels=1), nn.Flatten())

    # The line that is new. The features are those of the network as it is here: better ones, of a
    # network trained on some classes you already have, give a better selection.
    select_classes(
        train_tasks,
        fb.select(selection_problem(candidates, network, novel, m=args.classes, k=3, preview=5)),
    )

    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for step in range(args.tasks):
        loss, accuracy = adapt(network.train(), train_tasks.sample(), args.shots)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 50 == 0:
            print(f"task {step + 1}: loss {loss:.3f}, accuracy {accuracy:.2f}")
    with torch.no_grad():
        network.eval()
        results = [adapt(network, test_tasks.sample(), args.shots)[1] for _ in range(50)]
    mean = float(torch.stack(results).mean())
    print(f"novel classes, {args.ways}-way {args.shots}-shot: accuracy {mean:.3f}")
    return mean


if __name__ == "__main__":
    main()
