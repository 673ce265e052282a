"""Algorithm 4: continuous double greedy on the multilinear extension, then pipage rounding."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fsl_basesel import checks, extension
from fsl_basesel.compiled import inlined, kernel
from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import BACKENDS, choose_backend
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.progress import report
from fsl_basesel.rounding import pipage, randomized_pipage
from fsl_basesel.selectors.base import Choice, Selector
from fsl_basesel.selectors.greedy import greedy_order

LARGE = 1_000_000  # entries of the matrix from which `auto` takes a GPU that is there
TIE = 1e-12  # jumps of the rates that are closer than this, relative to the levels, are one


@dataclass(frozen=True)
class ContinuousDoubleGreedy(Selector):
    """Algorithm 4, made for lam > 0 and neither few nor nearly all classes.

    A lower vector x climbs from nothing and an upper vector y falls from everything until they
    meet; what they meet in is rounded to a set. The chosen classes come in greedy order.

    The reduction to 2m <= |B_u| (appendix 2.1) is left out: exchanging the two vectors' roles gives
    the same steps, so it changes nothing.

    Args:
        steps: T, how many steps the climb takes.
        rounding: `deterministic` pipage never lowers F; `randomized` pipage keeps its expectation
            and needs no gradients.
        backend: Of the gradient, see `fsl_basesel.multilinear`.
        device: Where the climb runs: `cpu`, `cuda`, another torch device, or `auto`, see
            `choose_device`. Rounding always runs on the CPU.
    """

    name: ClassVar[str] = "double-greedy"
    randomized: ClassVar[bool] = True
    guarantee: ClassVar[str] = "weighted mean of h(OPT), h(0) and h(B_u), up to O(1/T) (Theorem 4)"

    steps: int = 20
    rounding: str = "deterministic"
    backend: str = "auto"
    # No part of the identity of a run: the selection is the same on every device.
    device: str = field(default="auto", repr=False)

    def choose(self, problem: SelectionProblem, generator: np.random.Generator) -> Choice:
        self.check()
        (x,) = fractional_batch([problem], self.steps, self.backend, self.device)
        return self.round(problem, x, generator)

    def check(self) -> None:
        """Refuse settings that do not exist before any work is done."""
        checks.one_of(self.rounding, ("deterministic", "randomized"), "rounding")
        checks.integer(self.steps, "steps", 1)

    def round(
        self, problem: SelectionProblem, x: np.ndarray, generator: np.random.Generator
    ) -> Choice:
        """The set that a fractional vector is rounded to."""
        if self.rounding == "deterministic":
            chosen = pipage(problem, x)
        else:
            chosen = randomized_pipage(problem, x, generator)
        backend, device = choose_device(problem, self.backend, self.device)
        return Choice(greedy_order(problem, chosen), backend=backend, device=device)


def choose_device(problem: SelectionProblem, backend: str, device: str) -> tuple[str, str]:
    """Backend and device of a climb.

    `auto` is a GPU if the backend asks for one, or if torch is already loaded, sees a GPU, and the
    matrix has a million entries: smaller problems take the CPU some milliseconds, and importing
    torch takes seconds. Otherwise it is the CPU.

    Raises:
        InputError: The device does not exist, or the backend does not run there.
    """
    checks.one_of(backend, ("auto", *BACKENDS), "backend")
    torch: Any = sys.modules.get("torch")
    if backend in ("torch", "triton") or device not in ("auto", "cpu"):
        import torch
    if device == "auto":
        large = problem.by_candidate.size >= LARGE
        wanted = backend in ("torch", "triton") or (backend == "auto" and large)
        device = "cuda" if wanted and torch is not None and torch.cuda.is_available() else "cpu"
    elif device != "cpu":
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(
                f"Expected `device` to be one that torch can use but got {device!r} "
                f'({str(error).splitlines()[0]}); use device="cpu" or device="auto".'
            ) from error
    kind = device.split(":")[0]
    backend = choose_backend(kind, problem.k) if backend == "auto" else backend
    if backend in ("cpu", "reference") and kind != "cpu":
        raise InputError(
            f"Expected a backend that runs on {device!r} (auto, torch or triton) but got "
            f'{backend!r}; use device="cpu" with it.'
        )
    return backend, device


def fractional_batch(
    problems: Sequence[SelectionProblem],
    steps: int = 20,
    backend: str = "auto",
    device: str = "auto",
) -> np.ndarray:
    """The vectors that x and y of Algorithm 4 meet in: `[S, |B|]`, summing to m over B_u, 0 on B_s.

    Two slips of the printed algorithm are put right (1 and 2 in docs/paper.md): b is minus the
    gradient at y, and y falls. Then y - x = 1 - t/T throughout, so y needs no state of its own.

    Problems differ in `m`, `lam`, `cost` and `mu` only, so that one gradient a step serves all.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.5], [0.2, 0.8, 0.6]], m=2, k=1)
        >>> fractional_batch([problem]).sum().round(9)
        np.float64(2.0)
    """
    backend, device = choose_device(problems[0], backend, device)
    if backend in ("torch", "triton") and problems[0].rows.size == 1:
        from fsl_basesel.multilinear.device_steps import climb

        return climb(problems, steps, backend, device)
    free = problems[0].unselected
    x = np.zeros((len(problems), problems[0].n_candidates))
    for step in range(steps):
        report("continuous double greedy", step, steps)
        lower, upper = _top_gradients(problems[0], x, 1.0 - step / steps, backend)
        for row, problem in enumerate(problems):
            weights = problem.modular[free]
            a, b = lower[row] - weights, weights - upper[row]
            rate = rates(a, b, problem.m) if 0 < problem.m < len(free) else float(problem.m > 0)
            x[row, free] = np.minimum(x[row, free] + rate / steps, 1.0)
    report("continuous double greedy", steps, steps)
    return x


def _top_gradients(
    problem: SelectionProblem, x: np.ndarray, gap: float, backend: str
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the top-k part at x and at y = x + gap, `[S, |B_u|]` each."""
    free, n = problem.unselected, len(x)
    y = x.copy()
    y[:, free] = np.minimum(x[:, free] + gap, 1.0)
    if gap == 1.0 and len(free) == problem.n_candidates:
        # Every climb begins at x = 0, where nothing else competes for the top k, and at y = 1.
        lower = (problem.column_means - problem.floor) / problem.k
        upper = extension.top_gradient(problem, y[0], backend)
        return np.broadcast_to(lower, x.shape), np.broadcast_to(upper, x.shape)
    top = extension.top_gradient(problem, np.concatenate([x, y]), backend)[:, free]
    return top[:n], top[n:]


def rates(a: np.ndarray, b: np.ndarray, m: int) -> np.ndarray:
    """dx/dt of every candidate: a'/(a' + b') at the level l* where they sum to m.

    With a' = max(a - l, 0) and b' = max(b + l, 0) the rate is (a - l)/(a + b) cut to [0, 1], which
    falls with l; where a + b = 0 it jumps from 1 to 0 at l = a and anything between is allowed
    (correction 6 in docs/paper.md). So l* is bracketed closely, and the rates of the two ends are
    blended to sum to m exactly: ties, also those that rounding hides, share what is left equally.

    `a` is the gradient at x and `b` minus that at y, `[|B_u|]` each; a + b >= 0 by submodularity,
    but for rounding.

    Example:
        >>> rates(np.array([3.0, 1.0, 1.0, 0.0]), np.array([0.0, -1.0, -1.0, 0.0]), 2)
        array([0.66666667, 0.66666667, 0.66666667, 0.        ])
    """
    a = np.ascontiguousarray(a, np.float64)
    b = np.maximum(b, -a)
    out = np.empty(len(a))
    _rates(a, b, float(m), float(-b.max()), float(a.max()), np.arange(len(a)), out)
    return out


@inlined
def _rate(a: float, b: float, level: float) -> float:
    """(a - l)/(a + b) cut to [0, 1], and the upper end of the jump where a + b = 0."""
    if level < -b:
        return 1.0
    if level >= a:
        return 0.0
    return min(1.0, (a - level) / (a + b))


@kernel
def _rates(
    a: np.ndarray,
    b: np.ndarray,
    m: float,
    low: float,
    high: float,
    ramps: np.ndarray,
    out: np.ndarray,
) -> None:
    """The rates, from a bracket of the level; `ramps` is `arange(len(a))`, used as scratch."""
    close = TIE * (abs(low) + abs(high) + high - low)
    margin = high - low if high > low else 1.0
    low, high = low - margin, high + margin
    sum_low, sum_high = float(len(a)), 0.0
    ones, n = 0, len(a)  # the first n of `ramps` are candidates whose rate changes in the bracket
    newton = False
    level = 0.5 * (low + high)
    while low < level < high and high - low > close:
        total, slope = float(ones), 0.0
        for i in range(n):
            u = ramps[i]
            total += _rate(a[u], b[u], level)
            if -b[u] < level < a[u]:
                slope += 1.0 / (a[u] + b[u])
        if total >= m:
            low, sum_low = level, total
        else:
            high, sum_high = level, total
        if total == m:
            break
        kept = 0
        for i in range(n):
            u = ramps[i]
            if -b[u] > high:
                ones += 1
            elif a[u] > low:
                ramps[kept] = u
                kept += 1
        n = kept
        # A Newton step lands on l* once both lie on the same linear piece; every other step
        # bisects, so the bracket shrinks whatever the jumps are.
        newton = not newton and slope > 0.0
        level = level + (total - m) / slope if newton else 0.5 * (low + high)
        if not low < level < high:
            level = 0.5 * (low + high)
    share = (m - sum_high) / (sum_low - sum_high)
    for u in range(len(a)):
        out[u] = share * _rate(a[u], b[u], low) + (1.0 - share) * _rate(a[u], b[u], high)
