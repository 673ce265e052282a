"""Which images of the novel task an episode has: random classes, or the paper's protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fsl_basesel.data import ImageSet, NovelTask
from lightning_modules.episodes import EpisodeSampler

DEFAULT_QUERIES = 15


class Block(NamedTuple):
    """Some episodes whose images have the same labels.

    Attributes:
        numbers: `[E]` int64, numbers of the episodes.
        support: `[E, S]` int64, positions among the images of the protocol.
        support_labels: `[S]` int64.
        query: `[E, Q]` int64.
        query_labels: `[Q]` int64.
    """

    numbers: Tensor
    support: Tensor
    support_labels: Tensor
    query: Tensor
    query_labels: Tensor


class EpisodePlan(Protocol):
    """What an evaluation needs to know of its episodes.

    Attributes:
        images: every image that some episode has, once.
        ways: classes of an episode.
        shots: images of each class to learn from.
    """

    images: ImageSet
    ways: int
    shots: int

    def blocks(self, numbers: Sequence[int], limit: int) -> Iterator[Block]:
        """The episodes of these numbers, in blocks of at most `limit` images if possible."""


class SampledEpisodes:
    """Random classes in every episode, out of the images of the novel task.

    Args:
        novel: the novel task; an episode draws from its support and test images together.
        ways: classes of an episode.
        shots: images of each class to learn from.
        queries: images of each class to classify; None is 15.
        seed: seed of all episodes.
    """

    def __init__(
        self, novel: NovelTask, ways: int, shots: int, queries: int | None = None, seed: int = 0
    ) -> None:
        support, test = novel.support_set(), novel.test_set()
        classes = np.concatenate([support.classes, test.classes])
        items = np.concatenate([support.items, test.items])
        self.images = ImageSet(novel.source, classes, items, classes)
        self.ways, self.shots = ways, shots
        count = DEFAULT_QUERIES if queries is None else queries
        self._sampler = EpisodeSampler(classes, ways, shots, count, seed)

    def blocks(self, numbers: Sequence[int], limit: int) -> Iterator[Block]:
        """The episodes of these numbers, as many in a block as `limit` images allow."""
        sampler = self._sampler
        size = max(1, limit // (self.ways * (sampler.shots + sampler.queries)))
        for start in range(0, len(numbers), size):
            chosen = numbers[start : start + size]
            draw = sampler.draw(chosen)
            yield Block(
                torch.tensor(chosen),
                draw.support.flatten(1),
                sampler.support_labels,
                draw.query.flatten(1),
                sampler.query_labels,
            )


class TaskEpisodes:
    """The paper's protocol: all novel classes, episode r being draw r of support and test sets.

    Args:
        novel: the novel task.
        shots: images of each class to learn from.
        queries: images of each class to classify; None is all test images of the task.
        episodes: how many draws there are.
    """

    def __init__(
        self, novel: NovelTask, shots: int, queries: int | None = None, episodes: int = 10
    ) -> None:
        self.ways, self.shots = len(novel), shots
        parts = []
        for number in range(episodes):
            task = novel.drawn(novel.repeat + number)
            parts += [task.support_set(shots), task.test_set(queries)]
        together = np.concatenate([np.stack([part.classes, part.items]) for part in parts], axis=1)
        # Draws share images; each is wanted once.
        unique, where = np.unique(together, axis=1, return_inverse=True)
        self.images = ImageSet(novel.source, unique[0], unique[1], unique[0])
        ends = np.cumsum([len(part) for part in parts])[:-1]
        self._rows = [torch.from_numpy(rows) for rows in np.split(where.reshape(-1), ends)]
        self._labels = [torch.from_numpy(part.labels) for part in parts]

    def blocks(self, numbers: Sequence[int], limit: int) -> Iterator[Block]:
        """One episode a block, as classes may differ in the number of their test images."""
        for number in numbers:
            support, query = 2 * number, 2 * number + 1
            yield Block(
                torch.tensor([number]),
                self._rows[support][None],
                self._labels[support],
                self._rows[query][None],
                self._labels[query],
            )
