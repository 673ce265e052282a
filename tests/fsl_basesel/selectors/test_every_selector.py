"""One tester for every selector: exact cardinality, B_s respected, exact values, one seed."""

from __future__ import annotations

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.selectors import selector_class
from tests.fsl_basesel.enumeration import optimum, plain_value, random_problem

SELECTORS = {name: selector_class(name)() for name in fb.methods()} | {
    "randomized rounding": fb.ContinuousDoubleGreedy(rounding="randomized"),
    "swaps after random": fb.WithSwaps(fb.RandomSelection()),
    "swaps after Alg. 4": fb.WithSwaps(fb.ContinuousDoubleGreedy()),
}


@pytest.fixture(params=SELECTORS)
def selector(request: pytest.FixtureRequest) -> fb.Selector:
    return SELECTORS[request.param]


def check(problem: fb.SelectionProblem, selection: fb.Selection) -> None:
    """What must hold of any selection of any problem."""
    assert len(selection.indices) == problem.m == len(set(selection.indices))
    assert not set(selection.indices) & set(problem.selected)
    names = ("m", "k", "lam", "selected", "cost", "mu")
    value = plain_value(
        problem.similarity,
        tuple(selection.indices),
        **{name: getattr(problem, name) for name in names},
    )
    assert selection.value == pytest.approx(value, abs=1e-12)


def test_two_hundred_small_instances_against_enumeration(selector: fb.Selector) -> None:
    for seed in range(200):
        problem = random_problem(seed, general=seed % 7 == 0, signed=seed % 3 == 0)
        best = optimum(problem)
        selection = selector.select(problem, seed)
        check(problem, selection)
        assert selection.value <= best + 1e-12
        certificate = fb.certify(problem, selection.indices)
        assert certificate.upper_bound >= best - 1e-12
        assert certificate.gap >= 0.0
        if selection.upper_bound is not None:
            assert selection.upper_bound >= best - 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_same_seed_same_answer(selector: fb.Selector, seed: int) -> None:
    problem = random_problem(seed, m=3, selected=[1])
    assert selector.select(problem, seed).indices == selector.select(problem, seed).indices


EDGES = {
    "none asked for": {"m": 0},
    "all asked for": {"m": 6},
    "all but one": {"m": 5},
    "one": {"m": 1},
    "k larger than the pool": {"m": 3, "k": 20},
    "everything already selected": {"m": 0, "selected": range(6)},
    "one left to choose": {"m": 1, "selected": range(5)},
    "strong diversity": {"m": 3, "lam": 10.0},
    "cost dominates": {"m": 3, "cost": range(6), "mu": 5.0},
    "negative cost": {"m": 3, "cost": [-1, 0, 1, 0, 0, 0], "mu": 1.0},
}


@pytest.mark.parametrize("case", EDGES)
@pytest.mark.parametrize("kind", ["random", "duplicates", "constant", "signed", "one novel class"])
def test_edges(selector: fb.Selector, case: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    candidates = rng.random((6, 4))
    if kind == "duplicates":
        candidates = candidates[[0, 0, 0, 1, 1, 2]]
    if kind == "constant":
        candidates = np.ones((6, 4))
    if kind == "signed":
        candidates = candidates - 0.5
    novel = rng.random((1 if kind == "one novel class" else 5, 4))
    problem = fb.SelectionProblem.from_centroids(candidates, novel, **({"k": 2} | EDGES[case]))
    selection = selector.select(problem, 0)
    check(problem, selection)
    best = optimum(problem)
    assert selection.value <= best + 1e-12
    assert fb.certify(problem, selection.indices).upper_bound >= best - 1e-12


def test_ties_go_to_the_lowest_index() -> None:
    problem = fb.SelectionProblem(np.full((3, 5), 0.5), m=3, k=1)
    for method in ("greedy-novel", "greedy-target", "dual", "auto"):
        assert fb.select(problem, method).indices == [0, 1, 2], method


def test_methods_that_need_centroids_say_so() -> None:
    problem = fb.SelectionProblem(np.eye(3), m=1, k=1)
    for method in ("domsim", "kmedoids"):
        with pytest.raises(fb.InputError, match=f"from_centroids` for method '{method}'"):
            fb.select(problem, method)


def test_unknown_method_and_bad_settings_are_refused() -> None:
    problem = fb.SelectionProblem(np.eye(3), m=1, k=1)
    with pytest.raises(fb.InputError, match=r"`method` to be one of auto, paper.*got 'best'"):
        fb.select(problem, "best")
    with pytest.raises(fb.InputError, match=r"`method` to be one of .* got \['auto'\]"):
        fb.select(problem, ["auto"])  # type: ignore[arg-type]
    with pytest.raises(fb.InputError, match=r"`seed` .*-1"):
        fb.select(problem, seed=-1)
    with pytest.raises(fb.InputError, match="`gap` to be finite and at least 0"):
        fb.LagrangianDual(gap=-1.0).select(problem)


def test_every_selector_states_its_contract() -> None:
    problem = fb.SelectionProblem.from_centroids(np.eye(3), m=1, k=1, similarity="cosine")
    for name in fb.methods():
        selector = selector_class(name)
        assert fb.select(problem, selector()).method == name
        assert selector.guarantee
        assert selector.__doc__


def test_domain_similarity_ranks_by_cosine_to_the_mean() -> None:
    rng = np.random.default_rng(0)
    candidates, novel = rng.standard_normal((30, 5)), rng.standard_normal((8, 5))
    problem = fb.SelectionProblem.from_centroids(candidates, novel, m=6)
    centre = novel.mean(0)
    cosine = candidates @ centre / np.linalg.norm(candidates, axis=1)
    assert fb.select(problem, "domsim").indices == np.argsort(-cosine)[:6].tolist()


def test_kmedoids_beats_random_medoids_on_its_own_objective() -> None:
    rng = np.random.default_rng(0)
    candidates = rng.random((40, 5))
    problem = fb.SelectionProblem.from_centroids(candidates, m=5, k=1)
    spread = fb.select(problem, "kmedoids", certify=False)
    # With K = 1 in General Selection the objective is 1 - the mean distance to the nearest medoid.
    for seed in range(20):
        assert spread.value >= fb.select(problem, "random", seed, certify=False).value
