"""F(x) and its gradient on the CPU: numba walks over fixed blocks of novel classes.

A kernel of a millisecond leaves nothing of the interpreter in the cache, and every call from Python
then takes some ten times as long as usual: what can be done in few calls is done in few.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear.both_ways import States
from fsl_basesel.multilinear.odds import strip_for, terms_for
from fsl_basesel.multilinear.order import PrefixTooShortError, SortedRows, likely_reach
from fsl_basesel.multilinear.walk import finish, scratch_for, survey, walk
from fsl_basesel.parallel import map_blocks, thread_count

SIZES = (1, 2, 3, 5, 7, 10, 16, 24, 32)  # of K compiled for; above: the next multiple of 32
EPSILON = {torch.float64: 1e-13, torch.float32: 1e-6}
MIN_ROWS, MAX_BLOCKS = 128, 64
WORK_PER_BLOCK = 1 << 20  # positions times states: some tenths of a millisecond


def value_and_gradient(rows: SortedRows, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """F(x) and dF/dx, `[...]` and `[..., |B|]` like `x`, computed in its type.

    Points whose probabilities are all small are walked by odds, the others both ways (`walk.py`).
    The walk down a row stops once the row has its K entries but for a probability of 1e-6 (float32)
    or 1e-13 (float64); the error is at most that times the range of the similarities. Blocks of
    rows depend on the problem alone and their sums are added in order in float64, so the result
    does not depend on the number of threads.

    Memory: S |B| float64 a block (at most 64 blocks) and a few megabytes a thread.

    Raises:
        PrefixTooShortError: the rows hold only a prefix and a walk ran past it.
    """
    given = (x.detach() if x.requires_grad else x).numpy()
    points = np.ascontiguousarray(given).reshape(-1, rows.n_candidates)
    epsilon, states = EPSILON[x.dtype], _states(k)
    summary = np.empty((len(points), 2))
    survey(points, summary)
    means, terms = [], []
    for mean, largest in summary.tolist():
        if mean != mean:
            raise InputError("Expected `x` to hold probabilities but got NaN")
        means.append(mean)
        terms.append(terms_for(largest, k, len(states), epsilon))
    if len(set(terms)) == 1:
        mean = sum(means) / len(means)
        value, gradient = _walk(rows, points, mean, k, states, terms[0], epsilon)
    else:
        value, gradient = np.empty(len(points), points.dtype), np.empty_like(points)
        for kind in set(terms):
            some = [s for s, own in enumerate(terms) if own == kind]
            mean = sum(means[s] for s in some) / len(some)
            part = _walk(rows, points[some], mean, k, states, kind, epsilon)
            value[some], gradient[some] = part
    return (
        torch.from_numpy(value.reshape(given.shape[:-1])),
        torch.from_numpy(gradient.reshape(given.shape)),
    )


def _walk(
    rows: SortedRows,
    points: np.ndarray,
    mean: float,
    k: int,
    states: States,
    terms: int,
    epsilon: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Values and gradients at points of one kind: by odds with so many terms, or both ways (0)."""
    values, order = rows.flat
    n_novel, length, dtype = rows.n_novel, rows.length, points.dtype
    reach = min(length, likely_reach(mean, len(states)))
    per_block = rows_per_block(n_novel, reach * (len(states) + 3) * len(points))
    blocks = max(1, -(-n_novel // per_block))  # without rows one of zeros
    slopes, sums = np.empty((blocks, *points.shape)), np.empty((blocks, len(points)))
    series, strip, floor = (0,) * terms, strip_for(length, reach), dtype.type(rows.floor)

    def work(first: int, last: int) -> float:
        room = scratch_for(states, series, length, dtype)
        return walk(
            values,
            order,
            length,
            floor,
            points,
            states,
            series,
            k,
            strip,
            epsilon,
            n_novel,
            per_block,
            first,
            last,
            slopes,
            sums,
            room,
        )

    if blocks == 1 or thread_count() <= 1:
        left = work(0, blocks)
    else:
        left = max(map_blocks(work, blocks, 1))
    if not rows.complete and left >= epsilon:
        raise PrefixTooShortError(length, left)
    value, gradient = np.empty(len(points), dtype), np.empty(points.shape, dtype)
    scale = float(k * max(1, n_novel))
    finish(slopes, sums, points, terms > 0, scale, rows.floor, value, gradient)
    return value, gradient


@cache
def _states(k: int) -> States:
    """What tells the kernels the number of states to be compiled for."""
    return (0,) * next((size for size in SIZES if size >= k), -(-k // 32) * 32)


def rows_per_block(n_novel: int, work: int) -> int:
    """How many rows are worth a thread's while, from the work that x lets expect for each.

    A power of two, so that the last bits of a mean do not decide.

    Example:
        >>> rows_per_block(1000, 50_000), rows_per_block(1000, 1000), rows_per_block(10**6, 50_000)
        (128, 2048, 15625)
    """
    if n_novel <= MIN_ROWS:
        return MIN_ROWS
    size = 1 << max(0, round(WORK_PER_BLOCK / max(1, work)).bit_length())
    return max(MIN_ROWS, size, -(-n_novel // MAX_BLOCKS))
