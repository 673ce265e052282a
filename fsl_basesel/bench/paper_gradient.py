"""The paper's gradient, as the baseline: one dynamic program for each candidate, with its prunings.

Written as well as it goes (compiled, threads over rows, suffix sums), so that the comparison is
with the method and not with a slow program. Corrections 3 and 4 of docs/paper.md are applied,
else it would compute something else.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fsl_basesel.compiled import kernel
from fsl_basesel.multilinear import SortedRows
from fsl_basesel.parallel import map_blocks

EPSILON = 1e-6  # change of the table below which the first pruning keeps it
ROWS_PER_BLOCK = 4


def gradient(rows: SortedRows, x: Tensor, k: int, n_rows: int | None = None) -> Tensor:
    """dF/dx `[|B|]` at one point `x`, by O(K |B|²) work a row.

    Args:
        rows: Sorted similarities.
        x: `[|B|]` probabilities.
        k: K.
        n_rows: Only this many rows, for a time that is then extrapolated.
    """
    count = rows.n_novel if n_rows is None else min(n_rows, rows.n_novel)
    values = rows.values.double().numpy() - rows.floor
    order = rows.order.to(torch.int64).numpy()
    point = x.double().numpy()

    def block(start: int, stop: int) -> np.ndarray:
        slopes = np.zeros(len(point))
        _rows(values[start:stop], order[start:stop], point, k, slopes)
        return slopes

    parts = map_blocks(block, count, ROWS_PER_BLOCK)
    return torch.from_numpy(np.sum(parts, axis=0) / (count * k))


@kernel
def _rows(values: np.ndarray, order: np.ndarray, x: np.ndarray, k: int, slopes: np.ndarray) -> None:
    length = order.shape[1]
    table = np.zeros((length + 1, k + 1))  # table[i, j] = P(at least j of the first i are in)
    below = np.zeros(length + 2)  # suffix sums of P(the k-th is the i-th), and with its value
    worth = np.zeros(length + 2)
    before, state = np.empty(k + 1), np.empty(k + 1)
    for n in range(order.shape[0]):
        table[:, 0] = 1.0
        table[0, 1:] = 0.0
        for i in range(length):
            probability = x[order[n, i]]
            for j in range(1, k + 1):
                up = table[i, j - 1] - table[i, j]
                table[i + 1, j] = table[i, j] + probability * up
        for i in range(length - 1, -1, -1):
            mass = table[i + 1, k] - table[i, k]
            below[i] = below[i + 1] + mass
            worth[i] = worth[i + 1] + mass * values[n, i]
        for a in range(length):
            own = values[n, a]
            moved = 0.0
            for j in range(1, k + 1):
                moved = max(moved, abs(table[a + 1, j] - table[a, j]))
            if moved < EPSILON:  # first pruning: without a the table is the same
                missing = 1.0 - table[length, k]
                slope = own * below[a + 1] - worth[a + 1] + own * missing
            else:  # second pruning: only what follows a is computed again
                before[:] = table[a]
                slope = 0.0
                for i in range(a + 1, length):
                    probability = x[order[n, i]]
                    state[0] = 1.0
                    for j in range(1, k + 1):
                        state[j] = before[j] + probability * (before[j - 1] - before[j])
                    slope += (state[k] - before[k]) * (own - values[n, i])
                    before[:] = state
                slope += (1.0 - before[k]) * own
            slopes[order[n, a]] += slope
