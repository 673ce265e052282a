"""The multilinear extension written plainly in torch: what the tests hold every backend to."""

from __future__ import annotations

import torch
from torch import Tensor

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear.order import SortedRows


def _sorted_probabilities(rows: SortedRows, x: Tensor) -> tuple[Tensor, Tensor]:
    """Values above the floor `[|N|, L]` and `x` in each row's order `[S, |N|, L]`."""
    if not rows.complete:
        raise InputError(
            f"Expected all {rows.n_candidates} candidates in the sorted rows but got a prefix of "
            f"{rows.length}; the reference does not look whether a prefix is enough."
        )
    gaps = rows.values.to(x.dtype) - rows.floor
    return gaps, x[:, rows.order.long()]


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
    q, xs = _sorted_probabilities(rows, x)
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
    columns = rows.order.long().flatten().expand(batch, -1)
    gradient.scatter_add_(1, columns, slopes.flatten(1))
    return ahead[..., 0].mean(1) / k + rows.floor, gradient / (k * n_novel)


def autograd_reference(rows: SortedRows, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same two by automatic differentiation of the forward recursion alone.

    F_n = sum_i q_i x_i P(fewer than K of the first i-1 are in), which has no backward recursion to
    get wrong. Arguments and results as in `value_and_gradient`.
    """
    x = x.detach().clone().requires_grad_()
    q, xs = _sorted_probabilities(rows, x)
    seen = [torch.ones_like(xs[..., 0])] + [torch.zeros_like(xs[..., 0])] * (k - 1)
    total = xs.new_zeros(xs.shape[:2])
    for i in range(rows.length):
        probability = xs[..., i]
        total = total + q[:, i] * probability * sum(seen)
        seen = [
            (1 - probability) * now + (probability * seen[j - 1] if j else 0)
            for j, now in enumerate(seen)
        ]
    value = total.mean(1) / k + rows.floor
    (gradient,) = torch.autograd.grad(value.sum(), x, allow_unused=True)
    return value.detach(), torch.zeros_like(x) if gradient is None else gradient
