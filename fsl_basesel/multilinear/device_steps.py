"""The climb of Algorithm 4 on a device: gradients, level search and steps, without the host.

The same steps as `fsl_basesel.selectors.double_greedy`, written so that launches depend on
shapes only: loops have a fixed number of iterations, and conditions are evaluated on the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fsl_basesel.multilinear import value_and_gradient
from fsl_basesel.progress import report

if TYPE_CHECKING:
    from fsl_basesel.problem import SelectionProblem

SECTIONS = 32  # levels tried at once in the search for l*
SEARCH_ELEMENTS = 1 << 21  # bound on levels times candidates
BITS = 64  # by which the search narrows its bracket: beyond what float64 resolves


def climb(
    problems: Sequence[SelectionProblem], steps: int, backend: str, device: str
) -> np.ndarray:
    """`fractional_batch` in tensors: one transfer to the device and one back."""
    rows, k = problems[0].sorted_rows, problems[0].k
    modular = torch.from_numpy(np.stack([problem.modular for problem in problems])).to(device)
    free = torch.from_numpy(~problems[0].is_selected).to(device)
    held, open_ = (~free).to(modular), free.to(modular)
    x = torch.zeros_like(modular)
    for step in range(steps):
        report("continuous double greedy", step, steps)
        y = torch.clamp(x + (1.0 - step / steps) * open_, max=1.0)
        _, slopes = value_and_gradient(rows, torch.cat((x, y)) + held, k, backend)
        a, b = slopes[: len(x)] - modular, modular - slopes[len(x) :]
        rate = torch.stack(
            [rates(a[s], b[s], free, problem.m) for s, problem in enumerate(problems)]
        )
        x = torch.clamp(x + rate / steps, max=1.0)
    report("continuous double greedy", steps, steps)
    return x.cpu().numpy()


def rates(a: Tensor, b: Tensor, free: Tensor, m: int) -> Tensor:
    """dx/dt of every candidate: a'/(a' + b') at the level l* where they sum to m; 0 outside B_u.

    The sum of the rates falls with the level. The bracket of l* is cut into sections, all tried at
    once, a fixed number of times; then the rates at its two ends are blended to sum to m exactly,
    which also shares what is left among ties (a + b = 0).

    `a` is the gradient at x, `b` minus that at y, `free` is B_u, all `[|B|]`.

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
