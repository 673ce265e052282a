"""The multilinear extension F(x) of the top-K part of the objective, and its exact gradient.

One folder for one operation: `reference` (plain torch, for tests), `cpu` (numba), `chunked` (torch
on any device), `triton` (GPU), and the dispatcher here. All share the signature
`value_and_gradient(rows, x, k)` and cost O(K |B| |N|) instead of the paper's O(K |B|² |N|).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fsl_basesel import checks
from fsl_basesel.checks import is_tensor
from fsl_basesel.errors import InputError
from fsl_basesel.multilinear.sorted_rows import SortedRows

if TYPE_CHECKING:
    import torch

__all__ = ["BACKENDS", "SortedRows", "choose_backend", "like", "value_and_gradient"]

BACKENDS = {"cpu": "cpu", "torch": "chunked", "triton": "triton", "reference": "reference"}

Points = TypeVar("Points", np.ndarray, "torch.Tensor")


def choose_backend(device: str, k: int) -> str:
    """The backend that `auto` stands for, by the kind of device and K.

    On a GPU it is Triton up to the K its kernels are compiled for, and torch beyond.

    Example:
        >>> choose_backend("cpu", k=1), choose_backend("mps", k=1)
        ('cpu', 'torch')
    """
    if device == "cpu":
        return "cpu"
    return "triton" if device == "cuda" and _module("triton").supports(k) else "torch"


def _module(backend: str) -> Any:
    """The module of a backend, imported when it is first needed."""
    return import_module(f"{__name__}.{BACKENDS[backend]}")


def value_and_gradient(
    rows: SortedRows, x: Points, k: int, backend: str = "auto"
) -> tuple[Points, Points]:
    """F(x), the expected mean top-K similarity, and dF/dx for every candidate.

    Args:
        rows: sorted similarities of |N| novel classes.
        x: `[|B|]` or `[S, |B|]` probabilities, float32 or float64, 1 on columns already selected:
            an array, or a tensor on the device to compute on.
        k: how many similarities a novel class counts.
        backend: `auto`, `cpu`, `torch`, `triton` or `reference`.

    Returns:
        The value (`[]` or `[S]`) and the gradient (the shape of `x`), of the type of `x`.

    Example:
        >>> rows = SortedRows.from_columns(np.array([[0.8], [0.5]]))
        >>> value, gradient = value_and_gradient(rows, np.array([0.5, 0.5]), k=1)
        >>> round(float(value), 3), [round(g, 3) for g in gradient.tolist()]
        (0.525, [0.55, 0.25])
    """
    dtype: Any = x.dtype
    floating = dtype.is_floating_point if is_tensor(x) else dtype.kind == "f"
    real = floating and dtype.itemsize in (4, 8)
    if not real or x.ndim == 0 or x.shape[-1] != rows.n_candidates:
        raise InputError(
            f"Expected `x` to be float32 or float64 with a last dimension of {rows.n_candidates} "
            f"(one probability for each candidate) but got {x.dtype} of shape {tuple(x.shape)}"
        )
    checks.integer(k, "k", 1)
    checks.one_of(backend, ("auto", *BACKENDS), "backend")
    # Of |B| candidates no more than |B| count: a larger K changes only the divisor.
    counted = max(1, min(k, rows.n_candidates))
    device = x.device.type if is_tensor(x) else "cpu"
    name = choose_backend(device, counted) if backend == "auto" else backend
    points: Any = x.detach() if is_tensor(x) else x
    if name == "cpu":
        points = np.ascontiguousarray(points, np.float64)
    elif not is_tensor(x):
        import torch

        points = torch.from_numpy(np.array(x))
    points = points.reshape(-1, rows.n_candidates)
    value, gradient = _module(name).value_and_gradient(rows, points, counted)
    if counted < k:
        value = rows.floor + (value - rows.floor) * (counted / k)
        gradient = gradient * (counted / k)
    return like(x, value).reshape(x.shape[:-1]), like(x, gradient).reshape(x.shape)


def like(x: Any, result: Any) -> Any:
    """`result` as an array or a tensor of the type of `x`, and beside it."""
    if not is_tensor(x):
        return np.asarray(result, x.dtype)
    import torch

    return torch.as_tensor(result).to(x)
