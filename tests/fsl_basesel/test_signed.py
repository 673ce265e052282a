"""Signed similarities, as centring and whitening give them: against every subset."""

from __future__ import annotations

import numpy as np
import pytest

import fsl_basesel as fb
from tests.fsl_basesel.enumeration import all_choices, optimum, plain_value


def signed_problem(seed: int) -> fb.SelectionProblem:
    """9 candidates and 5 novel classes, centred or whitened, with settings of all kinds."""
    rng = np.random.default_rng(seed)
    candidates, novel = rng.standard_normal((9, 4)) + 2.0, rng.standard_normal((5, 4)) + 2.0
    return fb.SelectionProblem.from_centroids(
        candidates,
        novel,
        m=int(rng.integers(1, 4)),
        k=int(rng.integers(1, 4)),
        lam=float(rng.choice([0.0, 0.3])),
        selected=[int(rng.integers(9))] if seed % 3 == 0 else [],
        weights=rng.integers(0, 3, 5) + (np.arange(5) == 0) if seed % 2 else None,
        similarity=("centred", "whitened")[seed % 4 // 2],
    )


@pytest.mark.parametrize("seed", range(24))
def test_values_bounds_and_gaps_hold_for_every_subset(seed: int) -> None:
    problem = signed_problem(seed)
    assert problem.floor < 0
    best = optimum(problem)
    found = fb.select(problem)
    assert found.upper_bound is not None
    assert found.gap is not None
    assert found.value <= best + 1e-12 <= found.upper_bound + 2e-12
    assert found.gap == pytest.approx(
        max(0.0, found.upper_bound - found.value) / abs(found.upper_bound - problem.floor), abs=1e-9
    )
    if found.gap == 0:
        assert found.value == pytest.approx(best)
    if problem.weights is None:
        for chosen in all_choices(problem)[::5]:
            expected = plain_value(
                np.asarray(problem.similarity), chosen,
                m=problem.m, k=problem.k, lam=problem.lam, selected=problem.selected,
            )  # fmt: skip
            assert problem.value(chosen) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(24))
def test_gains_and_losses_are_differences_of_values(seed: int) -> None:
    problem = signed_problem(seed)
    found = fb.select(problem)
    for at, row in enumerate(found.explain().chosen):
        before, after = found.indices[:at], found.indices[: at + 1]
        assert row.gain == pytest.approx(problem.value(after) - problem.value(before), abs=1e-12)
        rest = [u for u in found.indices if u != row.index]
        assert row.loss == pytest.approx(found.value - problem.value(rest), abs=1e-12)


def test_no_method_is_above_the_bound_and_gaps_without_lam_are_shares() -> None:
    for seed in range(12):
        problem = signed_problem(seed).replace(lam=0.0)
        bound = fb.upper_bound(problem)
        for method in fb.methods():
            found = fb.select(problem, method)
            assert found.value <= bound + 1e-12
            gap = fb.certify(problem, found.indices).gap
            assert 0 <= gap <= 1


def test_the_gap_that_is_asked_for_is_the_gap_that_is_got() -> None:
    missed = 0.0
    for seed in range(40):
        similarity = np.random.default_rng(seed).random((12, 30)) - 1.5  # all below zero
        problem = fb.SelectionProblem(similarity, m=4, k=2)
        found = fb.select(problem, fb.LagrangianDual(gap=0.02))
        assert found.gap is not None
        missed = max(missed, found.gap)
    assert 0.0 < missed <= 0.02


def test_the_ratio_of_signed_means_is_not_shown() -> None:
    problem = signed_problem(1)
    assert np.isnan(np.asarray(problem.similarity_ratio([0, 1]))).all()
    for row in fb.select(problem).explain().novel:
        assert row.ratio_after is None
