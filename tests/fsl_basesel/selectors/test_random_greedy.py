"""Algorithm 3: draws from the right set, adds or drops, and its expected value."""

from __future__ import annotations

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.selectors.base import largest
from tests.fsl_basesel.enumeration import optimum, random_problem


class Script:
    """A generator whose choices are given: walks one path of the tree of random decisions."""

    def __init__(self, path: list[int]) -> None:
        self.path, self.sizes = list(path), []

    def choice(self, options: np.ndarray) -> int:
        at = len(self.sizes)
        self.sizes.append(len(options))
        return options[self.path[at] if at < len(self.path) else 0]


def expected_value(problem: fb.SelectionProblem) -> float:
    """Exact expectation: every path of decisions, each with its probability."""
    total, stack = 0.0, [[]]
    while stack:
        path = stack.pop()
        script = Script(path)
        choice = fb.RandomGreedy().choose(problem, script)  # type: ignore[arg-type]
        if len(path) < len(script.sizes):
            stack += [[*path, option] for option in range(script.sizes[len(path)])]
        else:
            total += problem.value(choice.indices) / np.prod(script.sizes, initial=1.0)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_each_pick_is_among_the_m_largest_gains(seed: int) -> None:
    problem = random_problem(seed, lam=0.5, m=2, selected=[])
    picks = fb.RandomGreedy().select(problem, seed).indices
    if 2 * problem.m <= problem.n_candidates:
        for step, pick in enumerate(picks):
            gains = problem.gains(picks[:step])
            assert pick in largest(gains, problem.m)


@pytest.mark.parametrize("seed", range(20))
def test_classes_that_add_nothing_are_tied_and_go_by_index(seed: int) -> None:
    similarity = np.random.default_rng(seed).standard_normal((20, 40))
    problem = fb.SelectionProblem(similarity, m=16, k=1)
    picks = fb.RandomGreedy().select(problem, seed).indices
    for step, pick in enumerate(picks):
        assert pick in largest(problem.gains(picks[:step]), problem.m)


@pytest.mark.parametrize("seed", range(20))
def test_dropping_is_random_greedy_on_the_complement(seed: int) -> None:
    problem = random_problem(seed, lam=0.5, selected=[])
    free = problem.n_candidates
    options = [1, 0] if free > 4 else [0]  # so that more than half of the classes stay
    problem = problem.replace(m=free - len(options))
    kept = fb.RandomGreedy().choose(problem, Script(options)).indices  # type: ignore[arg-type]
    present = set(range(free))
    for option in options:
        loss = {u: problem.value(present) - problem.value(present - {u}) for u in present}
        gains = np.full(free, -np.inf)
        for u, lost in loss.items():
            gains[u] = -lost
        present.remove(int(largest(gains, len(options))[option]))
    assert set(kept) == present


def test_with_one_class_to_choose_it_is_the_best_one() -> None:
    for seed in range(20):
        problem = random_problem(seed, m=1)
        assert fb.RandomGreedy().select(problem, seed).value == pytest.approx(optimum(problem))
