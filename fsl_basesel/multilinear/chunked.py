"""F(x) and its gradient in plain torch operations, for devices that have no kernel of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from fsl_basesel.multilinear.sorted_rows import EPSILON, SortedRows

ROWS, ELEMENTS = 256, 1 << 23  # most novel classes, and most slopes, in a chunk
STEPS_PER_CHECK = 64  # positions between two looks at how much probability is left


def value_and_gradient(rows: SortedRows, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """F(x) and dF/dx, `[S]` and `[S, |B|]`, by the W form of the forward-backward pass.

    Novel classes are taken in chunks, and the walk of a chunk stops where every row has its K+1
    entries almost surely, so memory is O(S * chunk * live prefix * K) whatever |N| is. Works on any
    torch device and waits for it only every `STEPS_PER_CHECK` positions. Slopes are written
    dense and then summed, so the result is the same every time.
    """
    value = x.new_zeros(x.shape[0])
    gradient = torch.zeros_like(x)
    values, columns = rows.on_device(x.device)
    count = max(1, min(ROWS, ELEMENTS // max(1, x.numel())))
    for start in range(0, rows.n_novel, count):
        part = slice(start, start + count)
        order = columns[part].long()
        sums, slopes = _walk(values[part].to(x) - rows.floor, x, order, k)
        value += sums
        live = order[:, : slopes.shape[2]].expand_as(slopes)
        dense = x.new_zeros(len(x), *order.shape).scatter_(2, live, slopes)
        gradient += dense.sum(1)
    scale = max(1, rows.n_novel) * k
    return value / scale + rows.floor, gradient / scale


def _walk(q: Tensor, x: Tensor, order: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sum of F_n over the chunk `[S]`, and slopes `[S, rows, live]` down to where the walk ends."""
    batch, (n_rows, length) = x.shape[0], order.shape
    state = x.new_zeros(batch, n_rows, k + 1)
    state[..., 0] = 1
    history: list[Tensor] = []
    probabilities: list[Tensor] = []
    for i in range(length):
        if i % STEPS_PER_CHECK == 0 and i and state.sum(-1).max() < EPSILON[x.element_size()]:
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
    live = len(history)
    slopes = x.new_zeros(batch, n_rows, live)
    ahead = x.new_zeros(batch, n_rows, k)
    for i in reversed(range(live)):
        here = q[:, i, None].expand(batch, n_rows, 1)
        slopes[..., i] = (history[i] * (here - ahead)).sum(-1)
        ahead = ahead + probabilities[i] * (torch.cat((ahead[..., 1:], here), dim=-1) - ahead)
    return ahead.sum((1, 2)), slopes
