"""Launching the gradient kernels: scratch, grids and the sum over novel classes."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import triton
from torch import Tensor

from fsl_basesel.multilinear.sorted_rows import EPSILON, SortedRows
from fsl_basesel.multilinear.triton.scan import (
    backward_kernel,
    forward_kernel,
    replay_kernel,
    summarise_kernel,
)
from fsl_basesel.multilinear.triton.settings import BLOCK, Settings, scan_unroll

BOUNDED_FROM = 16  # words of states
INTERPRETED = not isinstance(replay_kernel, triton.runtime.JITFunction)


def value_and_gradient(
    rows: SortedRows, x: Tensor, k: int, settings: Settings
) -> tuple[Tensor, Tensor]:
    """F `[S]` and dF/dx `[S, |B|]`.

    Arguments are already checked. Nothing here waits for the device, and every launch follows from
    shapes alone, so a call can be captured in a CUDA graph.
    """
    values, order = rows.on_device(x.device)
    n_rows, length = values.shape
    x = x.t().contiguous()
    value = x.new_empty(n_rows, x.shape[1])
    grad = torch.zeros_like(x)
    floors = x.new_full((1,), rows.floor)
    with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
        for first in range(0, n_rows, settings.rows):
            part = slice(first, first + settings.rows)
            _scan(x, floors, values[part], order[part], min(k, length), settings, value[part], grad)
    return value.mean(0) / k + rows.floor, (grad / (k * n_rows)).t().contiguous()


def compile_options(name: str, words: int, warp_size: int) -> dict[str, Any]:
    """A thread for each lane, fused multiply-adds, a bound on registers where many are asked for.

    NVIDIA's assembler decides for itself while the states of a lane take few words of 32 bits.
    From `BOUNDED_FROM` on, it sometimes spills a few bytes to win a program; a bound of its own
    stops it: 184, ten warps a multiprocessor, for the kernels that fill the device, all there are
    for the others.

    Example:
        >>> compile_options("replay", words=5, warp_size=32)
        {'num_warps': 2, 'enable_fp_fusion': True}
    """
    wide = name in ("summarise", "replay")
    lanes = BLOCK if wide else warp_size
    options = {"num_warps": lanes // warp_size, "enable_fp_fusion": True}
    if warp_size == 32 and words >= BOUNDED_FROM:
        options["maxnreg"] = 184 if wide and words <= 32 else 255
    return options


def warp_size() -> int:
    """Threads of a warp on this build's devices."""
    return 64 if torch.version.hip else 32


def _scan(
    x: Tensor,
    floors: Tensor,
    values: Tensor,
    order: Tensor,
    k: int,
    settings: Settings,
    value: Tensor,
    grad: Tensor,
) -> None:
    """Write the expected top-k sums of some rows to `value` `[R, S]`, add their slopes to `grad`.

    `x` and `grad` are `[|B|, S]`, `floors` is `[1]`, `values` and `order` are `[R, |B|]` in padded
    rows.
    """
    n_samples, (n_rows, length) = x.shape[1], values.shape
    states, n_chunks = settings.states, settings.n_chunks
    words = states * x.element_size() // 4
    poly = x.new_empty(states + 1, n_rows, n_chunks, n_samples)
    before = x.new_empty(states, n_rows, n_chunks, n_samples)
    own = torch.empty_like(before)
    live = torch.zeros(n_rows, n_samples, dtype=torch.int32, device=x.device)
    state = x.new_zeros(states + 1, n_rows, n_samples)
    state[states - k].fill_(1)
    elements = (x, values, order, floors, live)
    shape = (n_samples, n_rows, length, values.stride(0), settings.chunk, n_chunks)
    rows_grid = (triton.cdiv(n_rows * n_samples, warp_size()),)
    scans: dict[str, Any] = {"K": states, "UNROLL": scan_unroll(words), "BLOCK": warp_size()}
    scans |= compile_options("forward", words, warp_size())
    tiles: dict[str, Any] = {"K": states, "TILE": settings.tile, "BLOCK": BLOCK}
    tiles |= compile_options("replay", words, warp_size())
    for first, last in zip(settings.waves, settings.waves[1:], strict=False):
        n_blocks = triton.cdiv(n_rows * (last - first) * n_samples, BLOCK)
        summarise_kernel[(n_blocks,)](*elements, poly, own, *shape, first, last - first, **tiles)
        wave = (n_samples, n_rows, n_chunks, first, last)
        epsilon = EPSILON[x.element_size()]
        forward_kernel[rows_grid](poly, before, state, live, *wave, epsilon, **scans)
    sizes = (n_samples, n_rows, n_chunks, states - k)
    backward_kernel[rows_grid](poly, own, live, value, *sizes, **scans)

    # Each (row, column) is written once, for as many rows at a time as fit, and the sum over rows
    # has a fixed order: the same bits every time.
    for first in range(0, n_rows, settings.dense_rows):
        count = min(settings.dense_rows, n_rows - first)
        dense = grad.new_zeros(count, *grad.shape)
        n_blocks = triton.cdiv(count * n_chunks * n_samples, BLOCK)
        programs = min(n_blocks, settings.programs)
        per_program = BLOCK * settings.chunk
        x_ring = x.new_empty(programs * per_program)
        p_ring = x.new_empty(programs * per_program // settings.tile * states)
        scratch = (before, own, dense, x_ring, p_ring)
        replay_kernel[(programs,)](*elements, *scratch, *shape, first, count, n_blocks, **tiles)
        grad += dense.sum(0)
