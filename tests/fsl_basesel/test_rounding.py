"""Pipage rounding: m classes, F never lowered, the same exchanges as with full gradients."""

from __future__ import annotations

import numpy as np
import pytest

from fsl_basesel import SelectionProblem, rounding
from fsl_basesel.errors import InputError
from fsl_basesel.rounding import pipage, randomized_pipage


def fractional_point(problem: SelectionProblem, rng: np.random.Generator) -> np.ndarray:
    """A random vector of sum m over B_u, some of it whole."""
    free = problem.unselected
    x = np.zeros(problem.n_candidates)
    x[free] = problem.m / len(free)
    for _ in range(3 * len(free)):
        p, q = rng.choice(free, 2)
        most = min(1 - x[p], x[q])
        step = most if rng.random() < 0.1 else most * rng.random()
        x[p] += step
        x[q] -= step
    return np.clip(x, 0.0, 1.0)


def instance(seed: int) -> tuple[SelectionProblem, np.ndarray]:
    """A problem of any kind with a point to round."""
    rng = np.random.default_rng(seed)
    n_candidates, n_novel = int(rng.integers(2, 50)), int(rng.integers(1, 60))
    matrix = rng.random((n_novel, n_candidates))
    if seed % 3 == 1:
        matrix = rng.standard_normal((n_novel, n_candidates))
    if seed % 4 == 2:  # duplicates and ties
        matrix = matrix.round(1)
        matrix[:, : n_candidates // 2] = matrix[:, n_candidates - n_candidates // 2 :]
    selected = rng.permutation(n_candidates)[: int(rng.integers(0, n_candidates // 2 + 1))]
    settings = {
        "m": int(rng.integers(0, n_candidates - len(selected) + 1)),
        "k": int(rng.integers(1, 9)),
        "lam": float(rng.choice([0.0, 0.2, 0.7])),
        "selected": selected.tolist(),
        "cost": rng.random(n_candidates),
        "mu": float(rng.choice([0.0, 0.01])),
    }
    if not settings["mu"]:
        settings["cost"] = None
    problem = SelectionProblem(matrix, **settings)
    return problem, fractional_point(problem, rng)


def plain_pipage(problem: SelectionProblem, x: np.ndarray) -> tuple[list[int], list[float]]:
    """Pipage with a full gradient before every exchange; also F after each."""
    x = x.copy()
    open_ = [u for u in problem.unselected if 1e-9 <= x[u] <= 1 - 1e-9]
    gradient = problem.gradient(x, backend="reference")
    queue = sorted(open_, key=lambda u: (-gradient[u], u))
    values = [problem.multilinear(x, backend="reference")]
    while len(queue) > 1:
        p, q = queue[0], queue[-1]
        gradient = problem.gradient(x, backend="reference")
        difference = gradient[p] - gradient[q]
        if abs(difference) < 1e-12:
            difference = q - p
        up, down = (p, q) if difference > 0 else (q, p)
        step = min(1 - x[up], x[down])
        x[up], x[down] = x[up] + step, x[down] - step
        for u in (p, q):
            if min(x[u], 1 - x[u]) < 1e-9:
                x[u] = round(x[u])
                queue.remove(u)
        values.append(problem.multilinear(x, backend="reference"))
    chosen = sorted(problem.unselected, key=lambda u: (-x[u], u))[: problem.m]
    return sorted(int(u) for u in chosen), values


@pytest.mark.parametrize("seed", range(40))
def test_never_lowers_the_objective(seed: int) -> None:
    problem, x = instance(seed)
    chosen = pipage(problem, x)
    assert len(set(chosen.tolist())) == len(chosen) == problem.m
    assert not problem.is_selected[chosen].any()
    assert problem.value(chosen.tolist()) >= problem.multilinear(x) - 1e-11


@pytest.mark.parametrize("seed", range(30))
def test_makes_the_exchanges_of_full_gradients(seed: int) -> None:
    problem, x = instance(seed)
    chosen, values = plain_pipage(problem, x)
    assert min(np.diff(values), default=0.0) > -1e-12
    # Which of two classes that are worth the same is kept depends on the last bit.
    assert problem.value(pipage(problem, x).tolist()) == pytest.approx(values[-1], abs=1e-11)
    if seed % 4 != 2:
        assert pipage(problem, x).tolist() == chosen


@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_lists_that_become_too_short_are_made_longer(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, x = instance(seed)
    expected = pipage(problem, x)
    monkeypatch.setattr(rounding, "SLACK", 1e-3)
    assert pipage(problem, x).tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(25))
def test_many_exchanges_on_one_gradient_never_lower_the_objective(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounding, "LONG", 0.0)
    monkeypatch.setattr(rounding, "SHARE", 0.5)
    problem, x = instance(seed)
    chosen = pipage(problem, x)
    assert len(set(chosen.tolist())) == problem.m
    assert problem.value(chosen.tolist()) >= problem.multilinear(x) - 1e-11


@pytest.mark.parametrize("seed", range(6))
def test_whole_vectors_stay(seed: int) -> None:
    problem, _ = instance(seed)
    rng = np.random.default_rng(seed)
    members = np.sort(rng.permutation(problem.unselected)[: problem.m])
    x = np.zeros(problem.n_candidates)
    x[members] = 1.0
    assert pipage(problem, x).tolist() == members.tolist()
    assert randomized_pipage(problem, x, rng).tolist() == members.tolist()


def test_random_rounding_keeps_every_probability() -> None:
    rng = np.random.default_rng(0)
    problem = SelectionProblem(rng.random((30, 12)), m=5, k=2, lam=0.3, selected=[3])
    x = fractional_point(problem, rng)
    draws = 4000
    hits, value = np.zeros(12), 0.0
    for _ in range(draws):
        chosen = randomized_pipage(problem, x, rng)
        assert len(set(chosen.tolist())) == 5
        hits[chosen] += 1
        value += problem.value(chosen.tolist()) / draws
    assert np.abs(hits / draws - x).max() < 5 * 0.5 / draws**0.5
    assert value > problem.multilinear(x) - 0.01


def test_random_rounding_is_a_function_of_the_seed() -> None:
    problem, x = instance(7)
    first, second = (randomized_pipage(problem, x, np.random.default_rng(1)) for _ in range(2))
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize("rounded", [pipage, randomized_pipage])
def test_a_vector_that_does_not_sum_to_m_is_refused(rounded: object) -> None:
    problem = SelectionProblem(np.eye(4), m=2, k=1)
    rest = (np.random.default_rng(0),) if rounded is randomized_pipage else ()
    with pytest.raises(InputError, match="m = 2"):
        rounded(problem, np.full(4, 0.1), *rest)
