"""Where images come from: named classes, and batches of images by class and number."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from fsl_basesel import checks
from fsl_basesel.data import cache
from fsl_basesel.errors import InputError


class Dropped(NamedTuple):
    """An unreadable image that was left out."""

    class_name: str
    image: str
    reason: str


class ImageSource(abc.ABC):
    """Classes and their images; a subclass says how images are made or read.

    Image i of a class is the same image in every process. The images of a class are in random
    order, so that its first ones are a fair sample.

    Args:
        names: one name per class, all different.
        sizes: number of images of each class.
        identity: what distinguishes this source from others with the same names and sizes.
        groups: the family of each class, if known.

    Attributes:
        dropped: images that were left out because they could not be read.
        threads: how many threads may ask for images at once.
    """

    threads = 1

    def __init__(
        self,
        names: Sequence[str],
        sizes: Sequence[int] | np.ndarray,
        identity: Iterable[str | bytes] = (),
        groups: Sequence[str] | None = None,
    ) -> None:
        self.names = tuple(str(name) for name in names)
        self.groups = None if groups is None else tuple(groups)
        self.sizes = np.array(sizes, np.int64)
        self.dropped: list[Dropped] = []
        self._position = {name: i for i, name in enumerate(self.names)}
        if len(self._position) < len(self.names):
            double = next(n for i, n in enumerate(self.names) if self._position[n] != i)
            raise InputError(
                f"Expected class names that differ but got {double!r} twice; rename one of them."
            )
        empty = np.flatnonzero(self.sizes < 1)
        if len(empty):
            raise InputError(
                f"Expected at least one image in every class but class {self.names[empty[0]]!r} "
                f"has none ({len(empty)} of {len(self.names)} classes); add images or leave the "
                "class out."
            )
        parts = [type(self).__name__, *identity, *self.names, self.sizes.tobytes()]
        self._settings = cache.fingerprint(parts)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Identifies the images of a source, as far as `look` can see; for checkpoints.

        It is computed on first use and does not change when images are left out.
        """
        seen = list(self.look())
        return cache.fingerprint([self._settings, *seen]) if seen else self._settings

    def look(self) -> Iterable[str | bytes]:
        """Facts about the images that are cheap to read; none unless a subclass has them."""
        return ()

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        total = int(self.sizes.sum())
        return f"{type(self).__name__}({len(self)} classes, {total} images)"

    @abc.abstractmethod
    def images(self, classes: np.ndarray, items: np.ndarray) -> torch.Tensor:
        """Image `items[b]` of class `classes[b]` for every b, `[B, ...]` float32."""

    def prepare(  # noqa: B027  (most sources have nothing to do)
        self, classes: Sequence[int], count: int | None = None
    ) -> None:
        """Make sure that the first `count` images of these classes (None: all) can be read.

        Sources whose images may be damaged drop those here and `sizes` falls; others do nothing.
        """

    def with_transform(self, transform: Callable[[Any], torch.Tensor]) -> ImageSource | None:
        """The same images with `transform` applied to each picture as it is read.

        None where images do not come from pictures, or where they are changed in a way of their
        own already.
        """
        return None

    def positions(self, classes: Iterable[Any]) -> list[int]:
        """Numbers of classes that are given by number or by name, each once."""
        return checks.positions(classes, self.names)

    def subset(self, classes: Iterable[Any]) -> ImageSource:
        """The same images with these classes only, in this order."""
        return _Subset(self, self.positions(classes))


class _Subset(ImageSource):
    """Some classes of another source."""

    def __init__(self, base: ImageSource, chosen: list[int]) -> None:
        self._base, self._chosen = base, np.asarray(chosen, np.int64)
        self.threads = base.threads
        groups = None if base.groups is None else [base.groups[c] for c in chosen]
        names = [base.names[c] for c in chosen]
        super().__init__(names, base.sizes[self._chosen], groups=groups)
        self._first_sizes = self.sizes.tobytes()

    @functools.cached_property
    def fingerprint(self) -> str:
        own = [type(self).__name__, self._base.fingerprint, *self.names]
        return cache.fingerprint([*own, self._first_sizes])

    def images(self, classes: np.ndarray, items: np.ndarray) -> torch.Tensor:
        return self._base.images(self._chosen[classes], items)

    def with_transform(self, transform: Callable[[Any], torch.Tensor]) -> ImageSource | None:
        changed = self._base.with_transform(transform)
        return None if changed is None else _Subset(changed, self._chosen.tolist())

    def prepare(self, classes: Sequence[int], count: int | None = None) -> None:
        self._base.prepare([int(self._chosen[c]) for c in classes], count)
        self.sizes = self._base.sizes[self._chosen]
        self.dropped = [d for d in self._base.dropped if d.class_name in self._position]


class ImageSet(Dataset):
    """Images with labels, as a `torch.utils.data.Dataset` that fetches whole batches at once.

    Works with a plain `DataLoader` (which calls `__getitems__`), is small to pickle apart from its
    source, and gives `batch` to code that needs no loader.

    Args:
        source: where the images come from.
        classes: `[n]` class of each image, a number of the source.
        items: `[n]` which image of that class.
        labels: `[n]` label of each image.
    """

    def __init__(
        self,
        source: ImageSource,
        classes: Sequence[int] | np.ndarray,
        items: Sequence[int] | np.ndarray,
        labels: Sequence[int] | np.ndarray,
    ) -> None:
        self.source = source
        self.classes = np.asarray(classes, np.int64)
        self.items = np.asarray(items, np.int64)
        self.labels = np.asarray(labels, np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Sequence[int] | np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Images `[B, ...]` and labels `[B]` int64 at these positions."""
        chosen = np.asarray(indices, np.int64)
        images = self.source.images(self.classes[chosen], self.items[chosen])
        return images, torch.from_numpy(self.labels[chosen])

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"Expected an index below {len(self)} but got {index}.")
        images, labels = self.batch([index])
        return images[0], int(labels[0])

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[torch.Tensor, int]]:
        """What a `DataLoader` calls for a batch; its default collate function takes the result."""
        images, labels = self.batch(indices)
        return list(zip(images.unbind(), labels.tolist(), strict=True))


def first_images(
    source: ImageSource, classes: Sequence[int], counts: np.ndarray, labels: Sequence[int]
) -> ImageSet:
    """The first `counts[c]` images of each of `classes`, class after class."""
    numbers = np.asarray(classes, np.int64)
    repeats = counts[numbers]
    items = np.concatenate([np.arange(count) for count in (0, *repeats.tolist())])
    return ImageSet(source, np.repeat(numbers, repeats), items, np.repeat(labels, repeats))
