"""Classes from a torchvision or learn2learn data set; no image is opened to learn its label."""

from __future__ import annotations

import bisect
import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from fsl_basesel.data.arrays import group_by_label
from fsl_basesel.data.reading import (
    ReadSource,
    as_tensor,
    fit,
    look_at_files,
    own_mode,
    text_of,
    upright,
)
from fsl_basesel.errors import InputError

# Where data sets keep their labels: one label per image, or one (image, label) pair per image.
_LABELS = ("targets", "labels", "_labels", "y")
_PAIRS = ("samples", "_samples", "imgs", "data", "_flat_character_images")
_NAMES = ("classes", "categories", "_characters")


def dataset_labels(dataset: Any) -> list[Any] | None:
    """The label of every image as `dataset[i]` would give it, or None if it is not known.

    Looks at what data sets of torchvision and learn2learn keep in memory, through `Subset`,
    `ConcatDataset` and other wrappers, and opens no image.
    """
    if isinstance(dataset, Subset):
        inner = dataset_labels(dataset.dataset)
        return None if inner is None else [inner[i] for i in dataset.indices]
    if isinstance(dataset, ConcatDataset):
        parts = [dataset_labels(part) for part in dataset.datasets]
        return None if any(p is None for p in parts) else [x for part in parts for x in part or ()]
    found = _kept_labels(dataset)
    if found is None:
        inner = getattr(dataset, "dataset", None)
        if inner is None or len(inner) != len(dataset):
            return None
        found = dataset_labels(inner)
    change = getattr(dataset, "target_transform", None)
    if found is None or change is None:
        return found
    changed = {label: change(label) for label in dict.fromkeys(found)}
    return [changed[label] for label in found]


def _kept_labels(dataset: Any) -> list[Any] | None:
    count = len(dataset)
    table = getattr(dataset, "indices_to_labels", None)  # learn2learn's MetaDataset and others
    if isinstance(table, Mapping) and len(table) == count:
        return [_plain(table[i]) for i in range(count)]
    for attribute in _LABELS:
        values = getattr(dataset, attribute, None)
        if not isinstance(values, list | tuple | np.ndarray | torch.Tensor):
            continue
        if len(values) == count and count and np.ndim(values[0]) == 0:
            return [_plain(value) for value in values]
    for attribute in _PAIRS:
        values = getattr(dataset, attribute, None)
        if isinstance(values, Sequence) and len(values) == count and count:
            pair = values[0]
            if isinstance(pair, tuple | list) and len(pair) == 2 and np.ndim(pair[1]) == 0:
                return [_plain(label) for _, label in values]
    return None


def _plain(label: Any) -> Any:
    """A label as a Python number or text; learn2learn keeps some whole numbers as floats."""
    value = label.item() if hasattr(label, "item") else label
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kept_names(dataset: Any) -> list[str] | None:
    """Class names that the data set or the one it wraps keeps, made to differ."""
    for attribute in _NAMES:
        values = getattr(dataset, attribute, None)
        if isinstance(values, list | tuple) and values:
            # ImageNet's classes are tuples of synonyms, and two pairs of them have the same name.
            texts = [", ".join(v) if isinstance(v, tuple) else str(v) for v in values]
            return [t if texts.count(t) == 1 else f"{t} ({i})" for i, t in enumerate(texts)]
    inner = getattr(dataset, "dataset", None)
    return None if inner is None or isinstance(inner, ConcatDataset) else _kept_names(inner)


class DatasetSource(ReadSource):
    """Classes from a data set whose items are (image, label), such as torchvision's.

    `from_dataset` is another name for it.

    Args:
        dataset: anything with `len` and `[i]`.
        labels: the label of each image, where the data set does not keep them in `targets`,
            `labels`, `samples` or the like. Images are never opened to find out.
        names: names of the classes; label c is `names[c]`. None takes the data set's own.
        size: side of the images, for data sets that give PIL pictures of various sizes.
        transform: applied to what the data set gives, before `size`; the same result each time.
        on_corrupt: "raise" or "skip", see `ReadSource`.
        seed: seed of the order of a class's images, of which the first are its preview.

    Example:
        >>> from torchvision.datasets import FakeData
        >>> data = FakeData(size=6, image_size=(3, 8, 8), num_classes=2)
        >>> source = from_dataset(data, labels=[0, 1, 0, 1, 0, 1], names=["cat", "dog"])
        >>> source.images(np.array([0, 1]), np.array([0, 2])).shape
        torch.Size([2, 3, 8, 8])
    """

    def __init__(
        self,
        dataset: Any,
        labels: Sequence[Any] | np.ndarray | torch.Tensor | None = None,
        names: Sequence[str] | None = None,
        size: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        on_corrupt: str = "raise",
        seed: int = 0,
    ) -> None:
        labels = dataset_labels(dataset) if labels is None else labels
        if labels is None:
            raise InputError(
                f"Expected {type(dataset).__name__} to keep its labels in one of "
                f"{', '.join(_LABELS + _PAIRS)} but it does not; pass `labels`, one for each image."
            )
        titles, members = group_by_label(labels, names, len(dataset), seed)
        own = _kept_names(dataset) if names is None else None
        if own is not None and all(title.isdecimal() and int(title) < len(own) for title in titles):
            titles = [own[int(title)] for title in titles]
        self._dataset, self._size, self._transform = dataset, size, transform
        changes = [transform, *_own_transforms(dataset)]
        identity: list[str | bytes] = [
            type(dataset).__name__,
            repr(size),
            *(text_of(change) for change in changes if change is not None),
            *(piece.tobytes() for piece in members),
        ]
        super().__init__(titles, members, on_corrupt, identity)

    def _item(self, member: int) -> Any:
        """An image as the data set gives it."""
        item = self._dataset[member]
        return item[0] if isinstance(item, tuple | list) else item

    def read(self, class_number: int, member: int) -> torch.Tensor:
        """Ask the data set for one image."""
        image = self._item(member)
        if self._transform is not None:
            image = self._transform(image)
        if self._size is not None:
            if not hasattr(image, "resize") or not hasattr(image, "crop"):
                raise InputError(
                    f"Expected PIL pictures for `size` but got {type(image).__name__}; resize in "
                    "the data set's own transform and leave `size` out."
                )
            image = fit(upright(image, own_mode(image)), self._size)
        return as_tensor(image)

    def with_transform(self, transform: Callable[[Any], torch.Tensor]) -> DatasetSource | None:
        """The same pictures with a transform; None where the data set has one of its own."""
        changed = any(change for change in (self._transform, *_own_transforms(self._dataset)))
        if changed or not isinstance(self._item(int(self._first[0][0])), Image.Image):
            return None
        return self.changed(_transform=transform, _size=None)  # type: ignore[return-value]

    def describe(self, class_number: int, member: int) -> str:
        """Which image of the data set it is, and its file where the data set says."""
        return _file_of(self._dataset, member) or f"image {member}"

    def look(self) -> Iterable[str | bytes]:
        """Facts about the files, or the first image of every class as it is given."""
        for members in self._first:
            files = [_file_of(self._dataset, int(member)) for member in members]
            if None not in files and os.path.isfile(str(files[0])):
                yield from look_at_files([str(file) for file in files])
                continue
            try:
                with fixed_random():  # for random transforms
                    image = as_tensor(self._item(int(members[0])))
                yield hashlib.sha256(image.contiguous().numpy().tobytes()).digest()
            except Exception as error:  # it is said where the image is needed
                yield type(error).__name__


from_dataset = DatasetSource


def _own_transforms(dataset: Any) -> tuple[Any, Any]:
    return getattr(dataset, "transform", None), getattr(dataset, "transforms", None)


def _file_of(dataset: Any, index: int) -> str | None:
    """The file of an image, where the data set or one that it wraps keeps a list of files."""
    for attribute in ("samples", "_samples", "imgs", "_image_files"):
        files = getattr(dataset, attribute, None)
        if isinstance(files, Sequence) and len(files) == len(dataset):
            entry = files[index]
            return str(entry[0] if isinstance(entry, tuple | list) else entry)
    if isinstance(dataset, ConcatDataset):
        part = bisect.bisect_right(dataset.cumulative_sizes, index)
        before = dataset.cumulative_sizes[part - 1] if part else 0
        return _file_of(dataset.datasets[part], index - before)
    inner = getattr(dataset, "dataset", None)
    if inner is None or inner is dataset:
        return None
    if isinstance(dataset, Subset):
        return _file_of(inner, dataset.indices[index])
    return _file_of(inner, index) if len(inner) == len(dataset) else None


@contextmanager
def fixed_random() -> Iterator[None]:
    """Fixed random numbers inside; afterwards the generators are as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
