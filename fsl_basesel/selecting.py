"""`select`, `select_grid`, `frontier`: from a problem, or many on one matrix, to selections."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from typing import TYPE_CHECKING, Any

import numpy as np

from fsl_basesel.bounds import certify as certificate_of
from fsl_basesel.bounds import price_of
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.progress import Listener, listening
from fsl_basesel.selection import Selection
from fsl_basesel.selectors import selector_of
from fsl_basesel.selectors.base import Seed, Selector, seeded

if TYPE_CHECKING:
    from fsl_basesel.selectors.double_greedy import ContinuousDoubleGreedy


def select(
    problem: SelectionProblem,
    method: str | Selector = "auto",
    seed: Seed = 0,
    certify: bool = True,
    progress: Listener | None = None,
    device: str = "auto",
) -> Selection:
    """Choose m classes and say how good the choice provably is.

    Args:
        problem: What to choose from.
        method: One of `methods()`, or a selector with settings of your own, for example
            `Auto(gap=0.001)` or `WithSwaps(RandomGreedy())`.
        seed: All randomness comes from it: same seed, same answer on every machine. An integer, or
            a numpy generator.
        certify: Attach an upper bound. `auto` and `dual` have one anyway; for the others it costs
            one run of the dual, shared by all calls on the same problem.
        progress: Called with (task, steps done, steps in total) during long work.
        device: Where the climb of `double-greedy` runs: `cpu`, `cuda`, or `auto`, see
            `ContinuousDoubleGreedy`. Everything else runs on the CPU.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=1, k=1)
        >>> selection = select(problem, method="greedy-target")
        >>> selection.names, round(selection.value, 6), round(selection.upper_bound, 6)
        (['2'], 0.6, 0.6)
    """
    with listening(progress):
        selection = selector_of(method).on_device(device).select(problem, seed)
        return with_certificate(problem, selection) if certify else selection


def select_grid(
    problem: SelectionProblem,
    *,
    k: Sequence[int] | None = None,
    lam: Sequence[float] | None = None,
    m: Sequence[int] | None = None,
    seeds: Sequence[int] = (0,),
    method: str | Selector = "auto",
    certify: bool = True,
    progress: Listener | None = None,
    device: str = "auto",
) -> list[Selection]:
    """Select for every combination of `k`, `lam`, `m` and seed.

    The matrix, its means and its sorted rows are made once. Algorithm 4 computes the gradients of
    all settings with the same `k` in one call per step; a bound is computed once for each setting.

    Args:
        problem: Whose matrix, B_s and cost to use; its settings are the defaults.
        k: Values of k.
        lam: Values of lam.
        m: Values of m.
        seeds: Seeds; more than one makes sense for randomized methods only.
        method: As for `select`.
        certify: As for `select`.
        progress: As for `select`.
        device: As for `select`.

    Returns:
        One selection for each combination, the seed varying fastest, then m, lam and k. `seconds`
        of a batched setting has its share of the batch.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=1, k=1)
        >>> [(s.hyperparameters["m"], s.indices) for s in select_grid(problem, m=[1, 2])]
        [(1, [2]), (2, [0, 1])]
    """
    from fsl_basesel.selectors.double_greedy import ContinuousDoubleGreedy

    selector = selector_of(method).on_device(device)
    settings = product(
        k if k is not None else [problem.k],
        lam if lam is not None else [problem.lam],
        m if m is not None else [problem.m],
    )
    problems = [problem.replace(k=one, lam=two, m=three) for one, two, three in settings]
    with listening(progress):
        if isinstance(selector, ContinuousDoubleGreedy):
            found = list(_batched(selector, problems, seeds))
        else:
            found = [(each, selector.select(each, seed)) for each in problems for seed in seeds]
        if not certify:
            return [selection for _, selection in found]
        return [with_certificate(each, selection) for each, selection in found]


def frontier(
    problem: SelectionProblem,
    budgets: Sequence[float] | None = None,
    ms: Sequence[int] | None = None,
    method: str | Selector = "auto",
    seed: Seed = 0,
    progress: Listener | None = None,
) -> dict[float, Selection]:
    """What more budget, or more classes, would buy: value and bound for each of them.

    A choice within a small budget is one within a larger budget, too: values never fall along the
    curve, and the bound of a larger budget holds for every smaller one.

    Args:
        problem: Whose matrix and settings to use.
        budgets: Budgets to try.
        ms: Numbers of classes to try, instead of budgets.
        method: As for `select`.
        seed: As for `select`.
        progress: As for `select`.

    Returns:
        The selection of each limit, from the smallest to the largest.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=1, k=1)
        >>> {m: (round(one.value, 2), one.gap) for m, one in frontier(problem, ms=[1, 2]).items()}
        {1: (0.6, 0.0), 2: (0.85, 0.0)}
    """
    if (budgets is None) == (ms is None):
        raise InputError("Expected either `budgets` or `ms` but got both or neither.")
    limits: list[Any] = sorted(set(budgets if budgets is not None else ms or ()))
    name = "m" if budgets is None else "budget"
    found: list[Selection] = []
    with listening(progress):
        for limit in limits:
            each = problem.replace(**{name: limit})
            selection = select(each, method, seed)
            if budgets is not None and found and found[-1].value > selection.value:
                before = Selection.of(each, found[-1].indices, method=selection.method)
                bound, nu = selection.upper_bound, selection.nu
                selection = dataclasses.replace(before, upper_bound=bound, nu=nu)
            found.append(selection)
    if budgets is not None:
        bounds = np.array([one.upper_bound for one in found])
        lowest = np.minimum.accumulate(bounds[::-1])[::-1].tolist()
        found = [one.certified(bound) for one, bound in zip(found, lowest, strict=True)]
    return dict(zip(limits, found, strict=True))


def with_certificate(problem: SelectionProblem, selection: Selection) -> Selection:
    """The selection with a proven upper bound, unless it already has one."""
    if selection.upper_bound is not None:
        return selection
    start = time.perf_counter()
    certificate = certificate_of(problem, selection.indices)
    seconds = selection.seconds + time.perf_counter() - start
    certified = selection.certified(certificate.upper_bound)
    return dataclasses.replace(certified, seconds=seconds, nu=price_of(problem))


def _batched(
    selector: ContinuousDoubleGreedy, problems: list[SelectionProblem], seeds: Sequence[int]
) -> Iterator[tuple[SelectionProblem, Selection]]:
    from fsl_basesel.selectors.double_greedy import fractional_batch

    selector.check()
    for _, same_k in groupby(problems, key=lambda problem: problem.k):
        group = list(same_k)
        start = time.perf_counter()
        points = fractional_batch(group, selector.steps, selector.backend, selector.device)
        share = (time.perf_counter() - start) / (len(group) * len(seeds))
        for problem, x in zip(group, points, strict=True):
            for seed in seeds:
                start = time.perf_counter()
                choice = selector.round(problem, x, seeded(seed))
                selection = selector.selection_of(problem, choice, seed)
                seconds = share + time.perf_counter() - start
                yield problem, dataclasses.replace(selection, seconds=seconds)
