"""F(x) and its gradient on the CPU: the numba walk over fixed blocks of novel classes."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from fsl_basesel.multilinear.order import PrefixTooShortError, SortedRows, likely_reach
from fsl_basesel.multilinear.walk import States, finish, scratch_for, walk
from fsl_basesel.parallel import map_blocks

SIZES = (1, 2, 3, 5, 7, 10, 16, 24, 32)  # of K compiled for; above: the next multiple of 32
EPSILON = {torch.float64: 1e-13, torch.float32: 1e-6}
MIN_ROWS, MAX_BLOCKS = 128, 64
WORK_PER_BLOCK = 1 << 20  # positions times states: some tenths of a millisecond


def value_and_gradient(rows: SortedRows, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """F(x) and dF/dx, `[S]` and `[S, |B|]`, computed in the type of `x`.

    The walk down a row stops once the row has K+1 entries but for a probability of 1e-6 (float32)
    or 1e-13 (float64); the error is at most that times the range of the similarities. Blocks of
    rows depend on the problem alone and their sums are added in order in float64, so the result
    does not depend on the number of threads.

    Memory: S |B| float64 a block (at most 64 blocks) and a few megabytes a thread.

    Raises:
        PrefixTooShortError: the rows hold only a prefix and a walk ran past it.
    """
    states = _states(k)
    values, order = rows.flat
    points = x.detach().contiguous().numpy()
    length, dtype, epsilon = rows.length, points.dtype, EPSILON[x.dtype]
    floor = dtype.type(rows.floor)

    def block(start: int, stop: int) -> tuple[np.ndarray, np.ndarray, float]:
        gradient, sums = np.zeros(points.shape), np.zeros(len(points))
        room = scratch_for(states, length, dtype)
        left = walk(
            values,
            order,
            length,
            floor,
            points,
            states,
            k,
            epsilon,
            start,
            stop,
            gradient,
            sums,
            room,
        )
        return sums, gradient, left

    done = map_blocks(block, rows.n_novel, rows_per_block(rows, points, len(states)))
    if not rows.complete and (left := max(rest for _, _, rest in done)) >= epsilon:
        raise PrefixTooShortError(length, left)
    total, slopes, _ = done[0]
    for sums, part, _ in done[1:]:
        total += sums
        slopes += part
    value, gradient = np.empty(len(points), dtype), np.empty(points.shape, dtype)
    finish(total, slopes, float(k * rows.n_novel), rows.floor, value, gradient)
    return torch.from_numpy(value), torch.from_numpy(gradient)


@cache
def _states(k: int) -> States:
    """What tells the kernels the number of states to be compiled for."""
    return (0,) * next((size for size in SIZES if size >= k), -(-k // 32) * 32)


def rows_per_block(rows: SortedRows, points: np.ndarray, states: int) -> int:
    """How many rows are worth a thread's while, from the length of walk that x lets expect.

    A power of two, so that the last bits of a mean do not decide.
    """
    if rows.n_novel <= MIN_ROWS:
        return MIN_ROWS
    mean = float(points.sum()) / max(1, points.size)
    expected = min(rows.length, likely_reach(mean, states))
    work = max(1.0, expected * (states + 3) * len(points))
    size = 1 << max(0, round(WORK_PER_BLOCK / work).bit_length())
    return max(MIN_ROWS, size, -(-rows.n_novel // MAX_BLOCKS))
