"""Launching the gradient kernels: scratch, grids and the sum over novel classes."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fsl_basesel.multilinear.placed import PlacedRows
from fsl_basesel.multilinear.triton.scan import (
    backward_kernel,
    forward_kernel,
    replay_kernel,
    summarise_kernel,
)
from fsl_basesel.multilinear.triton.settings import BLOCK, EPSILON, Settings, scan_unroll

DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}
BOUNDED_FROM = {"replay": 16}  # words of states; the other kernels from 17
INTERPRETED = not isinstance(replay_kernel, triton.runtime.JITFunction)


class Block(NamedTuple):
    """One launch's share of a gradient: some rows of the problem, every sample.

    Attributes:
        x: `[|B|, S]` probabilities.
        floor: `[1]`.
        similarities: `[R, |B|]` falling, in padded rows.
        order: `[R, |B|]` columns, padded alike.
        value: `[R, S]` out, expected top-k sums above the floor.
    """

    x: Tensor
    floor: Tensor
    similarities: Tensor
    order: Tensor
    value: Tensor

    def part(self, first: int, count: int) -> Block:
        """The rows `first .. first + count`."""
        return Block(*self[:2], *(tensor[first : first + count] for tensor in self[2:]))

    def shape_arguments(self) -> tuple[int, ...]:
        """What every kernel that reads elements is told about shapes, in the kernels' order."""
        return self.x.shape[1], *self.similarities.shape, self.similarities.stride(0)


def value_and_gradient(
    rows: PlacedRows, floor: float, x: Tensor, k: int, settings: Settings
) -> tuple[Tensor, Tensor]:
    """F `[S]` and dF/dx `[S, |B|]`.

    Arguments are already checked. Nothing here waits for the device, and every launch follows from
    shapes alone, so a call can be captured in a CUDA graph.
    """
    n_rows, length = rows.values.shape
    x = x.t().contiguous()
    value = x.new_empty(n_rows, x.shape[1])
    grad = torch.zeros_like(x)
    whole = Block(x, x.new_full((1,), floor), rows.values, rows.order, value)
    with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
        for first in range(0, n_rows, settings.rows):
            _scan(whole.part(first, settings.rows), min(k, length), settings, grad)
    return value.mean(0) / k + floor, (grad / (k * n_rows)).t().contiguous()


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
    if warp_size == 32 and words >= BOUNDED_FROM.get(name, 17):
        options["maxnreg"] = 184 if wide and words <= 32 else 255
    return options


def warp_size() -> int:
    """Threads of a warp on this build's devices."""
    return 64 if torch.version.hip else 32


def _scan(block: Block, k: int, settings: Settings, grad: Tensor) -> None:
    """Add the slopes of the rows of a block to `grad`."""
    x = block.x
    shape = block.shape_arguments()
    n_samples, n_rows = shape[:2]
    states, n_chunks = settings.states, settings.n_chunks
    words = states * x.element_size() // 4
    poly = x.new_empty(states + 1, n_rows, n_chunks, n_samples)
    before = x.new_empty(states, n_rows, n_chunks, n_samples)
    own = torch.empty_like(before)
    live = torch.zeros(n_rows, n_samples, dtype=torch.int32, device=x.device)
    state = x.new_zeros(states + 1, n_rows, n_samples)
    state[states - k].fill_(1)
    rows_grid = (triton.cdiv(n_rows * n_samples, warp_size()),)
    elements = (x, block.similarities, block.order, block.floor, live)
    scans: dict[str, Any] = {"K": states, "UNROLL": scan_unroll(words), "BLOCK": warp_size()}
    scans |= compile_options("forward", words, warp_size())
    tiles: dict[str, Any] = {"K": states, "TILE": settings.tile, "BLOCK": BLOCK}
    for first, last in zip(settings.waves, settings.waves[1:], strict=False):
        summarise_kernel[(triton.cdiv(n_rows * (last - first) * n_samples, BLOCK),)](
            *elements,
            poly,
            own,
            *shape,
            settings.chunk,
            n_chunks,
            first,
            last - first,
            DTYPE=DTYPES[x.dtype],
            **tiles,
            **compile_options("summarise", words, warp_size()),
        )
        forward_kernel[rows_grid](
            poly,
            before,
            state,
            live,
            n_samples,
            n_rows,
            n_chunks,
            first,
            last,
            EPSILON[x.dtype],
            **scans,
        )
    backward_kernel[rows_grid](
        poly,
        own,
        live,
        block.value,
        n_samples,
        n_rows,
        n_chunks,
        states - k,
        DTYPE=DTYPES[x.dtype],
        **scans,
    )

    # Each (row, column) is written once, for as many rows at a time as fit, and the sum over rows
    # has a fixed order: the same bits every time.
    for first in range(0, n_rows, settings.dense_rows):
        count = min(settings.dense_rows, n_rows - first)
        dense = grad.new_zeros(count, *grad.shape)
        n_blocks = triton.cdiv(count * n_chunks * n_samples, BLOCK)
        programs = min(n_blocks, settings.programs)
        per_program = BLOCK * settings.chunk
        replay_kernel[(programs,)](
            *elements,
            before,
            own,
            dense,
            x.new_empty(programs * per_program),
            x.new_empty(programs * per_program // settings.tile * states),
            *shape,
            settings.chunk,
            n_chunks,
            first,
            count,
            n_blocks,
            **tiles,
            **compile_options("replay", words, warp_size()),
        )
        grad += dense.sum(0)
