"""Launching the gradient kernels: scratch, grids and the sum over novel classes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fsl_basesel.multilinear.order import SortedRows
from fsl_basesel.multilinear.triton.scan import (
    backward_kernel,
    forward_kernel,
    replay_kernel,
    summarise_kernel,
)
from fsl_basesel.multilinear.triton.settings import (
    ALIGNMENT,
    BLOCK,
    EPSILON,
    Settings,
    scan_unroll,
)
from fsl_basesel.multilinear.triton.walk import walk_kernel

DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}
BOUNDED_FROM = {"walk": 8, "replay": 16}  # words of states; the other kernels from 17
INTERPRETED = not isinstance(walk_kernel, triton.runtime.JITFunction)


class Block(NamedTuple):
    """One launch's share of a gradient: some rows of the problem, every sample.

    Attributes:
        x: `[|B|, S]` probabilities.
        floor: `[1]`.
        similarities: `[R, L]` falling.
        order: `[R, L]` columns.
        value: `[R, S]` out, expected top-k sums above the floor.
        left: `[R, S]` out, probability left at the end of the row.
    """

    x: Tensor
    floor: Tensor
    similarities: Tensor
    order: Tensor
    value: Tensor
    left: Tensor

    def part(self, first: int, count: int) -> Block:
        """The rows `first .. first + count`."""
        return Block(*self[:2], *(tensor[first : first + count] for tensor in self[2:]))

    def shape_arguments(self) -> tuple[int, ...]:
        """What every kernel that reads elements is told about shapes, in the kernels' order."""
        n_rows, length = self.similarities.shape
        width = min(readable_width(self.similarities), readable_width(self.order))
        strides = self.similarities.stride(0), self.order.stride(0)
        return self.x.shape[1], n_rows, length, width, *strides


def value_gradient_left(
    rows: SortedRows, x: Tensor, k: int, settings: Settings, deterministic: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """F `[S]`, dF/dx `[S, |B|]`, and the most probability left beyond any row, a scalar tensor.

    Arguments are already checked. Nothing here waits for the device, and every launch follows from
    shapes alone, so a call can be captured in a CUDA graph.
    """
    n_samples, n_rows = x.shape[0], rows.n_novel
    x = x.t().contiguous()
    value, left = x.new_empty(n_rows, n_samples), x.new_empty(n_rows, n_samples)
    grad = torch.zeros_like(x)
    whole = Block(x, x.new_full((1,), rows.floor), rows.values, rows.order, value, left)
    launch = _walk if settings.decomposition == "walk" else _scan
    with device_of(x):
        for first in range(0, n_rows, settings.rows):
            block = whole.part(first, settings.rows)
            launch(block, min(k, rows.length), settings, grad, deterministic)
    return value.mean(0) / k + rows.floor, (grad / (k * n_rows)).t().contiguous(), left.amax()


def _accumulate(
    grad: Tensor,
    n_rows: int,
    dense_rows: int | None,
    launch: Callable[[Tensor, int, int], None],
) -> None:
    """Let `launch(target, first row, rows)` add its gradients to `grad`.

    Without `dense_rows` it does so itself, by atomic additions. Otherwise it writes them dense,
    each (row, column) once, for as many rows at a time, and the sum over rows has a fixed order.
    """
    if dense_rows is None:
        launch(grad, 0, n_rows)
        return
    for first in range(0, n_rows, dense_rows):
        count = min(dense_rows, n_rows - first)
        dense = grad.new_zeros(count, *grad.shape)
        launch(dense, first, count)
        grad += dense.sum(0)


def device_of(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device: make it the one `x` lives on."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


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
    lanes = BLOCK if name in ("walk", "summarise", "replay") else warp_size
    options = {"num_warps": lanes // warp_size, "enable_fp_fusion": True}
    if warp_size == 32 and words >= BOUNDED_FROM.get(name, 17):
        options["maxnreg"] = 184 if name in ("summarise", "replay") and words <= 32 else 255
    return options


def warp_size() -> int:
    """Threads of a warp on this build's devices."""
    return 64 if torch.version.hip else 32


def readable_width(tensor: Tensor) -> int:
    """Elements of a row that may be read: its length, or the next multiple of 16 if it is padded.

    Example:
        >>> readable_width(torch.empty(3, 20)), readable_width(torch.empty(3, 40)[:, :20])
        (20, 32)
    """
    n_rows, length = tensor.shape
    width = -(-length // ALIGNMENT) * ALIGNMENT
    last = tensor.storage_offset() + (n_rows - 1) * tensor.stride(0) + width
    held = tensor.untyped_storage().nbytes() // tensor.element_size()
    return width if width <= tensor.stride(0) and last <= held else length


def _rings(x: Tensor, programs: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """Scratch of the programs: probabilities of their lanes, and the states before each tile."""
    per_program = BLOCK * settings.chunk
    return (
        x.new_empty(programs * per_program),
        x.new_empty(programs * per_program // settings.tile * settings.states),
    )


def _walk(block: Block, k: int, settings: Settings, grad: Tensor, deterministic: bool) -> None:
    x = block.x
    words = settings.states * x.element_size() // 4

    def launch(target: Tensor, first: int, count: int) -> None:
        part = block.part(first, count)
        n_blocks = triton.cdiv(part.value.numel(), BLOCK)
        programs = min(n_blocks, settings.programs)
        walk_kernel[(programs,)](
            x,
            part.similarities,
            part.order,
            part.floor,
            target,
            part.value,
            part.left,
            *_rings(x, programs, settings),
            *part.shape_arguments(),
            x.shape[0],
            settings.states - k,
            n_blocks,
            EPSILON[x.dtype],
            K=settings.states,
            TILE=settings.tile,
            BLOCK=BLOCK,
            DTYPE=DTYPES[x.dtype],
            ATOMIC=not deterministic,
            **compile_options("walk", words, warp_size()),
        )

    rows = settings.dense_rows if deterministic else None
    _accumulate(grad, block.similarities.shape[0], rows, launch)


def _scan(block: Block, k: int, settings: Settings, grad: Tensor, deterministic: bool) -> None:
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
    torch.sum(state, 0, out=block.left)
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

    def launch(target: Tensor, first: int, count: int) -> None:
        n_blocks = triton.cdiv(count * n_chunks * n_samples, BLOCK)
        programs = min(n_blocks, settings.programs)
        replay_kernel[(programs,)](
            *elements,
            before,
            own,
            target,
            *_rings(x, programs, settings),
            *shape,
            x.shape[0],
            settings.chunk,
            n_chunks,
            first,
            count,
            n_blocks,
            ATOMIC=not deterministic,
            **tiles,
            **compile_options("replay", words, warp_size()),
        )

    _accumulate(grad, n_rows, settings.dense_rows if deterministic else None, launch)
