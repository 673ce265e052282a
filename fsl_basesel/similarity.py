"""From features to class centroids, and from centroids to similarities, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fsl_basesel import checks, parallel
from fsl_basesel.checks import ArrayLike
from fsl_basesel.errors import InputError
from fsl_basesel.parallel import blocks, map_blocks
from fsl_basesel.progress import report

SimilarityFunction: TypeAlias = Callable[[np.ndarray, np.ndarray], ArrayLike]
"""From candidates `[b, d]` and novel classes `[n, d]` to similarities `[n, b]`."""

SIMILARITIES = ("cosine", "centred", "whitened")
"""Similarities that have a name; `cosine` is the paper's."""
CENTRES = ("candidates", "each")

# Candidates whose similarities are computed at once: 2048 x 1000 novel classes is 16 MB of float64.
BLOCK = 2048
# Candidates, and columns of a d x d matrix, that one thread works on. Sizes are fixed and BLAS is
# kept to one thread each, so that results do not depend on the number of threads.
ROWS = 256
STRIP = 256
# A centroid this close to the mean, relative to the largest entry, has no direction of its own.
NO_DIRECTION = 1e-12


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ClassCentroids:
    """Centroids of classes, with what is known about each class; validated, immutable.

    Attributes:
        values: `[C, d]`, one row per class, float32 or float64, finite.
        names: C different names; by default the row numbers.
        groups: The group (family, domain) of each class, None if not known.
        images: `[C]`, how many images each centroid is the mean of, None if not known.
        weights: `[C]`, how much each class of a task counts, None if all alike.
        made_by: What made them, such as the backbone and its preprocessing; for the record.

    Example:
        >>> ClassCentroids([[1.0, 0.0], [0.0, 2.0]], ["cat", "dog"]).names
        ('cat', 'dog')
    """

    values: np.ndarray
    names: tuple[str, ...]
    groups: tuple[str, ...] | None
    images: np.ndarray | None
    weights: np.ndarray | None
    made_by: dict[str, str]

    def __init__(
        self,
        values: ArrayLike,
        names: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        images: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        made_by: Mapping[str, str] | None = None,
    ) -> None:
        matrix = checks.matrix(values, "values", "classes", "dimensions")
        count = len(matrix)
        fields: dict[str, Any] = {
            "values": matrix,
            "names": checks.class_names(names, count, "names", "class"),
            "groups": None if groups is None else tuple(str(group) for group in groups),
            "images": None
            if images is None
            else checks.numbers(images, "images", count, 0, whole=True),
            "weights": None if weights is None else checks.numbers(weights, "weights", count, 0),
            "made_by": dict(made_by or {}),
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


def class_centroids(
    features: ArrayLike,
    labels: Sequence[int] | Sequence[str] | np.ndarray,
    n_classes: int | None = None,
    *,
    normalize: bool = False,
    limit: int | None = None,
) -> np.ndarray:
    """Mean feature of every class.

    Args:
        features: `[n, d]`, one row per image.
        labels: `[n]`, class of each image: integers of at least 0, with or without gaps, or names.
        n_classes: How many classes there are, if labels are to be exactly 0 to `n_classes - 1`.
        normalize: Scale the features of every image to length one first.
        limit: Use only the first so many images of each class; None uses all.

    Returns:
        `[C, d]` float64, one row per class in the order of `np.unique(labels)` (sums are taken in
        float64 whatever the features' type).

    Example:
        >>> class_centroids([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]], ["cat", "cat", "ant"])
        array([[0., 5.],
               [2., 0.]])
    """
    matrix = checks.matrix(features, "features", "images", "dimensions")
    classes = _class_numbers(labels, len(matrix), n_classes)
    if limit is not None:
        checks.integer(limit, "limit", 1, None, "")
    images = np.bincount(classes)
    order = np.argsort(classes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(images)[:-1]])
    centroids = np.empty((len(images), matrix.shape[1]))
    for label, (start, number) in enumerate(zip(starts, images, strict=True)):
        members = order[start : start + number][:limit]
        rows = matrix[members]
        if normalize:
            rows = unit_rows(rows, "features", [f"of image {image}" for image in members])
        centroids[label] = rows.mean(axis=0, dtype=np.float64)
    return centroids


def _class_numbers(labels: Any, count: int, n_classes: int | None) -> np.ndarray:
    """The class of each image as a number from 0, without gaps."""
    given = np.asarray(labels)
    if given.shape != (count,) or given.dtype.kind not in "iuUT":
        raise InputError(
            f"Expected `labels` to be {count} integers or names, one for each row of `features`, "
            f"but got {given.dtype} of shape {given.shape}."
        )
    whole = given.dtype.kind in "iu"
    if n_classes is None:
        if whole and given.min() < 0:
            raise InputError(f"Expected `labels` of at least 0 but got {given.min()}.")
        return np.unique(given, return_inverse=True)[1]
    last = checks.integer(n_classes, "n_classes", 1, None, "") - 1
    if not whole:
        raise InputError("Expected `labels` to be integers with `n_classes` but got names.")
    if given.min() < 0 or given.max() > last:
        raise InputError(
            f"Expected `labels` between 0 and {last} but got values from {given.min()} to "
            f"{given.max()}."
        )
    missing = np.flatnonzero(np.bincount(given, minlength=last + 1) == 0)
    if len(missing):
        raise InputError(
            f"Expected at least one image of every class but class {missing[0]} has none; leave "
            "`n_classes` out to skip empty classes."
        )
    return given


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


@dataclass(frozen=True, eq=False)
class Space:
    """Where a named similarity compares classes: `(centroid - centre) @ matrix`, by cosine.

    Attributes:
        name: One of `SIMILARITIES`.
        centre: `[d]`, subtracted from candidates; None subtracts nothing.
        novel_centre: `[d]`, subtracted from novel classes.
        matrix: `[d, d]`, upper triangular; None leaves centroids as they are.
        scale: Size of the centroids' entries, to tell rounding from a direction.
    """

    name: str
    centre: np.ndarray | None = None
    novel_centre: np.ndarray | None = None
    matrix: np.ndarray | None = None
    scale: float = 0.0

    def candidates(self, rows: np.ndarray, names: Sequence[str], offset: int = 0) -> np.ndarray:
        """Candidates at unit length; `names` and `offset` are for error messages."""
        return self._unit(rows, self.centre, "candidates", names, offset)

    def novel(self, rows: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """Novel classes at unit length."""
        return self._unit(rows, self.novel_centre, "novel", names, 0)

    def _unit(
        self,
        rows: np.ndarray,
        centre: np.ndarray | None,
        argument: str,
        names: Sequence[str],
        offset: int,
    ) -> np.ndarray:
        if centre is None:
            return unit_rows(rows, argument, names, offset)
        moved = rows - centre
        near = np.abs(moved).max(axis=1) <= NO_DIRECTION * self.scale
        if near.any():
            at = int(np.flatnonzero(near)[0])
            raise InputError(
                f"Expected every row of `{argument}` to differ from the mean that similarity "
                f"{self.name!r} subtracts but row {offset + at} (class {names[at]!r}) is equal to "
                "it; drop that class or use similarity 'cosine'."
            )
        if self.matrix is not None:
            moved = _times_upper_triangular(moved, self.matrix)
        return unit_rows(moved, argument, names, offset)


def known_similarity(similarity: str | SimilarityFunction) -> str | SimilarityFunction:
    """`similarity` if it is a function or has one of the names, else an error that lists them."""
    if callable(similarity) or similarity in SIMILARITIES:
        return similarity
    raise InputError(
        f"Expected `similarity` of {', '.join(SIMILARITIES)} or a function but got {similarity!r}."
    )


def space_of(
    name: str,
    candidates: np.ndarray,
    novel: np.ndarray,
    centre: str = "candidates",
    shrinkage: float = 0.5,
) -> Space:
    """The space in which the similarity of this name compares centroids.

    `centred` subtracts the mean of the candidates' centroids. `whitened` also maps by an inverse
    Cholesky factor of `(1 - s) S + s tr(S)/d I`, with `S` the covariance of the candidates'
    centroids and `s` the shrinkage, so that directions in which all candidates differ count less.

    Args:
        name: One of `SIMILARITIES`.
        candidates: `[|B|, d]`.
        novel: `[|N|, d]`.
        centre: "candidates": their mean is subtracted from both sides; "each": each side's own
            mean, for candidates and novel classes from different sources (text and images).
        shrinkage: `s`, above 0 and at most 1.

    Raises:
        InputError: Unknown name, or too few or equal candidates.
    """
    known_similarity(name)
    if centre not in CENTRES:
        raise InputError(f"Expected `centre` of {', '.join(CENTRES)} but got {centre!r}.")
    if name == "cosine":
        return Space(name)
    _require_spread(name, candidates)
    own = candidates.mean(axis=0, dtype=np.float64)
    theirs = novel.mean(axis=0, dtype=np.float64) if centre == "each" else own
    if centre == "each" and len(novel) < 2:
        raise InputError(
            "Expected at least 2 novel classes for centre='each', which subtracts their mean, but "
            f"got {len(novel)}; use centre='candidates'."
        )
    scale = float(max(np.abs(candidates).max(), np.abs(novel).max()))
    if name == "centred":
        return Space(name, own, theirs, None, scale)
    matrix = _whitening(candidates, own, _share(shrinkage))
    return Space(name, own, theirs, matrix, scale)


def _require_spread(name: str, candidates: np.ndarray) -> None:
    count, dimensions = candidates.shape
    if count < 3 or dimensions < 2:
        raise InputError(
            f"Expected at least 3 candidates in at least 2 dimensions for similarity {name!r}, "
            f"which compares them with their mean, but got {count} in {dimensions}; use "
            "similarity 'cosine'."
        )
    spread = np.abs(candidates - candidates[:1].astype(np.float64)).max()
    if spread <= NO_DIRECTION * np.abs(candidates).max():
        raise InputError(
            f"Expected candidates that differ for similarity {name!r} but all {count} centroids "
            "are equal; check the features."
        )


def _share(shrinkage: float) -> float:
    if not 0 < shrinkage <= 1:
        raise InputError(f"Expected `shrinkage` above 0 and at most 1 but got {shrinkage!r}.")
    return float(shrinkage)


def _whitening(candidates: np.ndarray, centre: np.ndarray, shrinkage: float) -> np.ndarray:
    """Upper triangular W with `W W^T` the inverse of the shrunk covariance, `[d, d]` float64."""
    from scipy.linalg import solve_triangular  # loaded before its BLAS is told to use one thread

    dimensions = candidates.shape[1]
    # Powers of two: exact, and squares of huge or tiny entries neither overflow nor vanish.
    exponent = -int(np.frexp(np.abs(candidates).max())[1])
    total = np.zeros((dimensions, dimensions))
    with one_blas_thread():
        for start, stop in blocks(len(candidates), BLOCK):
            report("covariance", start, len(candidates))
            rows = np.ldexp(candidates[start:stop] - centre, exponent)

            def add(first: int, last: int, rows: np.ndarray = rows) -> None:
                total[first:last, first:] += rows[:, first:last].T @ rows[:, first:]

            map_blocks(add, dimensions, STRIP)
        upper = np.triu(total) / len(candidates)
        covariance = upper + np.triu(upper, 1).T
        mean_variance = float(np.trace(covariance)) / dimensions
        covariance *= 1 - shrinkage
        covariance[np.diag_indices(dimensions)] += shrinkage * mean_variance
        factor = np.linalg.cholesky(covariance)
        return solve_triangular(factor, np.eye(dimensions), lower=True, check_finite=False).T


def _times_upper_triangular(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """`rows @ matrix`, without the half of `matrix` that is zero."""
    product = np.empty_like(rows)
    for first, last in blocks(matrix.shape[1], STRIP):
        np.matmul(rows[:, :last], matrix[:last, first:last], out=product[:, first:last])
    return product


def one_blas_thread() -> AbstractContextManager[Any]:
    """Within it, each product of matrices runs on the thread that asked for it."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")


def similarity_columns(
    candidates: np.ndarray,
    novel: np.ndarray,
    names: Sequence[str],
    novel_names: Sequence[str],
    similarity: Space | SimilarityFunction,
) -> np.ndarray:
    """Similarities `[|B|, |N|]` of every candidate to every novel class.

    Only the result and one block of candidates are in memory beside the centroids. Blocks are
    computed in float64; rounding them to float32 hides the last bits, in which machines with
    different vector units differ. In float64 those bits stay, and equal centroids may differ in
    them too.
    """
    dtype = np.result_type(candidates, novel)
    columns = np.empty((len(candidates), len(novel)), dtype)
    if not isinstance(similarity, Space):
        _check_orientation(similarity, candidates, novel)
    elif similarity.name == "cosine":
        target = similarity.novel(novel, novel_names)
    else:
        with one_blas_thread():
            target = similarity.novel(novel, novel_names)
    for start, stop in blocks(len(candidates), BLOCK):
        report("similarities", start, len(candidates))
        block = candidates[start:stop]
        if not isinstance(similarity, Space):
            columns[start:stop] = _checked(similarity, block, novel).T
        elif similarity.name == "cosine":
            unit = similarity.candidates(block, names[start:stop], start)
            _multiply(unit, target, columns[start:stop])
        else:
            with one_blas_thread():
                _fill(columns[start:stop], block, target, names[start:stop], similarity, start)
    report("similarities", len(candidates), len(candidates))
    return columns


def _multiply(unit: np.ndarray, target: np.ndarray, out: np.ndarray) -> None:
    """Cosines of unit vectors, for blocks of novel classes that are the same on many processes.

    A library's products of other shapes may differ in their last bits.
    """
    for start, stop in blocks(len(target), parallel.ROWS):
        out[:, start:stop] = np.clip(unit @ target[start:stop].T, -1.0, 1.0)


def _fill(
    columns: np.ndarray,
    candidates: np.ndarray,
    target: np.ndarray,
    names: Sequence[str],
    space: Space,
    offset: int,
) -> None:
    """Similarities of a block of candidates; the same bits on every number of threads."""

    def work(start: int, stop: int) -> None:
        unit = space.candidates(candidates[start:stop], names[start:stop], offset + start)
        _multiply(unit, target, columns[start:stop])

    map_blocks(work, len(candidates), ROWS)


def _check_orientation(
    similarity: SimilarityFunction, candidates: np.ndarray, novel: np.ndarray
) -> None:
    """One call on blocks of unequal size, so that |N| = |B| does not hide a transposed result."""
    few = candidates[:3]
    _checked(similarity, few, novel[: 2 if len(few) != 2 else 1])


def _checked(similarity: SimilarityFunction, block: np.ndarray, novel: np.ndarray) -> np.ndarray:
    result = similarity(block, novel)
    values = checks.matrix(result, "similarity(candidates, novel)", "novel classes", "candidates")
    if values.shape != (len(novel), len(block)):
        raise InputError(
            f"Expected `similarity` to return one row for each of the {len(novel)} novel classes "
            f"and one column for each of the {len(block)} candidates it was given but got shape "
            f"{values.shape}."
        )
    return values
