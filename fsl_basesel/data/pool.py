"""The pool of candidate classes: a preview of each before selection, all its images after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fsl_basesel import checks
from fsl_basesel.data.cache import fingerprint
from fsl_basesel.data.source import ImageSet, ImageSource, first_images
from fsl_basesel.errors import InputError

DEFAULT_PREVIEW = 50


class ClassPool:
    """Candidate base classes of which some are expanded.

    Before selection a class shows `preview` images, enough for its centroid; `expand` makes all of
    its images available for training. The pools here expand at once; a labelling workflow
    overrides `expand` and does there what it takes to get the images (see `LabellingQueue`).

    Args:
        source: classes and images.
        preview: images shown of each class before it is expanded; every class must have that
            many. None asks for 50, or all a class has where that is fewer.

    Attributes:
        names: names of the classes, in the order of the columns of a selection problem.
        groups: the family of each class, where the source knows families.

    Example:
        >>> import torch
        >>> from fsl_basesel.data import ClassPool, from_arrays
        >>> source = from_arrays(torch.rand(6, 1, 4, 4), [0, 0, 0, 1, 1, 1], ["cat", "dog"])
        >>> pool = ClassPool(source, preview=2)
        >>> len(pool.preview_set())  # 2 images of each of the 2 classes
        4
        >>> pool.expand(["dog"])
        [1]
        >>> len(pool.training_set()), pool.training_set().labels.tolist()
        (3, [0, 0, 0])
    """

    def __init__(self, source: ImageSource, preview: int | None = None) -> None:
        self.source, self.names, self.groups = source, source.names, source.groups
        self.preview = DEFAULT_PREVIEW if preview is None else checks.integer(preview, "preview", 1)
        self._needed = 1 if preview is None else self.preview
        self._expanded: dict[int, None] = {}
        self._require(range(len(self)), self._needed)
        self._shown = np.minimum(source.sizes, self.preview)

    @property
    def expanded(self) -> list[int]:
        """Classes expanded so far, in the order they were asked for; it only ever grows."""
        return list(self._expanded)

    @property
    def fingerprint(self) -> str:
        """Identifies this pool; does not change when classes are expanded."""
        return fingerprint([self.source.fingerprint, str(self.preview)])

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self)} classes, preview={self.preview}, "
            f"{len(self._expanded)} expanded)"
        )

    def expand(self, classes: Iterable[Any]) -> list[int]:
        """Make all images of these classes, numbers or names, available.

        Classes that are expanded already stay as they are, so the call can be repeated. Returned
        are the others, in the order given.
        """
        new = [c for c in self.source.positions(classes) if c not in self._expanded]
        self.source.prepare(new)
        self._require(new, self._needed)
        self._expanded.update(dict.fromkeys(new))
        return new

    def preview_set(self, classes: Iterable[Any] | None = None) -> ImageSet:
        """The preview images of these classes (None: of all), labelled with the class number."""
        chosen = self.source.positions(range(len(self)) if classes is None else classes)
        self.source.prepare(chosen, self.preview)
        self._require(chosen, self._needed)
        counts = np.minimum(self.source.sizes, self._shown)
        return first_images(self.source, chosen, counts, chosen)

    def training_set(self, classes: Iterable[Any] | None = None) -> ImageSet:
        """All images of these expanded classes (None: all of them), labelled by position.

        A list that only grows at its end therefore keeps every label where it was.
        """
        chosen = self.source.positions(self.expanded if classes is None else classes)
        closed = [self.names[c] for c in chosen if c not in self._expanded]
        if closed:
            raise InputError(
                f"Expected expanded classes but {closed[0]!r} is not ({len(closed)} of "
                f"{len(chosen)} classes); call pool.expand with them first."
            )
        return first_images(self.source, chosen, self.source.sizes, range(len(chosen)))

    def _require(self, classes: Iterable[int], count: int) -> None:
        for c in classes:
            if self.source.sizes[c] < count:
                bad = sum(dropped.class_name == self.names[c] for dropped in self.source.dropped)
                without = f" without the {bad} that cannot be read" if bad else ""
                raise InputError(
                    f"Expected at least {count} image(s) in every class but {self.names[c]!r} has "
                    f"{self.source.sizes[c]}{without}; add images, ask for a smaller `preview`, or "
                    "leave the class out."
                )
