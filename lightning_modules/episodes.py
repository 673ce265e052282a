"""Episodes: a few images of a few classes to learn from, and others of the same classes to test.

Which images an episode has is a function of (seed, episode) alone, so every method, every run and
every process that asks for episode 17 of a seed is judged on the same images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fsl_basesel import checks
from fsl_basesel.compiled import kernel
from fsl_basesel.data import ImageSet, NovelTask, counter
from fsl_basesel.errors import InputError

_mix = kernel(counter.mix)


class Episode(NamedTuple):
    """What a head learns from and what it is tested on.

    `support` `[S, ...]` and `query` `[Q, ...]` are images or features, their labels `[S]` and `[Q]`
    int64 from 0 to `ways - 1`.
    """

    support: Tensor
    support_labels: Tensor
    query: Tensor
    query_labels: Tensor
    ways: int


class Draw(NamedTuple):
    """Positions `[E, ways, shots]` and `[E, ways, queries]` of the images of some episodes.

    `classes` `[E, ways]` are the labels drawn: label w of episode e is `classes[e, w]`.
    """

    classes: Tensor
    support: Tensor
    query: Tensor


class EpisodeSampler:
    """Draws p-way k-shot episodes from labelled images or features.

    Within an episode the images drawn of a class depend on (seed, episode, label) and neither on
    the other classes nor on the number of shots: with more shots the queries stay the same and the
    support set only grows, so results for 1 and 5 shots are comparable episode by episode.

    Args:
        labels: `[n]` label of each image, whole numbers.
        ways: classes of an episode.
        shots: images of each class to learn from.
        queries: images of each class to classify.
        seed: seed of all episodes.
    """

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray | Tensor,
        ways: int,
        shots: int,
        queries: int,
        seed: int = 0,
    ) -> None:
        self.ways, self.shots, self.queries = (
            checks.integer(value, name, 1)
            for name, value in (("ways", ways), ("shots", shots), ("queries", queries))
        )
        given = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise InputError(
                "Expected `labels` to be a list of whole numbers but got "
                f"{given.dtype} of shape {given.shape}."
            )
        self._classes, sizes = np.unique(given, return_counts=True)
        self._order = np.argsort(given, kind="stable").astype(np.int64)
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        if self.ways > len(sizes):
            raise InputError(
                f"Expected at least ways = {self.ways} classes but got {len(sizes)}; "
                "ask for fewer ways or add classes."
            )
        small = np.flatnonzero(sizes < self.shots + self.queries)
        if len(small):
            raise InputError(
                f"Expected at least shots + queries = {self.shots + self.queries} images of every "
                f"class but class {self._classes[small[0]]} has {sizes[small[0]]} "
                f"({len(small)} of {len(sizes)} classes); ask for fewer queries or leave those "
                "classes out."
            )
        self._key = counter.key(int(seed), "episode")
        self._words = self._classes.astype(np.int64).astype(np.uint64)
        self.support_labels = torch.arange(self.ways).repeat_interleave(self.shots)
        self.query_labels = torch.arange(self.ways).repeat_interleave(self.queries)

    def draw(self, episodes: Iterable[int]) -> Draw:
        """The positions of the images of these episodes."""
        numbers = np.asarray(list(episodes), np.int64).astype(np.uint64)
        chosen = np.empty((len(numbers), self.ways), np.int64)
        per_class = self.queries + self.shots
        images = np.empty((len(numbers), self.ways, per_class), np.int64)
        _draw(self._key, numbers, self._words, self._order, self._starts, chosen, images)
        drawn = torch.from_numpy(images)
        return Draw(
            torch.from_numpy(self._classes.astype(np.int64)[chosen]),
            drawn[..., self.queries :],
            drawn[..., : self.queries],
        )

    def episode(self, inputs: Tensor, episode: int) -> Episode:
        """Episode number `episode` with its inputs, `[n, ...]` images or features."""
        draw = self.draw([episode])
        device = inputs.device
        return Episode(
            torch.index_select(inputs, 0, draw.support.reshape(-1).to(device)),
            self.support_labels.to(device),
            torch.index_select(inputs, 0, draw.query.reshape(-1).to(device)),
            self.query_labels.to(device),
            self.ways,
        )


@kernel
def _draw(
    key: Any, episodes: Any, words: Any, order: Any, starts: Any, chosen: Any, images: Any
) -> None:
    """Fill `chosen` and `images` by the first steps of Fisher-Yates shuffles.

    Numbers come from `counter.mix`, so they depend on what they are for and on nothing else; the
    top 32 bits scaled to a range are uneven by less than 1e-6 for ranges below 4096.
    """
    classes = len(words)
    ways = chosen.shape[1]
    per_class = images.shape[2]
    deck = np.arange(classes)
    hand = np.empty((starts[1:] - starts[:-1]).max(), np.int64)
    for e in range(len(episodes)):
        state = _mix(key, episodes[e])
        deck[:] = np.arange(classes)
        for w in range(ways):
            left = np.uint64(classes - w)
            number = _mix(state, np.uint64(w)) >> np.uint64(32)
            at = w + np.int64((number * left) >> np.uint64(32))
            deck[w], deck[at] = deck[at], deck[w]
            c = deck[w]
            chosen[e, w] = c
            start = starts[c]
            size = starts[c + 1] - start
            hand[:size] = order[start : start + size]
            # Never equal to a number above: those mix in a position, these first a constant.
            own = _mix(_mix(state, np.uint64(0xFFFFFFFF)), words[c])
            for i in range(per_class):
                left = np.uint64(size - i)
                number = _mix(own, np.uint64(i)) >> np.uint64(32)
                at = i + np.int64((number * left) >> np.uint64(32))
                hand[i], hand[at] = hand[at], hand[i]
                images[e, w, i] = hand[i]


def split_task(data: Tensor, labels: Tensor, shots: int) -> Episode:
    """Split a learn2learn task into what is learnt from and what is tested.

    The first `shots` inputs of each class, in the order they come, are the support set. Labels must
    be 0 to ways - 1, as learn2learn's `RemapLabels` leaves them; classes may be mixed.

    Example:
        >>> episode = split_task(torch.arange(6.0), torch.tensor([1, 0, 1, 0, 1, 0]), shots=1)
        >>> episode.support.tolist(), episode.support_labels.tolist()
        ([1.0, 0.0], [0, 1])
        >>> episode.query.tolist(), episode.ways
        ([3.0, 5.0, 2.0, 4.0], 2)
    """
    order = torch.argsort(labels, stable=True)
    ordered = labels[order]
    counts = torch.bincount(ordered)
    smallest = int(counts.min())
    if smallest <= shots:
        label = int(torch.argmin(counts))
        raise InputError(
            f"Expected more than shots = {shots} inputs of each class of a task, the rest being "
            f"queries, but label {label} has {smallest}; draw tasks with shots + queries inputs a "
            "class and labels from 0 to ways - 1."
        )
    first = torch.repeat_interleave(torch.cumsum(counts, 0) - counts, counts)
    rank = torch.arange(len(labels), device=labels.device) - first
    support, query = order[rank < shots], order[rank >= shots]
    return Episode(data[support], labels[support], data[query], labels[query], len(counts))


class SampledEpisodes(EpisodeSampler):
    """Random classes in every episode, out of the novel task's support and test images together.

    Its attribute `images` has every image that some episode has, once.
    """

    def __init__(
        self, novel: NovelTask, ways: int, shots: int, queries: int | None = None, seed: int = 0
    ) -> None:
        self.images = novel.all_images()
        super().__init__(self.images.labels, ways, shots, 15 if queries is None else queries, seed)

    def blocks(self, numbers: Sequence[int], limit: int) -> Iterator[tuple[Tensor, Episode]]:
        """The episodes of these numbers, as many in a block as `limit` images allow.

        Of each block the numbers `[E]` and the episodes, which have positions among `images`
        instead of inputs, `[E, S]` and `[E, Q]`, and share their labels.
        """
        size = max(1, limit // (self.ways * (self.shots + self.queries)))
        for start in range(0, len(numbers), size):
            chosen = numbers[start : start + size]
            _, support, query = self.draw(chosen)
            parts = (support.flatten(1), self.support_labels, query.flatten(1), self.query_labels)
            yield torch.tensor(chosen), Episode(*parts, self.ways)


class TaskEpisodes:
    """The paper's protocol: all novel classes, episode r being draw r of support and test sets.

    Its attribute `images` has every image that some draw has, once. `queries` is None for all test
    images of the task.
    """

    def __init__(
        self, novel: NovelTask, shots: int, queries: int | None = None, episodes: int = 10
    ) -> None:
        self.ways, self.shots, self.episodes = len(novel), shots, episodes
        parts = []
        for number in range(episodes):
            task = novel.drawn(novel.repeat + number)
            parts += [task.support_set(shots), task.test_set(queries)]
        together = np.concatenate([np.stack([part.classes, part.items]) for part in parts], axis=1)
        unique, where = np.unique(together, axis=1, return_inverse=True)
        self.images = ImageSet(novel.source, unique[0], unique[1], unique[0])
        ends = np.cumsum([len(part) for part in parts])[:-1]
        self._rows = [torch.from_numpy(rows)[None] for rows in np.split(where.reshape(-1), ends)]
        self._labels = [torch.from_numpy(part.labels) for part in parts]

    def blocks(self, numbers: Sequence[int], limit: int) -> Iterator[tuple[Tensor, Episode]]:
        """As in `SampledEpisodes`, one episode a block: classes may differ in their test images."""
        for number in numbers:
            support, query = 2 * number, 2 * number + 1
            learnt = (self._rows[support], self._labels[support])
            asked = (self._rows[query], self._labels[query])
            yield torch.tensor([number]), Episode(*learnt, *asked, self.ways)
