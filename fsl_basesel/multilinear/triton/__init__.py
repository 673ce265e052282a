"""F(x) and its gradient on a GPU, in Triton. Importing this package needs neither.

`states` holds the device functions, `walk` and `scan` the two decompositions, `settings` the sizes,
`launch` the launches, `exchange` the kernels of device-side pipage rounding.
"""

from __future__ import annotations

import re
import weakref
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear.order import PrefixTooShortError, SortedRows
from fsl_basesel.multilinear.triton.settings import (
    ALIGNMENT,
    EPSILON,
    STATES,
    Settings,
    calculate_settings,
)

__all__ = ["place_rows", "supports", "value_and_gradient", "value_gradient_left"]

OLDEST = (3, 4)  # the first Triton whose compiler takes these kernels; comes with torch 2.8

_placed: dict[tuple[int, torch.device], SortedRows] = {}


def value_and_gradient(
    rows: SortedRows,
    x: Tensor,
    k: int,
    *,
    deterministic: bool = False,
    decomposition: str = "auto",
) -> tuple[Tensor, Tensor]:
    """F(x) and dF/dx, `[S]` and `[S, |B|]`, computed in the type of `x` on the GPU.

    Where `x` is on the CPU, rows (once) and x (each time) are copied to the current GPU and the
    results back. Where it is on a GPU, nothing waits for the device, but for one look at whether a
    prefix of sorted rows was long enough.

    Memory on the device: the rows, and scratch of at most 80 MiB (128 MiB if deterministic), or
    what a single row needs: 2.4 times the float32 similarity matrix at 1000 x 21000.

    Args:
        rows: sorted similarities; `place_rows` puts them on a GPU in the layout that reads fastest.
        x: `[S, |B|]` probabilities, float32 or float64.
        k: how many similarities a novel class counts; at most 32, or any k >= L.
        deterministic: the same bits every time, by a sum of fixed order, not atomic additions.
        decomposition: `"walk"`, `"scan"`, or `"auto"` to choose by shape.

    Raises:
        PrefixTooShortError: the rows hold only a prefix and a walk ran past it.
    """
    rows, points = _on_device(rows, x)
    value, gradient, left = value_gradient_left(
        rows, points, k, deterministic=deterministic, decomposition=decomposition
    )
    if not rows.complete and (beyond := float(left)) >= EPSILON[x.dtype]:
        raise PrefixTooShortError(rows.length, beyond)
    return value.to(x.device), gradient.to(x.device)


def value_gradient_left(
    rows: SortedRows,
    x: Tensor,
    k: int,
    *,
    deterministic: bool = False,
    decomposition: str = "auto",
    settings: Settings | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """F, dF/dx and the most probability left beyond any row, all on the device, no host wait.

    Arguments as in `value_and_gradient`, with rows and x on one device. For a loop that stays on
    the device and looks at the third result once, at its end. `settings` overrides the sizes.
    """
    if rows.n_novel == 0 or rows.length == 0 or x.shape[0] == 0:
        return x.new_full((x.shape[0],), rows.floor), torch.zeros_like(x), x.new_ones(())
    settings = settings or calculate_settings(
        x.shape[0],
        rows.n_novel,
        rows.length,
        k,
        x.element_size(),
        n_candidates=rows.n_candidates,
        decomposition=decomposition,
    )
    if refusal := _refusal():
        raise InputError(refusal)
    from fsl_basesel.multilinear.triton import launch

    if not (x.is_cuda or launch.INTERPRETED):
        raise InputError(
            "Expected a GPU that torch can use for the Triton backend but found none; use "
            'backend="cpu", or backend="torch" for other devices'
        )
    return launch.value_gradient_left(rows, x, k, settings, deterministic)


def place_rows(rows: SortedRows, device: torch.device | str) -> SortedRows:
    """The rows on `device`, each padded to a multiple of 16 elements so that loads are wide.

    Example:
        >>> import numpy as np
        >>> rows = place_rows(SortedRows.from_columns(np.eye(3)), "cpu")
        >>> rows.values.shape, rows.values.stride(0)
        (torch.Size([3, 3]), 16)
    """
    width = -(-rows.length // ALIGNMENT) * ALIGNMENT
    target = torch.empty(0, device=device).device  # "cuda" is one of its devices

    def padded(tensor: Tensor) -> Tensor:
        if tensor.device == target and tensor.stride() == (width, 1):
            return tensor
        out = torch.zeros(tensor.shape[0], width, dtype=tensor.dtype, device=target)
        out[:, : rows.length] = tensor.to(target)
        return out[:, : rows.length]

    return SortedRows(padded(rows.values), padded(rows.order), rows.floor, rows.n_candidates)


def supports(rows: SortedRows, k: int) -> bool:
    """Whether the kernels go as far as this K on rows of this length, and Triton is new enough.

    Example:
        >>> import numpy as np
        >>> supports(SortedRows.from_columns(np.eye(40)), k=33)
        False
    """
    return min(k, rows.length) <= STATES[-1] and not _refusal()


def _refusal() -> str:
    """Why the Triton that is installed cannot be used, or nothing."""
    wanted = f"Expected the package `triton`, version {OLDEST[0]}.{OLDEST[1]} or later, but "
    way_out = '; install a newer torch, or use backend="torch" or backend="cpu"'
    if find_spec("triton") is None:
        return f"{wanted}it is not installed{way_out}"
    version = import_module("triton").__version__
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
        return f"{wanted}got {version}{way_out}"
    return ""


def _on_device(rows: SortedRows, x: Tensor) -> tuple[SortedRows, Tensor]:
    """Rows and x on one GPU; rows that were copied are kept as long as the originals live."""
    if x.is_cuda and rows.values.device == x.device:
        return rows, x
    if torch.cuda.is_available():
        device = x.device if x.is_cuda else torch.device("cuda", torch.cuda.current_device())
        key = (id(rows), device)
        if key not in _placed:
            _placed[key] = place_rows(rows, device)
            weakref.finalize(rows, _placed.pop, key, None)
        return _placed[key], x.to(device)
    return rows, x  # only the interpreter takes these
