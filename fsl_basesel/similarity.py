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
        if groups is not None and len(groups) != count:
            raise InputError(
                f"Expected `groups` to have one entry for each of the {count} classes but got "
                f"{len(groups)}."
            )
        if images is not None:
            images = checks.numbers(images, "images", count, 0, whole=True)
        self.__dict__.update(
            values=matrix,
            names=checks.class_names(names, count, "names", "class"),
            groups=None if groups is None else tuple(str(group) for group in groups),
            images=images,
            weights=None if weights is None else checks.numbers(weights, "weights", count, 0),
            made_by=dict(made_by or {}),
        )

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        classes, dimensions = self.values.shape
        return f"ClassCentroids({classes} classes, {dimensions} dimensions)"


def class_centroids(
    features: ArrayLike,
    labels: Sequence[int] | Sequence[str] | np.ndarray,
    *,
    normalize: bool = False,
    limit: int | None = None,
) -> np.ndarray:
    """Mean feature of every class.

    Args:
        features: `[n, d]`, one row per image.
        labels: `[n]`, class of each image: integers of at least 0, with or without gaps, or names.
        normalize: Scale the features of every image to length one first.
        limit: Use only the first `limit` images of each class; None uses all.

    Returns:
        `[C, d]` float64, one row per class in the order of `np.unique(labels)` (sums are taken in
        float64 whatever the features' type).

    Example:
        >>> class_centroids([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]], ["cat", "cat", "ant"])
        array([[0., 5.],
               [2., 0.]])
    """
    matrix = checks.matrix(features, "features", "images", "dimensions")
    given = np.asarray(labels)
    if given.dtype == object and all(isinstance(label, str) for label in given.flat):
        given = given.astype(str)  # as pandas keeps names
    if given.shape != (len(matrix),) or given.dtype.kind not in "iuUT":
        raise InputError(
            f"Expected `labels` to be {len(matrix)} integers or names, one for each row of "
            f"`features`, but got {given.dtype} of shape {given.shape}."
        )
    if given.dtype.kind == "i" and given.min() < 0:
        raise InputError(f"Expected `labels` of at least 0 but got {given.min()}.")
    if limit is not None:
        checks.integer(limit, "limit", 1)
    classes, images = np.unique(given, return_inverse=True, return_counts=True)[1:]
    by_class = np.split(np.argsort(classes, kind="stable"), np.cumsum(images)[:-1])
    centroids = np.empty((len(images), matrix.shape[1]))
    for label, members in enumerate(found[:limit] for found in by_class):
        rows = matrix[members]
        if normalize:
            if not rows.any(axis=1).all():
                raise InputError(
                    "Expected features with a length above zero for normalize=True but those of "
                    f"image {members[~rows.any(axis=1)][0]} are all zeros; leave it out."
                )
            rows = unit_rows(rows, "features", [""] * len(rows))
        centroids[label] = rows.mean(axis=0, dtype=np.float64)
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


@dataclass(frozen=True, eq=False)
class Space:
    """Where a named similarity compares classes: `(centroid - centre) @ matrix`, by cosine."""

    name: str
    options: dict[str, Any]  # those of `space_of` that are not the default
    centre: np.ndarray | None = None  # [d], of candidates; None subtracts nothing
    novel_centre: np.ndarray | None = None  # [d], of novel classes
    matrix: np.ndarray | None = None  # [d, d], upper triangular
    scale: float = 0.0  # of what each centre is the mean of, to tell rounding from a direction
    novel_scale: float = 0.0

    def unit(
        self, rows: np.ndarray, argument: str, names: Sequence[str], offset: int = 0
    ) -> np.ndarray:
        """Centroids there, at unit length; `argument` is "candidates" or "novel".

        `names` and `offset` (of the first row among all) are for error messages.
        """
        ours = argument == "candidates"
        centre = self.centre if ours else self.novel_centre
        if centre is None:
            return unit_rows(rows, argument, names, offset)
        moved = rows - centre
        scale = self.scale if ours else self.novel_scale
        near = np.abs(moved).max(axis=1) <= NO_DIRECTION * scale
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
    if callable(similarity) or (isinstance(similarity, str) and similarity in SIMILARITIES):
        return similarity
    raise InputError(
        f"Expected `similarity` of {', '.join(SIMILARITIES)} or a function but got {similarity!r}."
    )


def default_objective(
    general: bool, k: int | None, similarity: str | SimilarityFunction | None
) -> tuple[int, str | SimilarityFunction]:
    """K and similarity, with defaults for what was not given.

    The paper's cosine and K = 3; in General Selection whitened and K = 1, which train better
    networks there (docs/results/objective-general.md). A larger K that is given keeps the cosine.

    Example:
        >>> default_objective(True, None, None), default_objective(True, 5, None)
        ((1, 'whitened'), (5, 'cosine'))
    """
    if similarity is None:
        similarity = "whitened" if general and k in (None, 1) else "cosine"
    return (1 if general else 3) if k is None else k, similarity


def space_of(
    similarity: str | SimilarityFunction,
    candidates: np.ndarray,
    novel: np.ndarray,
    centre: str = "candidates",
    shrinkage: float = 0.5,
) -> Space | SimilarityFunction:
    """The space in which the similarity of this name compares centroids; a function as it is.

    `centred` subtracts the mean of the candidates' centroids. `whitened` also maps by an inverse
    Cholesky factor of `(1 - s) S + s tr(S)/d I`, with `S` the covariance of the candidates'
    centroids and `s` the shrinkage, so that directions in which all candidates differ count less.
    See `SelectionProblem.from_centroids`.
    """
    name = str(known_similarity(similarity))
    checks.one_of(centre, CENTRES, "centre")
    if not 0 < checks.non_negative(shrinkage, "shrinkage") <= 1:
        raise InputError(f"Expected `shrinkage` above 0 and at most 1 but got {shrinkage!r}.")
    options: dict[str, Any] = {} if centre == "candidates" else {"centre": centre}
    options |= {} if shrinkage == 0.5 else {"shrinkage": float(shrinkage)}
    used = {"centred": {"centre"}, "whitened": {"centre", "shrinkage"}}.get(name, set())
    for option in set(options) - used:
        raise InputError(
            f"Expected no `{option}` with similarity {name!r}, which does not use it, but got "
            f"{options[option]!r}; leave it out or use similarity 'whitened'."
        )
    if callable(similarity):
        return similarity
    if name == "cosine":
        return Space(name, options)
    count, dimensions = candidates.shape
    if count < 3 or dimensions < 2:
        raise InputError(
            f"Expected at least 3 candidates in at least 2 dimensions for similarity {name!r}, "
            f"which compares them with their mean, but got {count} in {dimensions}; use "
            "similarity 'cosine'."
        )
    scale, novel_scale = _largest_entry(candidates), _largest_entry(novel)
    if max(scale, novel_scale) > checks.LARGEST_SUM:
        raise InputError(
            f"Expected centroids of at most {checks.LARGEST_SUM:g} for similarity {name!r}, which "
            f"takes their mean, but got {max(scale, novel_scale):g}; use other units."
        )
    if np.ptp(candidates, axis=0).max() <= NO_DIRECTION * scale:
        raise InputError(
            f"Expected candidates that differ for similarity {name!r} but all {count} centroids "
            "are equal; check the features."
        )
    own, each = candidates.mean(axis=0, dtype=np.float64), centre == "each"
    theirs = novel.mean(axis=0, dtype=np.float64) if each else own
    if each and len(novel) < 2:
        raise InputError(
            "Expected at least 2 novel classes for centre='each', which subtracts their mean, but "
            f"got {len(novel)}; use centre='candidates'."
        )
    matrix = _whitening(candidates, own, shrinkage) if name == "whitened" else None
    return Space(name, options, own, theirs, matrix, scale, novel_scale if each else scale)


def _largest_entry(values: np.ndarray) -> float:
    """The largest absolute value, without a copy of the array."""
    return max(float(values.max()), -float(values.min()))


def _whitening(candidates: np.ndarray, centre: np.ndarray, shrinkage: float) -> np.ndarray:
    """Upper triangular W with `W W^T` the inverse of the shrunk covariance, `[d, d]` float64."""
    from scipy.linalg import solve_triangular  # loaded before its BLAS is told to use one thread

    dimensions = candidates.shape[1]
    # Powers of two: exact, and squares of huge or tiny entries neither overflow nor vanish.
    exponent = -int(np.frexp(_largest_entry(candidates))[1])
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
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            raise InputError(
                "Expected `shrinkage` large enough for a covariance that can be inverted but got "
                f"{shrinkage!r}; the default is 0.5."
            ) from None
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
    offset: int = 0,
) -> np.ndarray:
    """Similarities `[|B|, |N|]` of every candidate to every novel class; `offset` as in `unit`.

    Only the result and one block of candidates are in memory beside the centroids. Blocks are
    computed in float64; rounding them to float32 hides the last bits, in which machines with
    different vector units differ. In float64 those bits stay, and equal centroids may differ in
    them too.
    """
    columns = np.empty((len(candidates), len(novel)), np.result_type(candidates, novel))
    if not len(novel):  # they are all on other processes
        return columns
    if not isinstance(similarity, Space):
        # Blocks of unequal size first, so that |N| = |B| does not hide a transposed result.
        few = candidates[:3]
        _checked(similarity, few, novel[: 2 if len(few) != 2 else 1])
        for start, stop in blocks(len(candidates), BLOCK):
            report("similarities", start, len(candidates))
            columns[start:stop] = _checked(similarity, candidates[start:stop], novel).T
        return columns
    space = similarity

    def work(start: int, stop: int) -> None:
        report("similarities", start, len(candidates))
        unit = space.unit(candidates[start:stop], "candidates", names[start:stop], start)
        # Blocks of novel classes that are the same on many processes: a library's products of
        # other shapes may differ in their last bits.
        for first, last in blocks(len(target), parallel.ROWS):
            columns[start:stop, first:last] = np.clip(unit @ target[first:last].T, -1.0, 1.0)

    with one_blas_thread():
        target = space.unit(novel, "novel", novel_names, offset)
        map_blocks(work, len(candidates), ROWS)
    return columns


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
