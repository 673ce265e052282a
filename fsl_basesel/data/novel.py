"""The novel task: for each class a support set and a test set that share no image."""

from __future__ import annotations

import numpy as np

from fsl_basesel import checks
from fsl_basesel.data import counter
from fsl_basesel.data.cache import fingerprint
from fsl_basesel.data.pool import ClassPool
from fsl_basesel.data.source import ImageSet, ImageSource
from fsl_basesel.errors import InputError


class NovelTask:
    """Novel classes with support and test images, drawn once for a repeat.

    The draw is a function of (seed, repeat, class name) and nothing else, so every method that is
    given the task of a repeat is judged on the same images. Smaller support sets are the first
    part of larger ones: the 5-shot set lies within the 20-shot set.

    Args:
        source: the novel classes and their images.
        shots: support images of each class.
        queries: test images of each class; fewer where a class has no more left, at least one.
        repeat: number of the draw.
        seed: seed of all draws.

    Attributes:
        names: names of the novel classes, in label order.
        groups: the family of each class, where the source knows families.

    Example:
        >>> import torch
        >>> from fsl_basesel.data import from_arrays
        >>> source = from_arrays(torch.rand(20, 1, 4, 4), [0] * 10 + [1] * 10)
        >>> task = NovelTask(source, shots=5, queries=4)
        >>> len(task.support_set()), len(task.support_set(shots=1)), len(task.test_set())
        (10, 2, 8)
    """

    def __init__(
        self,
        source: ImageSource,
        shots: int = 20,
        queries: int = 100,
        repeat: int = 0,
        seed: int = 0,
    ) -> None:
        self.source, self.names, self.groups = source, source.names, source.groups
        self.shots = checks.integer(shots, "shots", 1)
        self.queries = checks.integer(queries, "queries", 1)
        self.repeat, self.seed = int(repeat), int(seed)
        source.prepare(range(len(source)))
        small = np.flatnonzero(source.sizes < self.shots + 1)
        if len(small):
            c = int(small[0])
            raise InputError(
                f"Expected at least shots + 1 = {self.shots + 1} images in every novel class but "
                f"{source.names[c]!r} has {source.sizes[c]} ({len(small)} of {len(source)} "
                "classes); lower shots or leave the class out."
            )
        self._order = [
            counter.shuffled(counter.key(self.seed, "novel", self.repeat, name), range(size))
            for name, size in zip(source.names, source.sizes.tolist(), strict=True)
        ]

    @property
    def fingerprint(self) -> str:
        """Identifies this task: its images, its sizes and its draw."""
        drawn = (self.shots, self.queries, self.repeat, self.seed)
        return fingerprint([self.source.fingerprint, repr(drawn)])

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return (
            f"NovelTask({len(self)} classes, shots={self.shots}, queries={self.queries}, "
            f"repeat={self.repeat}, seed={self.seed})"
        )

    def drawn(self, repeat: int) -> NovelTask:
        """The same classes with the support and test images of another repeat."""
        return NovelTask(self.source, self.shots, self.queries, repeat, self.seed)

    def support_set(self, shots: int | None = None) -> ImageSet:
        """The support images, class after class; `shots` limits them to the first of each."""
        return self._images(0, shots, "shots")

    def test_set(self, queries: int | None = None) -> ImageSet:
        """The test images, class after class; `queries` limits them to the first of each."""
        return self._images(self.shots, queries, "queries")

    def all_images(self) -> ImageSet:
        """The support images, then the test images."""
        parts = self.support_set(), self.test_set()
        classes = np.concatenate([part.classes for part in parts])
        items = np.concatenate([part.items for part in parts])
        return ImageSet(self.source, classes, items, classes)

    def _images(self, start: int, asked: int | None, what: str) -> ImageSet:
        most = getattr(self, what)
        count = most if asked is None else asked
        if not 1 <= count <= most:
            raise InputError(
                f"Expected `{what}` from 1 to {most} but got {asked}; make the NovelTask with more."
            )
        items = [order[start:][:count] for order in self._order]
        classes = np.repeat(np.arange(len(items)), [len(piece) for piece in items])
        return ImageSet(self.source, classes, np.concatenate(items), classes)


def require_disjoint(candidates: ClassPool, novel: NovelTask) -> None:
    """Refuse a class that is both a candidate and novel; classes are compared by name."""
    common = sorted(set(candidates.names) & set(novel.names))
    if common:
        raise InputError(
            f"Expected no class to be both a candidate and novel but {common[0]!r} is both "
            f"({len(common)} of {len(novel.names)} novel classes); take it out of one of them."
        )
