"""F(x) and its gradient on the CPU: the numba walk over fixed blocks of novel classes."""

from __future__ import annotations

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear.sorted_rows import SortedRows
from fsl_basesel.multilinear.walk import scratch, walk
from fsl_basesel.parallel import map_blocks

MIN_ROWS, MAX_BLOCKS = 128, 64
WORK_PER_BLOCK = 1 << 20  # positions times states: some tenths of a millisecond
EPSILON = 1e-13  # probability of at most K entries below which the rest of a row is ignored


def value_and_gradient(rows: SortedRows, x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """F(x) and dF/dx, `[S]` and `[S, |B|]` float64, at the points `x` `[S, |B|]` float64.

    Blocks of rows depend on the problem and on x alone, and their sums are added in order, so the
    result does not depend on the number of threads.

    Memory: S |B| float64 for each block (at most 64 blocks) and a few megabytes for each thread.
    """
    n_novel, length = rows.order.shape
    mean = float(x.sum()) / max(1, x.size)
    if mean != mean:
        raise InputError("Expected `x` to hold probabilities but got NaN")

    def block(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        sums, gradient = np.zeros(len(x)), np.zeros(x.shape)
        task = (rows.values, rows.order, rows.floor, x, k, EPSILON, start, stop)
        walk(*task, gradient, sums, *scratch(length, k))
        return sums, gradient

    done = map_blocks(block, n_novel, rows_per_block(n_novel, length, len(x), mean, k))
    value, gradient = done[0] if done else (np.zeros(len(x)), np.zeros(x.shape))
    for sums, slopes in done[1:]:
        value += sums
        gradient += slopes
    scale = k * max(1, n_novel)
    return value / scale + rows.floor, gradient / scale


def rows_per_block(n_novel: int, length: int, n_points: int, mean: float, k: int) -> int:
    """How many rows are worth a thread's while, from how far walks are expected to go.

    They end where some 30 more than K candidates are in. A power of two, so that the last bits of a
    mean do not decide.

    Example:
        >>> rows_per_block(1000, 21000, 1, 0.0, 3), rows_per_block(1000, 21000, 1, 0.25, 3)
        (128, 2048)
    """
    if n_novel <= MIN_ROWS:
        return MIN_ROWS
    reach = min(length, (k + 30) / max(mean, 1e-9))
    work = max(1.0, reach * (k + 3) * n_points)
    size = 1 << round(WORK_PER_BLOCK / work).bit_length()
    return max(MIN_ROWS, size, -(-n_novel // MAX_BLOCKS))
