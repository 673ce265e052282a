"""The multilinear extension F(x) of the top-K part of the objective, and its exact gradient.

One folder for one operation: `reference` (plain torch, for tests), `cpu` (numba), `chunked` (torch
on any device), `triton` (GPU), and the dispatcher here. All share the signature
`value_and_gradient(rows, x, k)` and cost O(K |B| |N|) instead of the paper's O(K |B|² |N|).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear.order import PrefixTooShortError, SortedRows

__all__ = ["BACKENDS", "PrefixTooShortError", "SortedRows", "choose_backend", "value_and_gradient"]

BACKENDS = {"cpu": "cpu", "torch": "chunked", "triton": "triton", "reference": "reference"}
FLOATS = (torch.float32, torch.float64)


def choose_backend(rows: SortedRows, x: Tensor, k: int) -> str:
    """The backend that `auto` stands for: by where x and the rows are, and by K and the length.

    A GPU is used if one of them is on it, by Triton up to the K its kernels are compiled for (or
    rows that are no longer than that), by torch beyond and on every other device. Within Triton the
    shape decides further, see `triton.settings`.

    Example:
        >>> import numpy as np
        >>> rows = SortedRows.from_columns(np.ones((3, 2)))
        >>> choose_backend(rows, torch.zeros(1, 3), k=1)
        'cpu'
    """
    kinds = x.device.type, rows.values.device.type
    if kinds == ("cpu", "cpu"):
        return "cpu"
    return "triton" if "cuda" in kinds and _backend("triton").supports(rows, k) else "torch"


@cache
def _backend(name: str) -> ModuleType:
    """The module of a backend, imported when it is first needed."""
    return import_module(f"{__name__}.{BACKENDS[name]}")


def value_and_gradient(
    rows: SortedRows, x: Tensor, k: int, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """F(x), the expected mean top-K similarity, and dF/dx for every candidate.

    Args:
        rows: sorted similarities of |N| novel classes.
        x: `[|B|]` or `[S, |B|]` probabilities, float32 or float64, 1 on columns already selected.
        k: how many similarities a novel class counts.
        backend: `auto`, `cpu`, `torch`, `triton` or `reference`.

    Returns:
        The value (`[]` or `[S]`) and the gradient (the shape of `x`).

    Example:
        >>> import numpy as np
        >>> rows = SortedRows.from_columns(np.array([[0.8], [0.5]]))
        >>> value, gradient = value_and_gradient(rows, torch.tensor([0.5, 0.5]).double(), k=1)
        >>> round(value.item(), 3), [round(g, 3) for g in gradient.tolist()]
        (0.525, [0.55, 0.25])
    """
    if x.dtype not in FLOATS or x.ndim == 0 or x.size(-1) != rows.n_candidates:
        raise InputError(
            f"Expected `x` to be float32 or float64 with a last dimension of {rows.n_candidates} "
            f"(one probability a candidate) but got {x.dtype} of shape {tuple(x.shape)}"
        )
    if k < 1:
        raise InputError(f"Expected `k` to be at least 1 but got {k}")
    name = choose_backend(rows, x, k) if backend == "auto" else backend
    if name not in BACKENDS:
        raise InputError(
            f"Expected `backend` to be one of auto, {', '.join(BACKENDS)} but got {backend!r}"
        )
    if name == "cpu" and not x.is_cpu:
        raise InputError(
            f"Expected `x` on the CPU for backend 'cpu' but got it on {x.device}; pass x.cpu(), or "
            "leave the backend at 'auto'"
        )
    # Of |B| candidates no more than |B| count: a larger K changes what the sum is divided by alone.
    counted = max(1, min(k, rows.n_candidates))
    if name == "cpu":  # takes any shape: views made by torch would take as long as a small gradient
        value, gradient = _backend(name).value_and_gradient(rows, x, counted)
    else:
        points = x.reshape(-1, rows.n_candidates)
        value, gradient = _backend(name).value_and_gradient(rows, points, counted)
        value, gradient = value.reshape(x.shape[:-1]), gradient.reshape(x.shape)
    if counted < k:
        value = rows.floor + (value - rows.floor) * (counted / k)
        gradient = gradient * (counted / k)
    return value, gradient
