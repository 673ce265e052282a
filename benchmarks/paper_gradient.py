"""The paper's gradient, as the baseline: one dynamic program for each candidate, with its prunings.

Optimised (compiled for its K, threads over rows, x gathered once per row, in-place updates), so
that the comparison is with the method and not with a slow program. Corrections 3 and 4 of
docs/paper.md are applied; without them it would compute something else.

The first pruning skips the dynamic program of a candidate; the sum of Eq. 6 over later candidates
is still computed. Suffix sums, which the paper does not have, avoid that too: `suffix_sums=True` is
the fastest version of the method that we found.
"""

from __future__ import annotations

import numpy as np

from fsl_basesel.compiled import kernel
from fsl_basesel.multilinear import SortedRows
from fsl_basesel.parallel import map_blocks

EPSILON = 1e-6  # change of the table below which the first pruning keeps it
ROWS_PER_BLOCK = 4


def gradient(
    rows: SortedRows,
    x: np.ndarray,
    k: int,
    n_rows: int | None = None,
    epsilon: float = EPSILON,
    suffix_sums: bool = False,
) -> np.ndarray:
    """dF/dx `[|B|]` at one point `x`, by O(K |B|²) work per row.

    Args:
        rows: Sorted similarities.
        x: `[|B|]` probabilities.
        k: K.
        n_rows: Only this many rows, for a time that is then extrapolated.
        epsilon: Threshold of the first pruning.
        suffix_sums: Go beyond the paper where the first pruning applies.
    """
    count = rows.n_novel if n_rows is None else min(n_rows, rows.n_novel)
    values, order, point = rows.values, rows.order, x

    def block(start: int, stop: int) -> np.ndarray:
        slopes = np.zeros(len(point))
        part = slice(start, stop)
        states = (0,) * (k + 1)
        _rows(values[part], order[part], rows.floor, point, states, epsilon, suffix_sums, slopes)
        return slopes

    total = np.zeros(len(point))
    for part in map_blocks(block, count, ROWS_PER_BLOCK):
        total += part
    return total / (count * k)


@kernel
def _rows(
    values: np.ndarray,
    order: np.ndarray,
    floor: float,
    x: np.ndarray,
    states: tuple[int, ...],
    epsilon: float,
    suffix_sums: bool,
    slopes: np.ndarray,
) -> None:
    k, length = len(states) - 1, order.shape[1]
    table = np.zeros((length + 1, len(states)))  # [i, j] = P(at least j of the first i are in)
    masses = np.empty(length)  # P(the k-th is the i-th)
    below = np.zeros(length + 2)  # its suffix sums, and those with its value
    worth = np.zeros(length + 2)
    along, gaps = np.empty(length), np.empty(length)
    now = np.empty(len(states))
    for n in range(order.shape[0]):
        for i in range(length):
            along[i] = x[order[n, i]]
            gaps[i] = values[n, i] - floor
        table[:, 0] = 1.0
        table[0, 1:] = 0.0
        for i in range(length):
            for j in range(1, k + 1):
                up = table[i, j - 1] - table[i, j]
                table[i + 1, j] = table[i, j] + along[i] * up
        for i in range(length - 1, -1, -1):
            masses[i] = table[i + 1, k] - table[i, k]
            below[i] = below[i + 1] + masses[i]
            worth[i] = worth[i + 1] + masses[i] * gaps[i]
        missing = 1.0 - table[length, k]
        for a in range(length):
            own = gaps[a]
            moved = 0.0
            for j in range(1, k + 1):
                moved = max(moved, abs(table[a + 1, j] - table[a, j]))
            if moved < epsilon:  # first pruning: without a the table is the same
                slope = own * missing
                if suffix_sums:
                    slope += own * below[a + 1] - worth[a + 1]
                else:
                    for i in range(a + 1, length):
                        slope += masses[i] * (own - gaps[i])
            else:  # second pruning: only what follows a is computed again
                for j in range(k + 1):
                    now[j] = table[a, j]
                slope = 0.0
                for i in range(a + 1, length):
                    slope += along[i] * (now[k - 1] - now[k]) * (own - gaps[i])
                    for j in range(k, 0, -1):
                        now[j] += along[i] * (now[j - 1] - now[j])
                slope += (1.0 - now[k]) * own
            slopes[order[n, a]] += slope
