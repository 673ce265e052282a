"""Compiled kernels on the one state every algorithm shares: each novel class's best chosen classes.

`columns` is the candidate-major similarity matrix `[|B|, |N|]`, so that everything about one
candidate lies side by side in memory. The state is a pair of arrays of shape `[|N|, depth]`:
`value`, falling along the depth, the floor where too few classes are in, and `index`,
the columns those values belong to (-1 where nothing is). Equal similarities are ordered by column.

Sums over novel classes are float64 and in a fixed order: over `ROWS` of them at a time, and then
over these blocks. So they have the same bits on every machine, and however the blocks are spread
over processes (`fsl_basesel.distributed`). `weight` is what a novel class counts, 1 in the mean.
"""

from __future__ import annotations

import numpy as np

from fsl_basesel.compiled import kernel
from fsl_basesel.parallel import ROWS

LANES = 64  # partial sums of `excess`


def empty_state(n_novel: int, depth: int, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """The state in which no class is in: `value` is the floor, `index` is -1 everywhere."""
    return np.full((n_novel, depth), floor), np.full((n_novel, depth), -1, np.int64)


def state_of(
    columns: np.ndarray, members: np.ndarray, depth: int, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """The state in which exactly `members` are in."""
    value, index = empty_state(columns.shape[1], depth, floor)
    insert_all(columns, np.asarray(members, np.int64), value, index)
    return value, index


@kernel
def insert(columns: np.ndarray, u: int, value: np.ndarray, index: np.ndarray) -> None:
    """Bring column `u` into the state; O(|N|) and O(depth) more for each row it enters."""
    last = value.shape[1] - 1
    for n in range(value.shape[0]):
        similarity = np.float64(columns[u, n])
        at = last
        if similarity < value[n, at]:
            continue
        if similarity == value[n, at] and -1 < index[n, at] < u:
            continue
        while at > 0 and (
            similarity > value[n, at - 1]
            or (similarity == value[n, at - 1] and not (-1 < index[n, at - 1] < u))
        ):
            value[n, at] = value[n, at - 1]
            index[n, at] = index[n, at - 1]
            at -= 1
        value[n, at] = similarity
        index[n, at] = u


@kernel
def insert_all(
    columns: np.ndarray, members: np.ndarray, value: np.ndarray, index: np.ndarray
) -> None:
    """Bring every column of `members` into the state."""
    for u in members:
        insert(columns, u, value, index)


@kernel
def remove(
    columns: np.ndarray,
    v: int,
    members: np.ndarray,
    value: np.ndarray,
    index: np.ndarray,
    floor: float,
) -> None:
    """Take column `v` out; `members` are the columns that stay.

    Rows that had `v` lose an entry at the end of their list; it is found again by one look through
    `members`, so a removal costs O(|members|) for each row `v` was listed in.
    """
    last = value.shape[1] - 1
    for n in range(value.shape[0]):
        at = 0
        while at <= last and index[n, at] != v:
            at += 1
        if at > last:
            continue
        while at < last:
            value[n, at] = value[n, at + 1]
            index[n, at] = index[n, at + 1]
            at += 1
        value[n, last] = floor
        index[n, last] = -1
        if last > 0 and index[n, last - 1] == -1:
            continue  # the row already lists every member
        best, who = floor, -1
        for u in members:
            similarity = np.float64(columns[u, n])
            if similarity < best or (similarity == best and -1 < who < u):
                continue
            listed = False
            for j in range(last):
                if index[n, j] == u:
                    listed = True
                    break
            if not listed:
                best, who = similarity, u
        value[n, last] = best
        index[n, last] = who


@kernel
def excess(
    column: np.ndarray, threshold: np.ndarray, weight: np.ndarray, lanes: np.ndarray
) -> float:
    """Sum over the rows of a block of weight * max(column - threshold, 0); `lanes` is scratch.

    Row n adds to lane n mod 64 and the lanes are added pairwise: the loop over lanes is vector
    code, three times as fast as one running sum, and the order of additions is still fixed.
    """
    count = lanes.shape[0]
    whole = column.shape[0] - column.shape[0] % count
    lanes[:] = 0.0
    for start in range(0, whole, count):
        similarities = column[start : start + count]
        thresholds = threshold[start : start + count]
        weights = weight[start : start + count]
        for lane in range(count):
            above = np.float64(similarities[lane]) - thresholds[lane]
            lanes[lane] += weights[lane] * (above if above > 0.0 else 0.0)
    half = count // 2
    while half >= 1:
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
        half //= 2
    total = lanes[0]
    for n in range(whole, column.shape[0]):
        total += weight[n] * max(np.float64(column[n]) - threshold[n], 0.0)
    return total


@kernel
def excess_all(
    columns: np.ndarray,
    which: np.ndarray,
    threshold: np.ndarray,
    weight: np.ndarray,
    out: np.ndarray,
) -> None:
    """`out[block, i]` = `excess` of column `which[i]` in a block of rows."""
    lanes = np.empty(LANES)
    for i in range(which.shape[0]):
        column = columns[which[i]]
        for block in range(out.shape[0]):
            start, stop = block * ROWS, min((block + 1) * ROWS, column.shape[0])
            out[block, i] = excess(
                column[start:stop], threshold[start:stop], weight[start:stop], lanes
            )


@kernel
def count_above(columns: np.ndarray, which: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """For every row, how many of the columns `which` lie above its threshold."""
    count = np.zeros(threshold.shape[0], np.int64)
    for u in which:
        for n in range(threshold.shape[0]):
            count[n] += columns[u, n] > threshold[n]
    return count


@kernel
def losses(
    value: np.ndarray, index: np.ndarray, where: np.ndarray, weight: np.ndarray, out: np.ndarray
) -> None:
    """`out[block, where[u]]` = what the top-k sums of a block lose if column `u` is dropped.

    The state is one deeper than k. `where` is the place of each column in `out`.
    """
    k = value.shape[1] - 1
    out[:] = 0.0
    for n in range(value.shape[0]):
        for j in range(k):
            if index[n, j] >= 0:
                loss = weight[n] * (value[n, j] - value[n, k])
                out[n // ROWS, where[index[n, j]]] += loss
