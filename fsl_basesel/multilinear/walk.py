"""The numba kernel of the gradient: sixteen novel classes side by side down their sorted rows.

A tile of `LANES` rows is walked position by position, one row a lane, in one of two ways: both ways
(`both_ways.py`), or by odds (`odds.py`) where x is small.

Kernels are compiled for a number of states, told to them as the length of a tuple so that numba's
cache on disk serves each. Indices are unsigned, which spares a test for negative ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from fsl_basesel.compiled import kernel
from fsl_basesel.multilinear import both_ways, odds
from fsl_basesel.multilinear.both_ways import States, tile_both_ways
from fsl_basesel.multilinear.moves import WIDE, ZERO, ask
from fsl_basesel.multilinear.odds import tile_by_odds
from fsl_basesel.multilinear.scratch import Scratch
from fsl_basesel.multilinear.simd import lane, larger, load

AHEAD = 128  # positions of the next tile to ask memory for


def scratch_for(states: States, terms: States, length: int, dtype: np.dtype) -> Scratch:
    """What a thread needs to walk rows of `length`."""
    if terms:
        return odds.scratch_for(states, terms, length, dtype)
    return both_ways.scratch_for(states, length, dtype)


@kernel
def survey(points: np.ndarray, summary: np.ndarray) -> None:
    """The mean and the largest entry of every point."""
    length = np.uint64(points.shape[1])
    whole = length // WIDE * WIDE
    for s in range(points.shape[0]):
        x, total, largest = points[s], 0.0, 0.0
        if whole:
            sums = tops = load(x, ZERO)
            for u in range(WIDE, whole, WIDE):
                here = load(x, u)
                sums = sums + here
                tops = larger(here, tops)
            for place in range(WIDE):
                total += lane(sums, place)
                largest = max(largest, lane(tops, place))
        for u in range(whole, length):
            total += x[u]
            largest = max(largest, x[u])
        summary[s, 0] = total / max(1, points.shape[1])
        summary[s, 1] = largest


@kernel
def walk(
    values: np.ndarray,
    order: np.ndarray,
    length: int,
    floor: float,
    points: np.ndarray,
    states: States,
    terms: States,
    k: int,
    strip: int,
    epsilon: float,
    rows: int,
    per_block: int,
    first: int,
    last: int,
    slopes: np.ndarray,
    sums: np.ndarray,
    scratch: Scratch,
) -> float:
    """Slopes and F_n of blocks first..last, each summed over its rows, for every point.

    A kernel for `len(states)` serves every smaller K exactly: the walk begins in the state that
    leaves K more to go.

    Args:
        values: flat, rows of `length` entries, like `order`.
        order: columns of the values.
        length: entries of a row.
        floor: what a missing entry counts as, in the type of the points.
        points: `[S, |B|]` probabilities.
        states: a tuple of any content as long as the largest K served.
        terms: a tuple as long as the series of a walk by odds, empty to go both ways.
        k: how many similarities count.
        strip: positions of a walk by odds between two looks at how much probability is left.
        epsilon: probability at which a row is done.
        rows: |N|.
        per_block: rows of a block.
        first: first block.
        last: block behind the last.
        slopes: `[blocks, S, |B|]` float64; times 1 - x where walks go by odds.
        sums: `[blocks, S]` float64.
        scratch: see `scratch_for`.

    Returns:
        The largest probability, over rows and points, of having too few entries after the last
        position looked at: the error made by stopping is below it times the range of f.
    """
    size = np.uint64(length)
    left, reach = 0.0, ZERO
    for block in range(first, last):
        slopes[block] = 0
        sums[block] = 0
        end = np.uint64(min(rows, (block + 1) * per_block))
        for row in range(np.uint64(block * per_block), end, WIDE):
            live = min(WIDE, end - row)
            if row + WIDE < end:  # ask memory for as much of the next tile as the last one needed
                ask(order, (row + WIDE) * size, size, WIDE, min(np.uint64(AHEAD), reach))
                ask(values, (row + WIDE) * size, size, WIDE, min(np.uint64(AHEAD), reach))
            for s in range(len(points)):
                total, rest, reach = walk_tile(
                    values,
                    order,
                    row * size,
                    size,
                    live,
                    floor,
                    points[s],
                    states,
                    terms,
                    k,
                    strip,
                    epsilon,
                    slopes[block, s],
                    scratch,
                )
                sums[block, s] += total
                left = max(left, rest)
    return left


def walk_tile(*args: Any) -> tuple[float, float, np.uint64]:
    """Add the slopes of `live` rows from entry `base` on to `gradient`, one way or the other.

    What kernels call; numba puts the tile of the kind of walk in its place.

    Returns:
        The sum of F_n over the rows, what is left, and where the walk ended.
    """
    raise TypeError("walk_tile can be called from kernels only")


@overload(walk_tile, strict=False)  # strict would also compare annotations
def _chosen(*args: Any) -> Any:
    terms = args[8]
    return tile_by_odds if len(terms) else tile_both_ways


@kernel
def finish(
    slopes: np.ndarray,
    sums: np.ndarray,
    points: np.ndarray,
    by_odds: bool,
    scale: float,
    floor: float,
    value: np.ndarray,
    gradient: np.ndarray,
) -> None:
    """Sums of blocks to means over rows, in the order of the blocks; `slopes` is used up."""
    for block in range(1, len(slopes)):
        for s in range(len(points)):
            sums[0, s] += sums[block, s]
            for u in range(points.shape[1]):
                slopes[0, s, u] += slopes[block, s, u]
    share = 1.0 / scale
    for s in range(len(points)):
        value[s] = sums[0, s] * share + floor
        for u in range(points.shape[1]):
            if by_odds:
                gradient[s, u] = slopes[0, s, u] * share / (1.0 - points[s, u])
            else:
                gradient[s, u] = slopes[0, s, u] * share
