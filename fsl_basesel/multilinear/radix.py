"""The numba kernels that sort rows of similarities: a stable radix sort of float bits.

Half the time of a comparison sort at |B| = 400 and a tenth at 21000.
"""

from __future__ import annotations

import numpy as np

from fsl_basesel.compiled import kernel

TILE = 16  # rows transposed together: one cache line of a float32 column
DIGIT = 8  # bits of a pass; four passes for float32, eight for float64
BUCKETS = 1 << DIGIT


@kernel
def falling_keys(columns: np.ndarray, keys: np.ndarray) -> None:
    """Transpose the bits of floats and map them to integers that rise as the float falls.

    Numbers with a sign keep their bits, others have all but the sign flipped. The map is its own
    inverse.
    """
    one = keys.dtype.type(1)
    sign = one << keys.dtype.type(8 * keys.itemsize - 1)
    for first in range(0, columns.shape[0], TILE):
        for row in range(keys.shape[0]):
            for u in range(first, min(first + TILE, columns.shape[0])):
                bits = columns[u, row]
                if bits == sign:  # -0.0 is a tie with 0.0
                    bits = one - one
                keys[row, u] = bits if bits & sign else ~bits ^ sign


@kernel
def sort_rows(
    keys: np.ndarray,
    order: np.ndarray,
    spare: np.ndarray,
    columns: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Sort every row of keys, turn them back into the bits of floats, and note their columns.

    Least significant digit first, so equal keys stay in the order of their columns. `keys` and
    `order` are `[rows, |B|]`; `spare` (keys), `columns`, both `[2, |B|]`, and `counts` are scratch.
    """
    length, width = keys.shape[1], 8 * keys.itemsize
    sign = keys.dtype.type(1) << keys.dtype.type(width - 1)
    mask = keys.dtype.type(BUCKETS - 1)
    for row in range(keys.shape[0]):
        for u in range(length):
            spare[0, u] = keys[row, u]
            columns[0, u] = u
        source = 0
        for shift in range(0, width, DIGIT):
            for digit in range(BUCKETS):
                counts[digit] = 0
            for i in range(length):
                counts[spare[source, i] >> keys.dtype.type(shift) & mask] += np.uint32(1)
            seen = np.uint32(0)
            for digit in range(BUCKETS):
                count = counts[digit]
                counts[digit] = seen
                seen += count
            for i in range(length):
                key = spare[source, i]
                bucket = key >> keys.dtype.type(shift) & mask
                to = counts[bucket]
                counts[bucket] = to + np.uint32(1)
                spare[1 - source, to] = key
                columns[1 - source, to] = columns[source, i]
            source = 1 - source
        for i in range(length):
            key = spare[source, i]
            keys[row, i] = key if key & sign else ~key ^ sign
            order[row, i] = columns[source, i]
