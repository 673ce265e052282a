"""Images, or features, that are in memory already."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from fsl_basesel.data.reading import in_random_order
from fsl_basesel.data.source import ImageSource
from fsl_basesel.errors import InputError

_CHANNELS = (1, 3, 4)
_HASHED_NUMBERS = 1 << 26  # up to this many, all are part of the fingerprint
_HASHED_IMAGES = 8  # of each class, where there are more


def group_by_label(
    labels: Sequence[Any] | np.ndarray | torch.Tensor,
    names: Sequence[str] | None,
    count: int,
    seed: int = 0,
) -> tuple[list[str], list[np.ndarray]]:
    """Class names and, for each class, the positions of its images in random order.

    Label c is called `names[c]`. Without names a class is named by its label.
    """
    array = np.asarray(labels.detach().cpu() if isinstance(labels, torch.Tensor) else labels)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iuUS":
        raise InputError(
            "Expected labels to be a list of whole numbers or texts, one per image, but got "
            f"{array.dtype} of shape {array.shape}."
        )
    if len(array) != count:
        raise InputError(
            f"Expected one label per image but got {len(array)} for {count} images; give one each."
        )
    values, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    titles = [str(value) for value in values.tolist()]
    if names is not None:
        if array.dtype.kind not in "iu" or values[0] < 0 or values[-1] >= len(names):
            raise InputError(
                f"Expected labels from 0 to {len(names) - 1} for {len(names)} names but got labels "
                f"from {values[0]} to {values[-1]}; give a name for every label."
            )
        titles = [str(name) for name in names]
        counts = np.bincount(array.astype(np.int64), minlength=len(names))
    members = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
    pairs = zip(titles, members, strict=True)
    return titles, [in_random_order(name, piece, seed) for name, piece in pairs]


class ArraySource(ImageSource):
    """Images or features in one array; see `from_arrays` and `from_features`."""

    def __init__(
        self,
        array: torch.Tensor,
        labels: Sequence[Any] | np.ndarray | torch.Tensor,
        names: Sequence[str] | None,
        seed: int,
    ) -> None:
        titles, members = group_by_label(labels, names, len(array), seed)
        self._array, self._rows = array, np.concatenate(members)
        sizes = [len(piece) for piece in members]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        kind = repr((array.dtype, tuple(array.shape)))
        super().__init__(titles, sizes, [kind, self._rows.tobytes()])

    def look(self) -> Iterable[str | bytes]:
        """All numbers, or those of the first images of every class where there are many."""
        chosen = self._rows
        if self._array.numel() > _HASHED_NUMBERS:
            starts = self._starts[:-1]
            each = [chosen[start : start + _HASHED_IMAGES] for start in starts.tolist()]
            chosen = np.concatenate(each)
        for start in range(0, len(chosen), 1024):
            some = self._array[torch.from_numpy(chosen[start : start + 1024])].cpu().contiguous()
            yield hashlib.sha256(some.view(torch.uint8).numpy().tobytes()).digest()

    def images(self, classes: np.ndarray, items: np.ndarray) -> torch.Tensor:
        """Image `items[b]` of class `classes[b]`, float32; bytes become [0, 1]."""
        picked = self._array[torch.from_numpy(self._rows[self._starts[classes] + items])]
        if picked.dim() == 2:
            return picked.float()
        if picked.dim() == 3:
            picked = picked[:, None]
        elif picked.shape[1] not in _CHANNELS and picked.shape[3] in _CHANNELS:
            picked = picked.permute(0, 3, 1, 2).contiguous()
        return picked.float() / 255 if picked.dtype == torch.uint8 else picked.float()


def from_arrays(
    images: torch.Tensor | np.ndarray,
    labels: Sequence[Any] | np.ndarray | torch.Tensor,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> ImageSource:
    """Classes from an array of images and their labels.

    Args:
        images: `[n, H, W]`, `[n, C, H, W]` or `[n, H, W, C]`; bytes are brought to [0, 1], floating
            point numbers are left as they are.
        labels: `[n]` whole numbers or texts.
        names: names of the classes; label c is `names[c]`.
        seed: seed of the order of a class's images, of which the first are its preview.

    Example:
        >>> source = from_arrays(np.zeros((3, 8, 8, 3), np.uint8), ["cat", "dog", "cat"])
        >>> source.names, source.sizes.tolist()
        (('cat', 'dog'), [2, 1])
        >>> source.images(np.array([0]), np.array([1])).shape
        torch.Size([1, 3, 8, 8])
    """
    array = torch.as_tensor(images)
    if array.dim() not in (3, 4):
        raise InputError(
            "Expected images of shape [n, H, W], [n, C, H, W] or [n, H, W, C] but got "
            f"{tuple(array.shape)}; for feature vectors use from_features."
        )
    return ArraySource(array, labels, names, seed)


def from_features(
    features: torch.Tensor | np.ndarray,
    labels: Sequence[Any] | np.ndarray | torch.Tensor,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> ImageSource:
    """Classes from feature vectors `[n, d]`, one per image, that a backbone has already computed.

    The other arguments are those of `from_arrays`.

    Example:
        >>> from_features(np.eye(3), [0, 1, 1]).sizes.tolist()
        [1, 2]
    """
    array = torch.as_tensor(features)
    if array.dim() != 2:
        raise InputError(
            f"Expected features of shape [n, d] but got {tuple(array.shape)}; for images use "
            "from_arrays."
        )
    return ArraySource(array, labels, names, seed)
