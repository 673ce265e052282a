"""F(x) and its gradient on the CPU: the numba walk over fixed blocks of novel classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fsl_basesel.multilinear.order import PrefixTooShortError, SortedRows
from fsl_basesel.multilinear.walk import LANES, scratch, walk
from fsl_basesel.parallel import map_blocks

SIZES = (1, 2, 3, 5, 7, 10, 16, 24, 32)  # of K compiled for; above: the next multiple of 32
EPSILON = {torch.float64: 1e-13, torch.float32: 1e-6}
MIN_ROWS, MAX_BLOCKS = 8 * LANES, 64


def value_and_gradient(rows: SortedRows, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """F(x) and dF/dx, `[S]` and `[S, |B|]`, computed in the type of `x`.

    The walk down a row stops once the row has K+1 entries but for a probability of 1e-6 (float32)
    or 1e-13 (float64); the error is at most that times the range of the similarities. Blocks of
    rows depend on |N| alone and their sums are added in order in float64, so the result does not
    depend on the number of threads.

    Memory: S |B| float64 a block (at most 64 blocks) and some hundred kilobytes a thread.

    Raises:
        PrefixTooShortError: the rows hold only a prefix and a walk ran past it.
    """
    size = next((s for s in SIZES if s >= k), -(-k // 32) * 32)
    states = (0,) * size
    values, order = rows.values.numpy().reshape(-1), rows.order.numpy().reshape(-1)
    points = x.detach().contiguous().numpy()
    floor = points.dtype.type(rows.floor)
    epsilon = EPSILON[x.dtype]

    def block(start: int, stop: int) -> tuple[list[float], np.ndarray, float]:
        gradient = np.zeros(points.shape, np.float64)
        room = scratch(states, rows.length, points.dtype)
        sums, left = [], 0.0
        for point, slopes in zip(points, gradient, strict=True):
            total, rest = walk(
                values,
                order,
                rows.length,
                floor,
                point,
                states,
                k,
                epsilon,
                start,
                stop,
                slopes,
                *room,
            )
            sums.append(total)
            left = max(left, rest)
        return sums, gradient, left

    per_block = max(MIN_ROWS, -(-rows.n_novel // MAX_BLOCKS))
    done = map_blocks(block, rows.n_novel, per_block)
    if not rows.complete and (left := max(rest for _, _, rest in done)) >= epsilon:
        raise PrefixTooShortError(rows.length, left)
    value, gradient = np.zeros(len(points)), np.zeros(points.shape)
    for sums, part, _ in done:
        value += sums
        gradient += part
    value /= k * rows.n_novel
    gradient /= k * rows.n_novel
    return _tensor(value + rows.floor, points.dtype), _tensor(gradient, points.dtype)


def _tensor(array: np.ndarray, dtype: np.dtype) -> Tensor:
    """Converted by numpy: torch would wake a second pool of threads for arrays of this size."""
    return torch.from_numpy(array.astype(dtype, copy=False))
