"""Algorithm 4: its invariants, the level l*, awkward sizes, one answer on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from fsl_basesel import ContinuousDoubleGreedy, SelectionProblem, extension
from fsl_basesel.errors import InputError
from fsl_basesel.selectors.double_greedy import fractional_batch, rates
from tests.fsl_basesel.enumeration import optimum, random_problem


def fractional(problem: SelectionProblem, steps: int = 20) -> np.ndarray:
    return fractional_batch([problem], steps)[0]


@pytest.mark.parametrize("seed", range(12))
def test_x_and_y_keep_their_distance_and_their_sum(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = random_problem(seed, signed=seed % 2 == 1)
    free, steps = problem.unselected, 8
    if not 0 < problem.m < len(free):
        problem = problem.replace(m=1)
    seen: list[np.ndarray] = []
    plain = extension.top_gradient

    def watched(problem: SelectionProblem, x: np.ndarray, backend: str = "auto") -> np.ndarray:
        seen.append(x)
        return plain(problem, x, backend)

    monkeypatch.setattr(extension, "top_gradient", watched)
    final = fractional(problem, steps)
    monkeypatch.undo()
    for step, both in enumerate(seen):
        if both.ndim == 1:  # the first step has x = 0 in closed form
            assert step == 0
            assert (both[free] == 1).all()
            continue
        x, y = both
        assert np.abs(y - x - (1 - step / steps))[free].max() < 1e-12
        assert x[free].sum() == pytest.approx(problem.m * step / steps, abs=1e-9)
        a, b = problem.gradient(x)[free], -problem.gradient(y)[free]
        assert float((a + b).min()) > -1e-12
    assert len(seen) == steps
    assert final[free].sum() == pytest.approx(problem.m, abs=1e-9)
    assert final.min() >= 0
    assert final.max() <= 1


@given(
    st.lists(
        st.tuples(st.floats(-2, 2), st.sampled_from([0.0, 0.0, 1e-9, 0.3, 1.0, 2.5])),
        min_size=2,
        max_size=30,
    ),
    st.data(),
)
def test_rates_sum_to_m_whatever_the_ties(pairs: list, data: st.DataObject) -> None:
    a = np.array([first for first, _ in pairs]).round(1)
    b = np.array([width for _, width in pairs]) - a
    m = data.draw(st.integers(1, len(pairs) - 1))
    rate = rates(a, b, m)
    assert rate.sum() == pytest.approx(m, abs=1e-9)
    assert rate.min() >= 0
    assert rate.max() <= 1
    # Equal candidates get equal rates, and none is passed over for one that is worse in both.
    for u in range(len(a)):
        for v in range(len(a)):
            if a[u] >= a[v] and b[u] <= b[v]:
                assert rate[u] >= rate[v] - 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_rates_are_those_of_the_printed_formula_at_its_level(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(40)
    b = 0.1 + rng.random(40) - a
    m = int(rng.integers(1, 40))

    def printed(level: float) -> np.ndarray:
        up, down = np.maximum(a - level, 0), np.maximum(b + level, 0)
        return up / (up + down)

    level = brentq(lambda level: printed(level).sum() - m, -10, 10, xtol=1e-14)
    assert rates(a, b, m) == pytest.approx(printed(level), abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_taking_the_complement_changes_nothing(seed: int) -> None:
    """Why the reduction of appendix 2.1 is left out."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(25).round(1)
    b = rng.choice([0.0, 0.4, 1.0], 25) - a
    m = int(rng.integers(1, 25))
    assert rates(b, a, 25 - m) == pytest.approx(1 - rates(a, b, m), abs=1e-9)


def test_rounding_errors_that_make_a_plus_b_negative_do_no_harm() -> None:
    a = np.array([0.5, 0.5, 0.1])
    assert rates(a, -a - 1e-17, 1).sum() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(20))
def test_close_to_the_optimum_and_never_below_the_fractional_value(seed: int) -> None:
    problem = random_problem(seed)
    x = fractional(problem)
    found = ContinuousDoubleGreedy().select(problem)
    assert found.value >= problem.multilinear(x) - 1e-11
    assert found.value >= optimum(problem) - 0.06 * abs(optimum(problem)) - 1e-9


@pytest.mark.parametrize("rounding", ["deterministic", "randomized"])
@pytest.mark.parametrize(
    "settings",
    [
        {"m": 0},
        {"m": 1},
        {"m": 7},
        {"m": 8, "selected": ()},
        {"m": 5, "selected": (1, 2, 3)},
        {"m": 3, "k": 40},
        {"m": 3, "lam": 0.9},
        {"m": 4, "k": 1, "lam": 0.0},
    ],
)
def test_awkward_sizes(settings: dict, rounding: str) -> None:
    matrix = np.random.default_rng(0).random((5, 8))
    problem = SelectionProblem(matrix, **{"k": 2, "lam": 0.2, "selected": (), **settings})
    found = ContinuousDoubleGreedy(rounding=rounding).select(problem, 3)
    assert len(set(found.indices)) == problem.m
    assert not set(found.indices) & set(problem.selected)


def test_duplicates_get_equal_shares() -> None:
    rng = np.random.default_rng(0)
    matrix = np.repeat(rng.random((12, 5)), 3, axis=1)  # five classes, three copies each
    problem = SelectionProblem(matrix, m=5, k=1)
    x = fractional(problem)
    assert x.reshape(5, 3) == pytest.approx(np.repeat(x[::3, None], 3, axis=1), abs=1e-9)
    found = ContinuousDoubleGreedy().select(problem)
    assert found.value >= 0.98 * optimum(problem)


def test_one_candidate_for_all_and_equal_candidates() -> None:
    problem = SelectionProblem(np.full((4, 6), 0.5), m=2, k=1, lam=0.3)
    assert fractional(problem) == pytest.approx(1 / 3)
    assert len(ContinuousDoubleGreedy().select(problem).indices) == 2


@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize("seed", range(6))
def test_every_backend_selects_the_same(seed: int, backend: str) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.random((40, 60)).astype(np.float32)
    matrix[:, 30:40] = matrix[:, 20:30]
    problem = SelectionProblem(matrix, m=15, k=3, lam=0.2 * (seed % 2))
    expected = ContinuousDoubleGreedy(backend="cpu").select(problem)
    found = ContinuousDoubleGreedy(backend=backend).select(problem)
    assert found.indices == expected.indices
    assert found.backend == backend


def test_a_batch_climbs_as_its_problems_do_alone() -> None:
    problem = random_problem(5)
    several = [problem.replace(m=m, lam=lam) for m in (1, 2) for lam in (0.0, 0.5)]
    for x, each in zip(fractional_batch(several), several, strict=True):
        assert x == pytest.approx(fractional(each), abs=1e-12)


def test_the_selection_is_a_function_of_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = SelectionProblem(np.random.default_rng(0).random((300, 50)), m=12, k=3, lam=0.3)
    expected = ContinuousDoubleGreedy(rounding="randomized").select(problem, 4).indices
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    again = ContinuousDoubleGreedy(rounding="randomized").select(problem.replace(), 4).indices
    assert again == expected


def test_settings_that_do_not_exist_are_refused() -> None:
    problem = SelectionProblem(np.eye(4), m=2, k=1)
    with pytest.raises(InputError, match="rounding"):
        ContinuousDoubleGreedy(rounding="nearest").select(problem)
    with pytest.raises(InputError, match="steps"):
        ContinuousDoubleGreedy(steps=0).select(problem)
