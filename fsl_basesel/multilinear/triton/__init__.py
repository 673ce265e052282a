"""F(x) and its gradient on a GPU, in Triton. Importing this package needs neither.

`states` holds the device functions, `scan` the kernels, `settings` the sizes and `launch` the
launches.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear.sorted_rows import SortedRows
from fsl_basesel.multilinear.triton.settings import STATES, Settings, calculate_settings

__all__ = ["supports", "value_and_gradient"]

OLDEST = (3, 4)  # the first Triton whose compiler takes these kernels; comes with torch 2.8


def value_and_gradient(
    rows: SortedRows, x: Tensor, k: int, settings: Settings | None = None
) -> tuple[Tensor, Tensor]:
    """F(x) and dF/dx, `[S]` and `[S, |B|]`, computed in the type of `x`; the same bits every time.

    Rows are copied to the GPU of `x` once. An `x` on the CPU is copied to the current GPU each time
    and the results back; else nothing waits for the device.

    Memory on the device: the rows, and scratch of at most 128 MiB, or what a single row needs. `k`
    is at most 32, unless |B| is.
    """
    if rows.n_novel == 0 or rows.n_candidates == 0 or x.shape[0] == 0:
        return x.new_full((x.shape[0],), rows.floor), torch.zeros_like(x)
    shape = (x.shape[0], rows.n_novel, rows.n_candidates)
    settings = settings or calculate_settings(*shape, k, x.element_size())
    if refusal := _refusal():
        raise InputError(refusal)
    from fsl_basesel.multilinear.triton import launch

    found_gpu = torch.cuda.is_available()
    if not (found_gpu or launch.INTERPRETED):
        raise InputError(
            "Expected a GPU that torch can use for the Triton backend but found none; use "
            'backend="cpu", or backend="torch" for other devices'
        )
    points = x.cuda() if found_gpu and not x.is_cuda else x
    value, gradient = launch.value_and_gradient(rows, points, k, settings)
    return value.to(x.device), gradient.to(x.device)


def supports(k: int) -> bool:
    """Whether the kernels go as far as this K, and Triton is new enough.

    Example:
        >>> supports(33)
        False
    """
    return k <= STATES[-1] and not _refusal()


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
