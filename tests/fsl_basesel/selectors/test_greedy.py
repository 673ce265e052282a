"""Algorithms 1 and 2: equal to plain greedy, and to an independent library."""

from __future__ import annotations

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.selectors.greedy import greedy
from tests.fsl_basesel.enumeration import greedy_after, optimum, random_problem


def clustered(
    seed: int, n_novel: int, n_candidates: int, **settings: object
) -> fb.SelectionProblem:
    rng = np.random.default_rng(seed)
    centres = np.abs(rng.standard_normal((12, 16)))
    draw = lambda count: np.maximum(  # noqa: E731
        0, centres[rng.integers(0, 12, count)] + 0.5 * rng.standard_normal((count, 16))
    ).astype(np.float32)
    return fb.SelectionProblem.from_centroids(draw(n_candidates), draw(n_novel), **settings)  # type: ignore[arg-type]


def plain_greedy(problem: fb.SelectionProblem) -> list[int]:
    """Algorithm 2 word for word, and the rule for objectives that are used up."""
    return greedy_after(problem, [], problem.m)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("lam", [0.0, 0.3])
@pytest.mark.parametrize("m", [1, 30, 80])
def test_lazy_evaluation_picks_like_plain_greedy(k: int, lam: float, m: int) -> None:
    problem = clustered(k * m, 40, 80, m=m, k=k, lam=lam)
    expected = plain_greedy(problem)
    assert greedy(problem).tolist() == expected


@pytest.mark.parametrize("seed", range(40))
def test_exact_ties_are_broken_like_in_plain_greedy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Few different values: ties everywhere, gains that reach zero, duplicate columns.
    similarity = rng.integers(0, 4, (9, 30)) / 10
    problem = fb.SelectionProblem(similarity, m=25, k=int(rng.integers(1, 4)), selected=[3])
    assert greedy(problem).tolist() == plain_greedy(problem)


@pytest.mark.parametrize("seed", range(3))
def test_equals_submodlib_pick_for_pick_while_gains_are_positive(seed: int) -> None:
    submodlib = pytest.importorskip("submodlib", reason="submodlib-py has no wheel for this Python")
    problem = clustered(seed, 60, 200, m=120, k=1)
    similarity = np.ascontiguousarray(problem.similarity)
    function = submodlib.FacilityLocationFunction(
        n=200, mode="dense", separate_rep=True, n_rep=60, sijs=similarity
    )
    theirs = function.maximize(
        budget=120, optimizer="LazyGreedy", stopIfZeroGain=False, show_progress=False
    )
    ours = fb.GreedyOnTarget().select(problem)
    gains = [row.gain for row in ours.explain().chosen]
    positive = sum(gain > 1e-7 for gain in gains)  # submodlib works in float32
    assert positive > 20
    assert [pick for pick, _ in theirs][:positive] == ours.indices[:positive]


@pytest.mark.parametrize("seed", range(60))
def test_greedy_on_novel_class_is_optimal_where_theorem_1_applies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_novel, k = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    similarity = rng.random((n_novel, 8)) if seed % 2 else rng.integers(0, 3, (n_novel, 8)) / 2
    problem = fb.SelectionProblem(similarity, m=min(8, k * n_novel + seed % 2), k=k)
    assert fb.select(problem, "greedy-novel").value == pytest.approx(optimum(problem), abs=1e-12)


def literal_algorithm_1(problem: fb.SelectionProblem) -> list[int]:
    similarity = problem.similarity
    free, waiting, picks = set(problem.unselected.tolist()), set(), []
    for _ in range(problem.m):
        waiting = waiting or set(range(problem.n_novel))
        u, n = min(
            ((u, n) for u in free for n in waiting),
            key=lambda pair: (-similarity[pair[1], pair[0]], pair[0], pair[1]),
        )
        picks.append(u)
        free.remove(u)
        waiting.remove(n)
    return picks


@pytest.mark.parametrize("seed", range(30))
def test_greedy_on_novel_class_follows_the_printed_algorithm(seed: int) -> None:
    problem = random_problem(seed)
    assert fb.GreedyOnNovelClass().select(problem).indices == literal_algorithm_1(problem)


def test_greedy_on_novel_class_looks_again_when_remembered_columns_run_out() -> None:
    # All rows want the same columns in the same order, so every row's list is used up many times.
    similarity = np.tile(np.linspace(1.0, 0.1, 100), (7, 1))
    problem = fb.SelectionProblem(similarity, m=90, k=1)
    assert fb.GreedyOnNovelClass().select(problem).indices == list(range(90))
