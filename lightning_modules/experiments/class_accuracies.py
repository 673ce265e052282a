"""Accuracy of a network on the novel classes: features once, then every head and shot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fsl_basesel.data import NovelTask
from fsl_basesel.errors import InputError
from lightning_modules import heads as known_heads
from lightning_modules.features import image_features


def class_accuracies(
    module: nn.Module,
    novel: NovelTask,
    heads: Sequence[str],
    shots: Sequence[int],
    supports: int,
    batch_size: int = 256,
) -> dict[str, dict[int, np.ndarray]]:
    """How often each novel class is told right, by head and number of shots.

    The support images of `novel` are cut into `supports` sets, each of which is learnt from alone;
    the test images are the same for all. The first set is the one that selections have seen.

    Args:
        module: network with `features`.
        novel: the task, with `supports * max(shots)` support images a class.
        heads: names of heads in `lightning_modules.heads`.
        shots: numbers of support images to learn from.
        supports: disjoint support sets.
        batch_size: images that go through the network together.

    Returns:
        By head and shots, `[supports, |N|]` accuracy of each class.
    """
    width = max(shots)
    if novel.shots != supports * width:
        raise InputError(
            f"Expected {supports * width} support images of each novel class but got {novel.shots}."
        )
    support, test = novel.support_set(), novel.test_set()
    found = image_features(novel.all_images(), module, batch_size=batch_size)
    learn = found[: len(support)].reshape(len(novel), supports, width, -1).transpose(0, 1)
    query = found[len(support) :].expand(supports, -1, -1)
    answers = torch.from_numpy(test.labels).to(found.device)
    counts = np.bincount(test.labels, minlength=len(novel))
    results: dict[str, dict[int, np.ndarray]] = {}
    for name in heads:
        head = _head(name).to(found.device)
        results[name] = {}
        for count in shots:
            labels = torch.arange(len(novel), device=found.device).repeat_interleave(count)
            with torch.no_grad():
                scores = head.scores(learn[:, :, :count].flatten(1, 2), labels, query, len(novel))
            right = (scores.argmax(-1) == answers).cpu().numpy()
            correct = [np.bincount(test.labels, row, minlength=len(novel)) for row in right]
            results[name][count] = np.stack(correct) / counts
    return results


def _head(name: str) -> Any:
    found = getattr(known_heads, name, None)
    if found is None:
        raise InputError(f"Expected heads of {', '.join(known_heads.__all__)} but got {name!r}.")
    return found()
