"""The swap pass: never lowers the value, and ends where no single exchange helps."""

from itertools import product

import pytest

import fsl_basesel as fb
from fsl_basesel.selectors.swap import improve_by_swaps
from tests.fsl_basesel.enumeration import random_problem


@pytest.mark.parametrize("seed", range(80))
def test_no_single_exchange_helps_afterwards(seed: int) -> None:
    problem = random_problem(seed, signed=seed % 2 == 0)
    start = fb.RandomSelection().select(problem, seed)
    chosen = improve_by_swaps(problem, start.indices)
    value = problem.value(chosen)
    assert value >= start.value
    outside = set(problem.unselected.tolist()) - set(chosen)
    for out, into in product(chosen, outside):
        assert problem.value([into if u == out else u for u in chosen]) <= value + 1e-12


def test_a_set_that_cannot_be_improved_keeps_its_order() -> None:
    problem = fb.SelectionProblem([[0.9, 0.8, 0.1], [0.1, 0.2, 0.9]], m=2, k=1)
    assert improve_by_swaps(problem, [2, 0]) == [2, 0]


@pytest.mark.parametrize("method", fb.methods())
def test_swaps_after_any_selector_never_hurt(method: str) -> None:
    from fsl_basesel.selectors import selector_class

    for seed in range(10):
        problem = random_problem(seed)
        plain = selector_class(method)().select(problem, seed).value
        assert fb.WithSwaps(selector_class(method)()).select(problem, seed).value >= plain - 1e-12
