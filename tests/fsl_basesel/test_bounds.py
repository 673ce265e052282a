"""Guarantees hold on every small instance; the printed ones that do not are shown to fail."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fsl_basesel as fb
from benchmarks import theorems
from benchmarks.theorems import (
    theorem_2_as_printed,
    theorem_4_double_greedy_as_printed,
    theorem_4_random_greedy_as_printed,
)
from fsl_basesel import bounds
from tests.fsl_basesel.enumeration import all_choices, optimum, random_problem
from tests.fsl_basesel.selectors.test_random_greedy import expected_value


def hard_problem(seed: int, **settings: object) -> fb.SelectionProblem:
    """Coverage-like matrices, on which greedy algorithms do badly."""
    rng = np.random.default_rng(seed)
    n_candidates, n_novel = int(rng.integers(4, 10)), int(rng.integers(1, 7))
    similarity = [
        rng.random((n_novel, n_candidates)),
        (rng.random((n_novel, n_candidates)) < 0.4).astype(float),
        rng.random((n_novel, n_candidates)) ** 4,
        rng.integers(0, 3, (n_novel, n_candidates)) / 2 - 0.5,
    ][seed % 4]
    drawn = {"m": int(rng.integers(1, n_candidates)), "k": int(rng.integers(1, 3))}
    return fb.SelectionProblem(similarity, **(drawn | settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("lam", [0.0, 0.2, 0.5, 2.0])
def test_theorem_2_as_corrected_holds(lam: float) -> None:
    for seed in range(150):
        problem = hard_problem(seed, lam=lam)
        value = fb.GreedyOnTarget().select(problem).value
        assert value >= theorems.theorem_2(problem).lower_bound(optimum(problem)) - 1e-12


def test_theorem_2_as_printed_fails_on_three_classes() -> None:
    similarity = [[1, 1, 0], [0, 1, 0], [1, 0, 1], [0, 0, 1]]
    problem = fb.SelectionProblem(similarity, m=2, k=1)
    value, best = fb.GreedyOnTarget().select(problem).value, optimum(problem)
    assert (value, best) == (0.75, 1.0)
    assert theorem_2_as_printed(problem).lower_bound(best) == pytest.approx(
        1 - 1 / math.e + 0.5 / math.e
    )  # 0.816: more than greedy reaches
    assert theorems.theorem_2(problem).lower_bound(best) == 0.75  # and the corrected one is tight


@pytest.mark.parametrize("lam", [0.2, 0.5])
def test_theorem_4_holds_for_random_greedy_in_expectation(lam: float) -> None:
    checked = 0
    for seed in range(120):
        problem = hard_problem(seed, lam=lam)
        if min(problem.m, problem.n_candidates - problem.m) > 3:
            continue  # the tree of decisions is too large to walk
        promised = theorems.theorem_4_random_greedy(problem).lower_bound(optimum(problem))
        assert expected_value(problem) >= promised - 1e-12
        checked += 1
    assert checked > 60


@pytest.mark.parametrize("lam", [0.0, 0.2, 0.5, 2.0])
def test_theorem_4_holds_for_double_greedy(lam: float) -> None:
    for seed in range(150):
        problem = hard_problem(seed, lam=lam)
        value = fb.ContinuousDoubleGreedy().select(problem).value
        assert (
            value >= theorems.theorem_4_double_greedy(problem).lower_bound(optimum(problem)) - 1e-12
        )


def test_theorem_4_as_printed_promises_more_than_the_optimum() -> None:
    problem = fb.SelectionProblem([[0.5, 0.5, 0.5, 0.5]], m=1, k=2, lam=0.2)
    best = optimum(problem)
    for printed in (
        theorem_4_random_greedy_as_printed,
        theorem_4_double_greedy_as_printed,
    ):
        assert printed(problem).lower_bound(best) > best + 0.01


def test_constants_of_theorem_4() -> None:
    problem = fb.SelectionProblem(np.full((2, 10), 0.5), m=5, k=1, lam=0.4)
    assert theorems.average_similarity(problem) == 0.5
    random = theorem_4_random_greedy_as_printed(problem)
    assert random.ratio == pytest.approx((1 - 0.5 / math.e) / math.e)
    assert random.constant / 0.5 == pytest.approx(1 / math.e + (1 - 1 / math.e) * 0.1)  # C1
    double = theorem_4_double_greedy_as_printed(problem)
    assert (double.ratio, double.constant / 0.5) == pytest.approx((0.5, 0.5 * (1 - 0.4)))  # C2


@pytest.mark.parametrize("seed", range(100))
def test_no_bound_is_below_the_optimum(seed: int) -> None:
    problem = random_problem(seed, signed=seed % 2 == 0)
    best = optimum(problem)
    assert bounds.upper_bound(problem) >= best - 1e-12
    for choice in all_choices(problem)[::7]:
        certificate = fb.certify(problem, choice)
        assert certificate.upper_bound >= best - 1e-12
        assert problem.value(choice) >= (
            certificate.upper_bound
            - certificate.gap * abs(certificate.upper_bound - problem.floor)
            - 1e-12
        )


def test_theorem_1_speaks_only_where_it_applies() -> None:
    problem = fb.SelectionProblem(np.eye(2, 6), m=4, k=2)
    assert theorems.theorem_1(problem) == theorems.Guarantee(1.0, 0.0)
    assert theorems.theorem_1(problem.replace(m=3)) is None
    assert theorems.theorem_1(problem.replace(lam=0.1)) is None


def test_gap_below_a_bound_of_zero_is_one() -> None:
    problem = fb.SelectionProblem([[0.0, -1.0]], m=1, k=1)
    assert fb.certify(problem, [0]) == (0.0, 0.0)
    assert fb.certify(problem, [1]) == (0.0, 1.0)


def test_terms_that_cancel_leave_no_gap_but_rounding() -> None:
    # k = m = 2 and lam = 1: what the top two bring, the diversity term takes; h is 0 but for 1e-16.
    for seed in range(20):
        similarity = np.random.default_rng(seed).random((5, 7))
        problem = fb.SelectionProblem(similarity, m=2, k=2, lam=1.0)
        for choice in all_choices(problem):
            assert fb.certify(problem, choice).gap == 0.0
        assert fb.select(problem).gap == 0.0


def test_certificate_is_for_sets_of_m_classes() -> None:
    problem = fb.SelectionProblem(np.eye(3, 6), m=2, k=1)
    for wrong in ([], [0], [0, 1, 2]):
        with pytest.raises(fb.InputError, match=rf"m = 2 columns.*got {len(wrong)}"):
            fb.certify(problem, wrong)
