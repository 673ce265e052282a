"""`select_grid`: many settings on one matrix in one go."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import groupby, product

from fsl_basesel.problem import SelectionProblem
from fsl_basesel.progress import Listener, listening
from fsl_basesel.selecting import select, with_certificate
from fsl_basesel.selection import Selection
from fsl_basesel.selectors import ContinuousDoubleGreedy, Selector, selector_of
from fsl_basesel.selectors.base import seeded
from fsl_basesel.selectors.double_greedy import fractional_batch


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
) -> list[Selection]:
    """Select for every combination of `k`, `lam`, `m` and seed.

    The matrix, its means and its sorted rows are made once. Algorithm 4 computes the gradients of
    all settings with the same `k` in one call a step; a bound is computed once for each setting.

    Args:
        problem: Whose matrix, B_s and cost to use; its settings stand where none are given.
        k: Values of k.
        lam: Values of lam.
        m: Values of m.
        seeds: Seeds; more than one makes sense for randomised methods only.
        method: As for `select`.
        certify: As for `select`.
        progress: As for `select`.

    Returns:
        One selection for each combination, the seed varying fastest, then m, lam and k. `seconds`
        of a batched setting is its share of the batch.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=1, k=1)
        >>> [(s.hyperparameters["m"], s.indices) for s in select_grid(problem, m=[1, 2])]
        [(1, [2]), (2, [0, 1])]
    """
    selector = selector_of(method)
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
            found = [
                (each, select(each, selector, seed, certify=False))
                for each in problems
                for seed in seeds
            ]
        return [
            with_certificate(each, selection) if certify else selection for each, selection in found
        ]


def _batched(
    selector: ContinuousDoubleGreedy, problems: list[SelectionProblem], seeds: Sequence[int]
) -> Iterator[tuple[SelectionProblem, Selection]]:
    selector.check()
    for _, same_k in groupby(problems, key=lambda problem: problem.k):
        group = list(same_k)
        start = time.perf_counter()
        points = fractional_batch(group, selector.steps, selector.backend)
        share = (time.perf_counter() - start) / (len(group) * len(seeds))
        for problem, x in zip(group, points, strict=True):
            for seed in seeds:
                start = time.perf_counter()
                choice = selector.round(problem, x, seeded(seed))
                seconds = share + time.perf_counter() - start
                yield (
                    problem,
                    Selection.of(
                        problem,
                        choice.indices,
                        method=selector.name,
                        settings=selector.settings(),
                        seed=int(seed),
                        seconds=seconds,
                        backend=choice.backend,
                    ),
                )
