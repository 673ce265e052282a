"""F(x) and its gradient in plain torch operations, for devices that have no kernel of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from fsl_basesel.multilinear.order import PrefixTooShortError, SortedRows

ROWS_PER_CHUNK = 256  # novel classes walked together
STEPS_PER_CHECK = 64  # positions between two looks at how much probability is left
EPSILON = {torch.float64: 1e-14, torch.float32: 1e-7}


def value_and_gradient(rows: SortedRows, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """F(x) and dF/dx, `[S]` and `[S, |B|]`, by the W form of the forward-backward pass.

    Novel classes are taken in chunks, and a chunk's walk stops where every row has its K+1 entries
    almost surely, so memory is O(S * chunk * live prefix * K) whatever |N| is. Works on any torch
    device and runs no host synchronisation but the one look every `STEPS_PER_CHECK` positions.

    Raises:
        PrefixTooShortError: the rows hold only a prefix and a walk ran past it.
    """
    value = x.new_zeros(x.shape[0])
    gradient = torch.zeros_like(x)
    for start in range(0, rows.n_novel, ROWS_PER_CHUNK):
        part = slice(start, start + ROWS_PER_CHUNK)
        order = rows.order[part].to(x.device, torch.int64)
        q = rows.values[part].to(x) - rows.floor
        sums, slopes, live, left = _walk(q, x, order, k)
        if not rows.complete and left >= EPSILON[x.dtype]:
            raise PrefixTooShortError(rows.length, left)
        value += sums
        columns = order[:, :live].reshape(1, -1).expand(x.shape[0], -1)
        gradient.scatter_add_(1, columns, slopes.reshape(x.shape[0], -1))
    scale = max(1, rows.n_novel) * k
    return value / scale + rows.floor, gradient / scale


def _walk(q: Tensor, x: Tensor, order: Tensor, k: int) -> tuple[Tensor, Tensor, int, float]:
    """Sum of F_n over the chunk `[S]`, slopes `[S, rows, live]`, the live length, what is left.

    What is left is the largest probability of having at most K entries at the end of the walk.
    """
    batch, (n_rows, length) = x.shape[0], order.shape
    state = x.new_zeros(batch, n_rows, k + 1)
    state[..., 0] = 1
    history: list[Tensor] = []
    probabilities: list[Tensor] = []
    for i in range(length):
        if i % STEPS_PER_CHECK == 0 and i and state.sum(-1).max() < EPSILON[x.dtype]:
            break
        probability = x[:, order[:, i], None]
        history.append(state[..., :k])
        probabilities.append(probability)
        state = torch.cat(
            (
                state[..., :1] * (1 - probability),
                state[..., 1:] + probability * (state[..., :-1] - state[..., 1:]),
            ),
            dim=-1,
        )
    live, left = len(history), float(state.sum(-1).max())
    slopes = x.new_zeros(batch, n_rows, live)
    ahead = x.new_zeros(batch, n_rows, k)
    for i in reversed(range(live)):
        here = q[:, i, None].expand(batch, n_rows, 1)
        slopes[..., i] = (history[i] * (here - ahead)).sum(-1)
        ahead = ahead + probabilities[i] * (torch.cat((ahead[..., 1:], here), dim=-1) - ahead)
    return ahead.sum((1, 2)), slopes, live, left
