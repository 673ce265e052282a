"""The multilinear extension F of a problem's objective, and its gradient.

`SelectionProblem.multilinear` and `SelectionProblem.gradient` are these functions.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from fsl_basesel import checks
from fsl_basesel.checks import ArrayLike, is_tensor
from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import like, value_and_gradient

if TYPE_CHECKING:
    import torch

    from fsl_basesel.problem import SelectionProblem


def multilinear(
    problem: SelectionProblem, x: ArrayLike, backend: str = "auto"
) -> float | np.ndarray | torch.Tensor:
    """F(x) (Eq. 4): expectation of h when column u is in with probability `x[u]`.

    Args:
        problem: The objective.
        x: `[|B|]`, or a batch `[S, |B|]`; entries of B_s count as 1.
        backend: See `fsl_basesel.multilinear`.

    Returns:
        A float, or for a batch `[S]` values: a tensor if `x` is one, else an array.
    """
    points, batched = probability_points(problem, x)
    problem.agree("problem.multilinear", x=_mark(problem, points))
    top, _ = _mean_top(problem, points, backend)
    values = top - points @ like(points, problem.modular)
    return problem.answer(values) if batched else float(values[0])


def gradient(problem: SelectionProblem, x: ArrayLike, backend: str = "auto") -> Any:
    """dF/dx (Eq. 5, 6), exact, for every column in one forward-backward pass.

    Memory: the first gradient sorts the rows and keeps them; see `SortedRows`.

    Args:
        problem: The objective.
        x: `[|B|]`, or a batch `[S, |B|]`; entries of B_s count as 1.
        backend: See `fsl_basesel.multilinear`.

    Returns:
        The shape of `x`: a tensor if `x` is one, else a float64 array. 0 for B_s, whose classes are
        no variables of F.
    """
    problem.agree("problem.gradient", x=_mark(problem, x))
    top = top_gradient(problem, x, backend)
    slopes = top - like(top, problem.modular)
    slopes[..., list(problem.selected)] = 0.0
    return problem.answer(slopes)


def top_gradient(problem: SelectionProblem, x: ArrayLike, backend: str = "auto") -> Any:
    """The part of `gradient` that comes from the top-k means, the same for every lam and m."""
    points, batched = probability_points(problem, x)
    _, slopes = _mean_top(problem, points, backend)
    return slopes if batched else slopes[0]


def _mean_top(problem: SelectionProblem, points: Any, backend: str) -> tuple[Any, Any]:
    """The expected mean top-k similarity and its gradient, over the rows of all processes."""
    value, slopes = value_and_gradient(problem.sorted_rows, points, problem.k, backend=backend)
    if problem.rows.size > 1:
        share = problem.by_candidate.shape[1] / problem.n_novel
        parts = (np.asarray(checks.array(part, "a result"), np.float64) for part in (value, slopes))
        value, slopes = (like(points, problem.rows.sum(share * part[None])) for part in parts)
    if problem.weights is not None:  # whose rows are sorted above the floor
        value = value + problem.floor
    return value, slopes


def _mark(problem: SelectionProblem, x: ArrayLike) -> int | None:
    """A fingerprint of points, for processes that must agree on them."""
    if problem.rows.size == 1:
        return None
    return zlib.crc32(np.ascontiguousarray(checks.array(x, "Expected `x` to be an array")).data)


def probability_points(problem: SelectionProblem, x: ArrayLike) -> tuple[Any, bool]:
    """`x` as a batch `[S, |B|]` of points with B_s at 1, and whether it was a batch."""
    expected = (
        f"Expected `x` of shape [{problem.n_candidates}] or [S, {problem.n_candidates}], one "
        "probability for each candidate,"
    )
    given: Any = x
    if is_tensor(x):
        given = x.detach().clone() if x.is_floating_point() else x.double()
    else:
        array = checks.array(x, expected)
        if array.dtype.kind not in "fiub":
            raise InputError(f"{expected} but got dtype {array.dtype}.")
        given = np.array(array, np.float64, order="C")
    if given.ndim not in (1, 2) or given.shape[-1] != problem.n_candidates:
        raise InputError(f"{expected} but got {list(given.shape)}.")
    points = given.reshape(-1, problem.n_candidates)
    if not bool(((points >= 0) & (points <= 1)).all()):
        raise InputError(
            "Expected `x` to hold probabilities between 0 and 1 but got values from "
            f"{float(points.min())} to {float(points.max())}."
        )
    if problem.selected:
        points[:, list(problem.selected)] = 1.0
    return points, given.ndim == 2
