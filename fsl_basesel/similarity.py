"""From features to class centroids, and from centroids to similarities, a block at a time."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.parallel import blocks
from fsl_basesel.progress import report

if TYPE_CHECKING:
    import torch

ArrayLike: TypeAlias = "np.ndarray | torch.Tensor | Sequence"
SimilarityFunction: TypeAlias = Callable[[np.ndarray, np.ndarray], ArrayLike]

# Candidates whose similarities are computed at once: 2048 x 1000 novel classes is 16 MB of float64.
BLOCK = 2048


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ClassCentroids:
    """Centroids of classes, with what is known about each class; validated, immutable.

    Attributes:
        values: `[C, d]`, one row per class, float32 or float64, finite.
        names: C different names; by default the row numbers.
        groups: The group (family, domain) of each class, None if not known.
        images: `[C]`, how many images each centroid is the mean of, None if not known.

    Example:
        >>> ClassCentroids([[1.0, 0.0], [0.0, 2.0]], ["cat", "dog"]).names
        ('cat', 'dog')
    """

    values: np.ndarray
    names: tuple[str, ...]
    groups: tuple[str, ...] | None
    images: np.ndarray | None

    def __init__(
        self,
        values: ArrayLike,
        names: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        images: ArrayLike | None = None,
    ) -> None:
        from fsl_basesel import checks  # it imports this module

        matrix = as_matrix(values, "values", "classes", "dimensions")
        count = len(matrix)
        fields: dict[str, Any] = {
            "values": matrix,
            "names": checks.class_names(names, count, "names", "class"),
            "groups": None if groups is None else tuple(str(group) for group in groups),
            "images": None if images is None else _image_counts(images, count),
        }
        if groups is not None and len(fields["groups"]) != count:
            raise InputError(
                f"Expected `groups` to have one entry for each of the {count} classes but got "
                f"{len(fields['groups'])}."
            )
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        classes, dimensions = self.values.shape
        return f"ClassCentroids({classes} classes, {dimensions} dimensions)"


def _image_counts(images: ArrayLike, count: int) -> np.ndarray:
    expected = f"Expected `images` to be {count} integers of at least 0, one for each class,"
    array = as_array(images, expected)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InputError(f"{expected} but got {array.dtype} of shape {array.shape}.")
    if array.min() < 0:
        at = int(array.argmin())
        raise InputError(f"{expected} but got {array[at]} for class {at}.")
    return array


def is_tensor(values: object) -> TypeGuard[torch.Tensor]:
    """Whether `values` is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def as_array(values: ArrayLike, expected: str) -> np.ndarray:
    """`values` as an array on the CPU, not copied where that can be avoided.

    Raises:
        InputError: If they are no array: rows of different length, masked entries, a sparse tensor.
            `expected` begins the message.
    """
    if np.ma.is_masked(values):
        raise InputError(f"{expected} but got masked entries; fill them in or drop those classes.")
    try:
        if not is_tensor(values):
            return np.asarray(values)
        tensor = values.detach().cpu().resolve_neg()
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    except (TypeError, ValueError) as error:
        raise InputError(f"{expected} but it is no array ({error}).") from error


def as_matrix(values: ArrayLike, name: str, rows: str, columns: str) -> np.ndarray:
    """`values` as a two-dimensional float32 or float64 array on the CPU.

    Half precision becomes float32 and integers float64; both conversions are exact.

    Raises:
        InputError: If `values` is not a non-empty real matrix of finite numbers.
    """
    expected = f"Expected `{name}` to be a matrix of numbers ({rows} x {columns})"
    array = as_array(values, expected)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{expected} but got dtype {array.dtype}; convert it to floats first.")
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(
            f"{expected} with at least one row and one column but got shape {array.shape}."
        )
    if array.dtype.kind != "f" or array.dtype.itemsize > 4:
        array = array.astype(np.float64, copy=False)
    else:
        array = array.astype(np.float32, copy=False)
    for start, stop in blocks(len(array), BLOCK):
        finite = np.isfinite(array[start:stop])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise InputError(
                f"Expected `{name}` to hold finite numbers only but got "
                f"{array[start + row, column]} at [{start + row}, {column}]; drop or repair that "
                "class first."
            )
    return array


def class_centroids(
    features: ArrayLike, labels: Sequence[int] | np.ndarray, n_classes: int | None = None
) -> np.ndarray:
    """Mean feature of every class.

    Args:
        features: `[n, d]`, one row an image.
        labels: `[n]`, class of each image, 0 to `n_classes - 1`.
        n_classes: How many classes there are; by default the largest label plus one.

    Returns:
        `[n_classes, d]` float64 (sums are taken in float64 whatever the features' type).

    Example:
        >>> class_centroids([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]], [0, 0, 1])
        array([[2., 0.],
               [0., 5.]])
    """
    matrix = as_matrix(features, "features", "images", "dimensions")
    classes = np.asarray(labels)
    if classes.shape != (len(matrix),) or classes.dtype.kind not in "iu":
        raise InputError(
            f"Expected `labels` to be {len(matrix)} integers, one for each row of `features`, "
            f"but got {classes.dtype} of shape {classes.shape}."
        )
    try:
        count = int(classes.max()) + 1 if n_classes is None else operator.index(n_classes)
    except TypeError:
        raise InputError(f"Expected `n_classes` to be an integer but got {n_classes!r}.") from None
    if classes.min() < 0 or classes.max() >= count:
        raise InputError(
            f"Expected `labels` between 0 and {count - 1} but got values from {classes.min()} to "
            f"{classes.max()}."
        )
    images = np.bincount(classes, minlength=count)
    if not images.all():
        empty = int(np.flatnonzero(images == 0)[0])
        raise InputError(
            f"Expected at least one image of every class but class {empty} has none; "
            "leave empty classes out before numbering."
        )
    order = np.argsort(classes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(images)[:-1]])
    centroids = np.empty((count, matrix.shape[1]))
    for label, (start, number) in enumerate(zip(starts, images, strict=True)):
        centroids[label] = matrix[order[start : start + number]].mean(axis=0, dtype=np.float64)
    return centroids


def unit_rows(
    centroids: np.ndarray, name: str, names: Sequence[str], offset: int = 0
) -> np.ndarray:
    """Rows scaled to length one, in float64; a zero row has no direction and is refused."""
    rows = centroids.astype(np.float64)
    # Scale by the largest entry first, so that neither huge nor tiny features over- or underflow.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not largest.all():
        at = int(np.flatnonzero(largest[:, 0] == 0)[0])
        raise InputError(
            f"Expected every row of `{name}` to have a length above zero, as cosine similarity "
            f"needs a direction, but row {offset + at} (class {names[at]!r}) is all zeros; "
            "drop that class or check its features."
        )
    rows /= largest
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows


def similarity_columns(
    candidates: np.ndarray,
    novel: np.ndarray,
    names: Sequence[str],
    novel_names: Sequence[str],
    similarity: SimilarityFunction | None = None,
) -> np.ndarray:
    """Similarities `[|B|, |N|]` of every candidate to every novel class, cosine by default.

    Only the result and one block of candidates are in memory beside the centroids. Blocks are
    computed in float64; rounding them to float32 hides the last bits, in which machines with
    different vector units differ. In float64 those bits stay, and equal centroids may differ in
    them too.
    """
    dtype = np.result_type(candidates, novel)
    columns = np.empty((len(candidates), len(novel)), dtype)
    target = novel if similarity else unit_rows(novel, "novel", novel_names)
    for start, stop in blocks(len(candidates), BLOCK):
        report("similarities", start, len(candidates))
        block = candidates[start:stop]
        if similarity is None:
            unit = unit_rows(block, "candidates", names[start:stop], start)
            columns[start:stop] = np.clip(unit @ target.T, -1.0, 1.0)
        else:
            columns[start:stop] = _checked(similarity(block, target), block, target)
    report("similarities", len(candidates), len(candidates))
    return columns


def _checked(result: ArrayLike, block: np.ndarray, novel: np.ndarray) -> np.ndarray:
    values = as_matrix(result, "similarity(candidates, novel)", "candidates", "novel classes")
    if values.shape != (len(block), len(novel)):
        raise InputError(
            f"Expected `similarity` to return one row for each of the {len(block)} candidates and "
            f"one column for each of the {len(novel)} novel classes it was given but got shape "
            f"{values.shape}."
        )
    return values
