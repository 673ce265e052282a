"""The multilinear extension in plain torch: the tests compare every backend with it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fsl_basesel.multilinear.sorted_rows import SortedRows


def sorted_probabilities(rows: SortedRows, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values above the floor and their columns `[|N|, |B|]`, `x` in their order `[S, |N|, |B|]`."""
    order = torch.from_numpy(rows.order.astype(np.int64))
    return torch.from_numpy(rows.values).to(x) - rows.floor, order, x[:, order]


def value_and_gradient(rows: SortedRows, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """F(x) and dF/dx by the forward-backward recursion, one sorted position at a time.

    With q_i the i-th largest similarity above the floor and x_i its probability,

        p_i(j) = (1 - x_i) p_{i-1}(j) + x_i p_{i-1}(j-1)    P(exactly j of the first i are in)
        V_{i-1}(j) = V_i(j) + x_i g_i(j),  V(K) = 0         expected top-(K-j) sum of what follows
        g_i(j) = q_i + V_i(j+1) - V_i(j)
        dF_n/dx_i = sum_{j<K} p_{i-1}(j) g_i(j),  F_n = V_0(0)

    Args:
        rows: sorted similarities of |N| novel classes.
        x: `[S, |B|]` probabilities, 1 on the columns already selected.
        k: how many similarities a novel class counts.

    Returns:
        `[S]` values of F (mean over novel classes, divided by k, plus the floor) and `[S, |B|]`
        gradients.
    """
    q, order, xs = sorted_probabilities(rows, x)
    batch, n_novel, length = xs.shape
    before = xs.new_zeros(length + 1, batch, n_novel, k)  # p_{i-1}, i = 0 is "nothing seen"
    before[0, ..., 0] = 1
    for i in range(length):
        came = torch.nn.functional.pad(before[i, ..., :-1], (1, 0))
        probability = xs[..., i, None]
        before[i + 1] = (1 - probability) * before[i] + probability * came
    ahead = xs.new_zeros(batch, n_novel, k + 1)
    slopes = torch.zeros_like(xs)
    for i in reversed(range(length)):
        gain = q[:, i, None] + ahead[..., 1:] - ahead[..., :-1]
        slopes[..., i] = (before[i] * gain).sum(-1)
        ahead[..., :-1] += xs[..., i, None] * gain
    gradient = torch.zeros_like(x)
    gradient.scatter_add_(1, order.flatten().expand(batch, -1), slopes.flatten(1))
    return ahead[..., 0].mean(1) / k + rows.floor, gradient / (k * n_novel)
