"""Few-shot accuracy on the novel classes: features once, then many episodes for every head."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from fsl_basesel import checks
from fsl_basesel.data import NovelTask
from fsl_basesel.embedding import summed_over_processes
from fsl_basesel.errors import InputError
from fsl_basesel.report.paired import estimate
from lightning_modules.episodes import SampledEpisodes, TaskEpisodes
from lightning_modules.features import device_of, evaluating, image_features
from lightning_modules.heads import Head

# Features of a block of episodes: 64 MB in single precision.
BLOCK_NUMBERS = 1 << 24


@dataclass(frozen=True)
class NovelAccuracy:
    """How well a head distinguishes the novel classes.

    Attributes:
        accuracies: of each episode, in order; the same episodes for every head and model.
        interval: half the width of the 95 % interval of their mean (Student's t over episodes);
            NaN for a single episode.
    """

    head: str
    ways: int
    shots: int
    accuracies: tuple[float, ...]
    mean: float
    interval: float

    def __str__(self) -> str:
        kind = f"{self.ways}-way {self.shots}-shot"
        return f"{self.head}, {kind}: {100 * self.mean:.2f} ± {100 * self.interval:.2f} %"


def evaluate_novel(
    module: nn.Module | None,
    novel: NovelTask,
    heads: Sequence[Head],
    ways: int | None = None,
    shots: int = 5,
    queries: int | None = None,
    episodes: int = 10,
    seed: int = 0,
    *,
    features: str = "features",
    batch_size: int = 256,
    trainer: pl.Trainer | None = None,
    **workers: Any,
) -> list[NovelAccuracy]:
    """Accuracy of each head on the same episodes of the novel task.

    Args:
        module: the network whose features are judged; None where `novel` holds features already.
        novel: the novel task.
        heads: few-shot classifiers. One with a backbone of its own uses that instead of `module`.
        ways: classes of an episode, drawn at random; None is the paper's protocol, in which every
            episode has all novel classes and episode r is draw r of their support and test sets.
        shots: images of each class to learn from.
        queries: images of each class to classify; None is 15 in episodes drawn at random, and all
            test images in the paper's protocol.
        episodes: how many.
        seed: seed of random episodes. The draws of the paper's protocol are those of `novel`.
        features: attribute of `module` that turns images into features.
        batch_size: images that go through the network together.
        trainer: the run it happens in; its processes share the work.
        workers: options of `torch.utils.data.DataLoader`.

    Example:
        >>> from fsl_basesel.data import from_features
        >>> from lightning_modules.heads import NearestCentroid
        >>> labels = torch.arange(3).repeat_interleave(20)
        >>> task = NovelTask(from_features(torch.eye(3)[labels] + 0.1, labels), shots=5, queries=10)
        >>> print(*evaluate_novel(None, task, [NearestCentroid()]))
        NearestCentroid, 3-way 5-shot: 100.00 ± 0.00 %
    """
    names = [head.name for head in heads]
    if not heads or len(set(names)) < len(names):
        raise InputError(f"Expected one or more `heads` with different names but got {names}.")
    checks.integer(episodes, "episodes", 1)
    plan: SampledEpisodes | TaskEpisodes
    if ways is None:
        plan = TaskEpisodes(novel, shots, queries, episodes)
    else:
        plan = SampledEpisodes(novel, ways, shots, queries, seed)
    device = device_of(module or heads[0], trainer)
    cached: dict[nn.Module | None, Tensor] = {}
    results = []
    for head in heads:
        head.to(device)
        if not head.adapts_backbone and head.backbone not in cached:
            owner, attribute = (module, features) if head.backbone is None else (head, "embed")
            cached[head.backbone] = image_features(
                plan.images, owner, attribute, batch_size=batch_size, trainer=trainer, **workers
            )
        inputs = None if head.adapts_backbone else cached[head.backbone]
        results.append(novel_accuracy(head, plan, inputs, episodes, device, trainer))
    return results


def novel_accuracy(
    head: Head,
    plan: SampledEpisodes | TaskEpisodes,
    inputs: Tensor | None,
    episodes: int,
    device: torch.device,
    trainer: pl.Trainer | None = None,
) -> NovelAccuracy:
    """Accuracy of a head on the first episodes of a plan, shared by the processes of `trainer`.

    `inputs` are features of `plan.images`, or None for a head that takes images.
    """
    rank, world = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
    mine = range(rank, episodes, world)
    shares = torch.zeros(episodes, 1, dtype=torch.float64)  # each process fills in its own
    limit = 1 if inputs is None else BLOCK_NUMBERS // inputs.shape[1]
    plugin = None if trainer is None else trainer.precision_plugin
    precision = nullcontext if plugin is None else plugin.forward_context
    convert = (lambda images: images) if plugin is None else plugin.convert_input
    with (
        evaluating(head, trainer) if inputs is None else nullcontext(),
        torch.no_grad(),
        precision() if inputs is None else nullcontext(),
    ):
        for numbers, block in plan.blocks(mine, limit):
            labels, answers = block.support_labels.to(device), block.query_labels.to(device)
            if inputs is None:
                support, query = (
                    convert(plan.images.batch(rows[0].numpy())[0]).to(device)
                    for rows in (block.support, block.query)
                )
            else:
                support, query = inputs[block.support.to(device)], inputs[block.query.to(device)]
            scores = head.scores(support, labels, query, plan.ways)
            right = (scores.argmax(-1) == answers).sum(-1, keepdim=True)
            shares[numbers] = right.cpu().double() / len(answers)
    if world > 1:
        shares = summed_over_processes(shares, episodes, device)
    accuracies = tuple(shares.flatten().tolist())
    found = estimate(accuracies)
    interval = float("nan") if found.half_width is None else found.half_width
    return NovelAccuracy(head.name, plan.ways, plan.shots, accuracies, found.mean, interval)
