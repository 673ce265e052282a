"""Compiled kernels on the state that all algorithms share: each novel class's best chosen classes.

`columns` is the candidate-major similarity matrix `[|B|, |N|]`, so that everything about one
candidate lies side by side in memory. The state is a pair of arrays of shape `[|N|, depth]`:
`value`, falling along the depth, the floor where too few classes are in, and `index`,
the columns those values belong to (-1 where nothing is). Equal similarities are ordered by column.

Sums over novel classes are float64 and in a fixed order: over `ROWS` of them at a time, and then
over these blocks. So they have the same bits on every machine, and however the blocks are spread
over processes (`fsl_basesel.distributed`). `weight` is that of a novel class, 1 on average.
"""

from __future__ import annotations

import numpy as np

from fsl_basesel.compiled import kernel
from fsl_basesel.parallel import ROWS

LANES = 64  # partial sums of a block of rows in `excess`


def state_of(
    columns: np.ndarray, members: np.ndarray, depth: int, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """The state in which exactly `members` are in."""
    shape = columns.shape[1], depth
    value, index = np.full(shape, floor), np.full(shape, -1, np.int64)
    insert(columns, members, value, index)
    return value, index


def insert(
    columns: np.ndarray,
    which: np.ndarray | list[int],
    value: np.ndarray,
    index: np.ndarray,
    rows: np.ndarray | None = None,
) -> None:
    """Bring the columns `which` into the state, in all rows or in `rows`."""
    rows = np.arange(len(value)) if rows is None else rows
    _insert(columns, np.asarray(which, np.int64), rows, value, index)


def remove(
    columns: np.ndarray,
    v: int,
    members: np.ndarray,
    value: np.ndarray,
    index: np.ndarray,
    floor: float,
) -> None:
    """Take column `v` out; rows that list it are made again from `members`, which stay."""
    rows = np.flatnonzero((index == v).any(axis=1))
    value[rows], index[rows] = floor, -1
    insert(columns, members, value, index, rows)


def losses(value: np.ndarray, index: np.ndarray, weight: np.ndarray, count: int) -> np.ndarray:
    """`out[block, u]` = what the top-k sums of a block of rows lose if column `u` is dropped.

    The state is one deeper than k; `count` is the number of columns.
    """
    rows, k = len(value), value.shape[1] - 1
    blocks = -(-rows // ROWS)
    listed = np.maximum(index[:, :k], 0)  # what is missing, at the end of a list, loses 0
    place = listed + (np.arange(rows) // ROWS * count)[:, None]
    loss = weight[:, None] * (value[:, :k] - value[:, k:])
    sums = np.bincount(place.ravel(), loss.ravel(), blocks * count)
    return sums[: blocks * count].reshape(blocks, count)


@kernel
def _insert(
    columns: np.ndarray, which: np.ndarray, rows: np.ndarray, value: np.ndarray, index: np.ndarray
) -> None:
    """`insert`: O(rows) for each column, and O(depth) more for each row it enters."""
    last = value.shape[1] - 1
    for i in range(len(which)):
        u = which[i]
        for r in range(len(rows)):
            n = rows[r]
            similarity = np.float64(columns[u, n])
            if similarity < value[n, last]:
                continue
            at = last + 1
            while at > 0 and (
                similarity > value[n, at - 1]
                or (similarity == value[n, at - 1] and not -1 < index[n, at - 1] < u)
            ):
                at -= 1
                if at < last:
                    value[n, at + 1] = value[n, at]
                    index[n, at + 1] = index[n, at]
            if at <= last:
                value[n, at] = similarity
                index[n, at] = u


@kernel
def excess(
    columns: np.ndarray,
    which: np.ndarray,
    start: int,
    stop: int,
    threshold: np.ndarray,
    weight: np.ndarray,
    out: np.ndarray,
    lanes: np.ndarray,
) -> None:
    """`out[block, i]` = sum over a block of rows of weight * max(column `which[i]` - threshold, 0).

    For i from `start` to `stop`. Row n adds to lane n mod 64 and the lanes are added pairwise: the
    loop over lanes is vector code, three times as fast as one running sum, and the order of
    additions is still fixed. `lanes` is scratch of that size.
    """
    for i in range(start, stop):
        column = columns[which[i]]
        for block in range(out.shape[0]):
            first = block * ROWS
            end = min(first + ROWS, len(column))
            whole = end - (end - first) % LANES
            lanes[:] = 0.0
            for at in range(first, whole, LANES):
                similarities = column[at : at + LANES]
                thresholds = threshold[at : at + LANES]
                weights = weight[at : at + LANES]
                for lane in range(LANES):
                    above = np.float64(similarities[lane]) - thresholds[lane]
                    lanes[lane] += weights[lane] * (above if above > 0.0 else 0.0)
            half = LANES // 2
            while half >= 1:
                for lane in range(half):
                    lanes[lane] += lanes[lane + half]
                half //= 2
            total = lanes[0]
            for n in range(whole, end):
                above = np.float64(column[n]) - threshold[n]
                total += weight[n] * (above if above > 0.0 else 0.0)
            out[block, i] = total


@kernel
def count_above(columns: np.ndarray, which: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """For every row, how many of the columns `which` lie above its threshold."""
    count = np.zeros(len(threshold), np.int64)
    for i in range(len(which)):
        column = columns[which[i]]
        for n in range(len(threshold)):
            count[n] += column[n] > threshold[n]
    return count
