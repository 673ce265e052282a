"""Algorithm 4 on the device of the sorted rows: climb, level search, rounding, without the host.

The same steps as `fsl_basesel.selectors.double_greedy` and `fsl_basesel.rounding`, written so that
every launch follows from shapes: loops have a fixed number of turns and tensors make the choices.
The caller looks at the result once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fsl_basesel.multilinear import triton
from fsl_basesel.multilinear.order import PrefixTooShortError, SortedRows
from fsl_basesel.multilinear.triton.settings import EPSILON
from fsl_basesel.rounding import WHOLE

Gradient = Callable[[SortedRows, Tensor, int], tuple[Tensor, Tensor, Tensor]]

SECTIONS = 32  # levels tried at once in the search for l*
SEARCH_ELEMENTS = 1 << 21  # bound on levels times candidates
BITS = 64  # by which the search narrows its bracket: beyond what float64 resolves


def triton_gradient(rows: SortedRows, x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Value, gradient and probability left, by the Triton kernels, the same bits every time."""
    return triton.value_gradient_left(rows, x, k, deterministic=True)


def solve(
    rows: SortedRows, modular: Tensor, free: Tensor, m: int, k: int, steps: int = 20
) -> list[int]:
    """Algorithm 4 and deterministic pipage: m columns of B_u, ascending.

    Args:
        rows: sorted similarities, on a GPU.
        modular: `[|B|]` float64 modular weights, on the same device.
        free: `[|B|]` bool, B_u.
        m: how many columns to choose.
        k: how many similarities a novel class counts.
        steps: T.

    Raises:
        PrefixTooShortError: the rows hold only a prefix and a walk ran past it.
    """
    x, left = double_greedy_steps(rows, modular, free, m, k, steps)
    chosen, left_in_rounding = pipage_steps(rows, modular, free, x, m, k)
    beyond = 0.0 if rows.complete else float(torch.maximum(left, left_in_rounding))
    if beyond >= EPSILON[modular.dtype]:
        raise PrefixTooShortError(rows.length, beyond)
    return chosen.tolist()


def double_greedy_steps(
    rows: SortedRows,
    modular: Tensor,
    free: Tensor,
    m: int,
    k: int,
    steps: int = 20,
    gradient: Gradient = triton_gradient,
) -> tuple[Tensor, Tensor]:
    """The vector that x and y of Algorithm 4 meet in, and the most probability left beyond a row.

    Arguments as in `solve`; `gradient` may be another implementation of the same signature.

    Returns:
        `[|B|]` float64, summing to m over B_u, 0 on B_s, and a scalar tensor.
    """
    held = (~free).to(modular)
    open_ = free.to(modular)
    x = torch.zeros_like(modular)
    left = modular.new_zeros(())
    for step in range(steps):
        upper = torch.clamp(x + (1.0 - step / steps) * open_, max=1.0)
        _, slopes, beyond = gradient(rows, torch.stack((x, upper)) + held, k)
        slopes = slopes - modular
        rate = rates(slopes[0], -slopes[1], free, m)
        x = torch.clamp(x + rate / steps, max=1.0)
        left = torch.maximum(left, beyond)
    return x, left


def rates(a: Tensor, b: Tensor, free: Tensor, m: int) -> Tensor:
    """dx/dt of every candidate: a'/(a' + b') at the level l* where they sum to m; 0 outside B_u.

    The sum of the rates falls with the level. The bracket of l* is cut into sections, all tried at
    once, a fixed number of times; then the rates at its two ends are blended to sum to m exactly,
    which also shares what is left among ties (a + b = 0).

    Args:
        a: `[|B|]` gradient at x.
        b: `[|B|]` minus the gradient at y.
        free: `[|B|]` bool, B_u.
        m: what the rates must sum to, 0 to |B_u|.

    Example:
        >>> a, b = torch.tensor([3.0, 1.0, 1.0, 0.0]), torch.tensor([0.0, -1.0, -1.0, 0.0])
        >>> [round(rate, 4) for rate in rates(a, b, torch.ones(4, dtype=torch.bool), 2).tolist()]
        [0.6667, 0.6667, 0.6667, 0.0]
    """
    b = torch.maximum(b, -a)  # a + b >= 0 by submodularity, but for rounding
    low = torch.where(free, -b, torch.inf).amin() - 1.0
    high = torch.where(free, a, -torch.inf).amax() + 1.0
    sections = max(2, min(SECTIONS, SEARCH_ELEMENTS // max(1, len(a))))
    share = torch.linspace(0.0, 1.0, sections + 1, dtype=a.dtype, device=a.device)
    ends = torch.stack((low, high))
    for _ in range(math.ceil(BITS / math.log2(sections))):
        levels = torch.lerp(ends[0], ends[1], share)
        reached = _rates_at(a, b, free, levels).sum(1) >= m
        # The bracket begins at the last level that still reaches m.
        place = (reached.sum() - 1).clamp(0, sections - 1)
        ends = levels.index_select(0, torch.stack((place, place + 1)))
    lower, upper = _rates_at(a, b, free, ends)
    missing, jump = m - upper.sum(), lower.sum() - upper.sum()
    blend = torch.where(jump > 0.0, missing / jump, 0.0).clamp(0.0, 1.0)
    return upper + blend * (lower - upper)


def _rates_at(a: Tensor, b: Tensor, free: Tensor, levels: Tensor) -> Tensor:
    """(a - l)/(a + b) cut to [0, 1], the upper end where it jumps: `[levels, |B|]`."""
    level = levels[:, None]
    rate = torch.where(level >= a, 0.0, ((a - level) / (a + b)).clamp(max=1.0))
    return torch.where(level < -b, 1.0, rate) * free


def pipage_steps(
    rows: SortedRows, modular: Tensor, free: Tensor, x: Tensor, m: int, k: int
) -> tuple[Tensor, Tensor]:
    """Round `x` to m columns without lowering F, as `fsl_basesel.rounding.pipage` does.

    |B| - 1 exchanges are launched whatever x is; those that find nothing left to do return at once.

    Args:
        rows: sorted similarities.
        modular: `[|B|]` float64 modular weights.
        free: `[|B|]` bool, B_u.
        x: `[|B|]` float64 probabilities that sum to m over B_u.
        m: how many columns to choose.
        k: how many similarities a novel class counts.

    Returns:
        `[m]` int64 columns, ascending, and the most probability left beyond a row, on the device.
    """
    from fsl_basesel.multilinear.triton import pipage

    x = torch.where(x < WHOLE, 0.0, torch.where(x > 1.0 - WHOLE, 1.0, x))
    points = torch.where(free, x, 1.0)
    _, slopes, left = triton_gradient(rows, points[None], k)
    fractional = free & (x > 0.0) & (x < 1.0)
    rank = torch.where(fractional, modular - slopes[0], torch.inf)
    queue = torch.argsort(rank, stable=True).to(torch.int32)
    last = fractional.sum() - 1
    ends = torch.stack((torch.zeros_like(last), last)).to(torch.int32)
    beyond = pipage.exchange(rows, points, queue, ends, modular, k, times=len(x) - 1)
    # What rounding errors left of the last coordinate is rounded off.
    ranked = torch.argsort(torch.where(free, points, -1.0), descending=True, stable=True)
    return ranked[:m].sort().values, torch.maximum(left, beyond)
