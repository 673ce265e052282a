"""learn2learn's own Lightning modules in the paper's cold start: classes are chosen as they train.

python examples/learn2learn_lightning.py --algorithm protonet
FSL_BASESEL_DATA=folder python examples/learn2learn_lightning.py --data omniglot
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import learn2learn as l2l
import pytorch_lightning as pl
import torch
from example_data import add_data_arguments, sources
from learn2learn.algorithms import LightningANIL, LightningMAML, LightningPrototypicalNetworks
from torch import nn

from fsl_basesel.data import ClassPool, NovelTask
from lightning_modules import ColdStartSelection, NovelEvaluation
from lightning_modules.heads import NearestCentroid
from lightning_modules.learn2learn import SelectedTasks


def build(algorithm: str, ways: int, shots: int, queries: int) -> pl.LightningModule:
    """learn2learn's module, with `features` for the selection to look at."""
    task = {"train_ways": ways, "train_shots": shots, "train_queries": queries}
    task |= {"test_ways": ways, "test_shots": shots, "test_queries": queries}
    encoder = nn.Sequential(l2l.vision.models.CNN4Backbone(32, channels=1), nn.Flatten())
    if algorithm == "protonet":
        return LightningPrototypicalNetworks(encoder, **task)
    if algorithm == "anil":
        return LightningANIL(encoder, nn.Linear(32, ways), adaptation_steps=5, **task)
    module = LightningMAML(nn.Sequential(encoder, nn.Linear(32, ways)), **task)
    module.features = encoder
    return module


def main(argv: Sequence[str] | None = None) -> float:
    """Train and test; the accuracy on the novel classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_arguments(parser)
    parser.add_argument("--algorithm", choices=("protonet", "anil", "maml"), default="protonet")
    parser.add_argument("--schedule", type=int, nargs="+", default=[10, 25, 50], help="classes")
    parser.add_argument("--epochs", type=int, default=2, help="epochs of each stage")
    parser.add_argument("--tasks", type=int, default=30, help="tasks of an epoch")
    parser.add_argument("--ways", type=int, default=5)
    parser.add_argument("--shots", type=int, default=1)
    parser.add_argument("--queries", type=int, default=5)
    parser.add_argument("--run", default="runs/learn2learn", help="where files are written")
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)

    candidates, unseen = sources(args)
    images = int(unseen.sizes.min())
    novel = NovelTask(unseen, shots=images // 2, queries=images // 2, seed=args.seed)
    data = SelectedTasks(
        ClassPool(candidates, preview=5),
        novel,
        args.ways,
        args.shots,
        args.queries,
        args.tasks,
        seed=args.seed,
    )
    accuracy = NovelEvaluation(
        [NearestCentroid()], args.ways, args.shots, args.queries, episodes=100, every="stage"
    )
    trainer = pl.Trainer(
        callbacks=[
            ColdStartSelection(tuple(args.schedule), args.epochs, warm_start=True, seed=args.seed),
            accuracy,
        ],
        # learn2learn's MAML and ANIL take gradients in tests too, which inference mode forbids.
        inference_mode=False,
        default_root_dir=args.run,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        accelerator="cpu",
        max_epochs=args.epochs * len(args.schedule),
    )
    trainer.fit(build(args.algorithm, args.ways, args.shots, args.queries), data)
    return accuracy.results[0].mean


if __name__ == "__main__":
    main()
