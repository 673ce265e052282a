"""Launching device-side pipage rounding: a fixed number of exchanges, decided where they happen."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from fsl_basesel.multilinear.order import SortedRows
from fsl_basesel.multilinear.triton.exchange import move_kernel, slope_kernel
from fsl_basesel.multilinear.triton.launch import (
    DTYPES,
    compile_options,
    device_of,
    readable_width,
    warp_size,
)
from fsl_basesel.multilinear.triton.settings import EPSILON, compiled_states
from fsl_basesel.rounding import TIE, WHOLE

TILE = 4
PARTIALS = 128  # partial sums the deciding program adds at a time


def exchange(
    rows: SortedRows, x: Tensor, queue: Tensor, ends: Tensor, modular: Tensor, k: int, times: int
) -> Tensor:
    """Exchange probability between the two ends of the queue `times` times, in place.

    Args:
        rows: sorted similarities on the device of `x`.
        x: `[|B|]` float64 probabilities, 1 on the columns already selected; updated.
        queue: `[|B|]` int32, columns by falling gradient.
        ends: `[2]` int32, first and last place of the queue still open; updated. Once they meet,
            what is left of the exchanges does nothing.
        modular: `[|B|]` float64 modular weights.
        k: how many similarities a novel class counts.
        times: how many exchanges.

    Returns:
        The most probability left beyond a row in any exchange, a scalar tensor.
    """
    lanes = warp_size()
    programs = triton.cdiv(rows.n_novel, lanes)
    states = compiled_states(min(k, rows.length))
    partial, left = x.new_empty(programs), x.new_zeros(programs)
    floor = x.new_full((1,), rows.floor)
    scale = x.new_full((1,), 1.0 / (k * rows.n_novel))
    best = (rows.values[:, 0].to(x.dtype) - rows.floor).mean()
    tie = TIE * (best + modular.abs().max())
    width = min(readable_width(rows.values), readable_width(rows.order))
    options = compile_options("slope", 2 * states, warp_size())
    with device_of(x):
        for _ in range(times):
            slope_kernel[(programs,)](
                x,
                rows.values,
                rows.order,
                floor,
                queue,
                ends,
                partial,
                left,
                rows.n_novel,
                rows.length,
                width,
                rows.values.stride(0),
                rows.order.stride(0),
                states - min(k, rows.length),
                EPSILON[torch.float64],
                K=states,
                TILE=TILE,
                BLOCK=lanes,
                DTYPE=DTYPES[torch.float64],
                **options,
            )
            move_kernel[(1,)](
                x,
                queue,
                ends,
                partial,
                modular,
                scale,
                tie,
                programs,
                WHOLE=WHOLE,
                BLOCK=PARTIALS,
                DTYPE=DTYPES[torch.float64],
                num_warps=1,
                enable_fp_fusion=True,
            )
    return left.amax()
