"""The certificate against an exact solver, and what the dual promises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

import fsl_basesel as fb
from tests.fsl_basesel.enumeration import optimum, random_problem
from tests.fsl_basesel.selectors.test_greedy import clustered


def milp_optimum(problem: fb.SelectionProblem) -> float:
    """The selection problem as a mixed-integer program for HiGHS.

    y_u = 1 if u is chosen; z_nu = 1 if u is among the k that count for n.
    """
    similarity = np.asarray(problem.similarity, np.float64)
    n, b = similarity.shape
    assert problem.floor == 0.0
    assert not problem.selected
    objective = -np.concatenate([-problem.modular, similarity.ravel() / (n * problem.k)])
    total = sparse.hstack([np.ones((1, b)), sparse.csr_matrix((1, n * b))])
    per_row = sparse.hstack(
        [sparse.csr_matrix((n, b)), sparse.kron(sparse.eye(n), np.ones((1, b)))]
    )
    linked = sparse.hstack([-sparse.vstack([sparse.eye(b)] * n), sparse.eye(n * b)])
    result = milp(
        objective,
        constraints=[
            LinearConstraint(total, problem.m, problem.m),
            LinearConstraint(per_row, -np.inf, problem.k),
            LinearConstraint(linked, -np.inf, 0),
        ],
        integrality=np.concatenate([np.ones(b), np.zeros(n * b)]),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-7, "time_limit": 60},
    )
    assert result.status == 0, result.message
    return -result.fun


CASES = [
    (seed, m, k, lam)
    for seed, (m, k, lam) in enumerate(
        [(20, 1, 0.0), (100, 1, 0.0), (100, 3, 0.2), (40, 5, 0.5), (100, 5, 0.0)] * 2
    )
]


def test_certificate_is_within_a_thousandth_of_the_exact_optimum() -> None:
    within = 0
    for seed, m, k, lam in CASES:
        problem = clustered(seed, 100, 400, m=m, k=k, lam=lam)
        best = milp_optimum(problem)
        selection = fb.select(problem, "auto")
        assert selection.upper_bound >= best - 1e-6
        assert selection.value <= best + 1e-6
        within += selection.upper_bound <= best * 1.001
    assert within >= 9


@pytest.mark.parametrize("seed", range(100))
def test_gap_zero_means_optimal(seed: int) -> None:
    problem = random_problem(seed, general=seed % 4 == 0, signed=seed % 3 == 0)
    selection = fb.LagrangianDual(gap=0.0).select(problem)
    best = optimum(problem)
    assert selection.upper_bound >= best - 1e-12
    if selection.gap < 1e-12:
        assert selection.value == pytest.approx(best, abs=1e-11)


@pytest.mark.parametrize("method", ["dual", "auto"])
@pytest.mark.parametrize("seed", range(5))
def test_never_below_greedy(method: str, seed: int) -> None:
    problem = clustered(seed, 50, 120, m=30, k=3, lam=0.2)
    assert fb.select(problem, method).value >= fb.select(problem, "greedy-target").value


def test_stops_at_the_requested_gap() -> None:
    problem = clustered(0, 100, 400, m=40, k=5, lam=0.5)
    loose = fb.LagrangianDual(gap=0.02).select(problem)
    tight = fb.LagrangianDual(gap=1e-4).select(problem)
    assert 1e-4 < loose.gap <= 0.02
    assert tight.gap <= 1e-4


def test_bound_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = clustered(0, 50, 3000, m=60, k=3)
    results = []
    for threads in ("1", "3"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
        selection = fb.select(problem.replace(), "auto")
        results.append((selection.indices, selection.value, selection.upper_bound))
    assert results[0] == results[1]
