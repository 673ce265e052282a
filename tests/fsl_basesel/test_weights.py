"""Weights of novel classes: against enumeration, and against rows that are repeated."""

from __future__ import annotations

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.selectors.paper_rule import recommended
from tests.fsl_basesel.enumeration import all_choices, plain_value

METHODS = tuple(name for name in fb.methods() if name not in ("domsim", "kmedoids"))


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, dict]:
    """A matrix, whole weights and settings."""
    rng = np.random.default_rng(seed)
    novel, candidates = int(rng.integers(2, 7)), int(rng.integers(4, 9))
    similarity = rng.random((novel, candidates)) - (0.5 if seed % 2 else 0.0)
    weights = rng.integers(0, 4, novel)
    weights[rng.integers(novel)] = 2
    settings = {
        "m": int(rng.integers(1, candidates)),
        "k": int(rng.integers(1, 4)),
        "lam": float(rng.choice([0.0, 0.3])),
        "cost": rng.random(candidates),
        "mu": float(rng.choice([0.0, 0.1])),
        "floor": -0.5 if seed % 2 else 0.0,
    }
    if not settings["mu"]:
        settings["cost"] = None
    return similarity, weights, settings


@pytest.mark.parametrize("seed", range(24))
def test_weights_count_like_repeated_rows(seed: int) -> None:
    similarity, weights, settings = drawn(seed)
    weighted = fb.SelectionProblem(similarity, weights=weights, **settings)
    repeated = fb.SelectionProblem(np.repeat(similarity, weights, axis=0), **settings)
    rows = np.repeat(np.arange(len(similarity)), weights)
    x = np.random.default_rng(seed).random(similarity.shape[1])
    assert np.allclose(weighted.column_means, repeated.column_means, rtol=0, atol=1e-14)
    assert np.allclose(weighted.gradient(x), repeated.gradient(x), rtol=0, atol=1e-13)
    assert weighted.multilinear(x) == pytest.approx(repeated.multilinear(x), abs=1e-13)
    choices = all_choices(weighted)
    for choice in choices[:: max(1, len(choices) // 5)]:
        assert weighted.value(choice) == pytest.approx(repeated.value(choice), abs=1e-13)
        assert np.allclose(weighted.gains(choice), repeated.gains(choice), rtol=0, atol=1e-13)
        ratio = weighted.similarity_ratio(choice)[rows]
        assert np.allclose(ratio, repeated.similarity_ratio(choice), equal_nan=True)
    for method in METHODS:
        ours, theirs = fb.select(weighted, method, seed), fb.select(repeated, method, seed)
        if recommended(weighted).name == "greedy-novel" and method in ("greedy-novel", "paper"):
            continue  # its novel classes take turns, and a repeated one has more of them
        if method != "greedy-novel":
            assert ours.value == pytest.approx(theirs.value, abs=1e-12), method
            assert ours.upper_bound == pytest.approx(theirs.upper_bound, abs=1e-12), method
        again = fb.Selection.of(repeated, ours.indices, method="same")
        for one, two in zip(ours.explain().chosen, again.explain().chosen, strict=True):
            assert (one.gain, one.loss) == pytest.approx((two.gain, two.loss), abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_novel_classes_of_weight_zero_are_as_if_they_were_not_there(method: str) -> None:
    similarity = np.random.default_rng(4).random((6, 12))
    settings: dict = {"m": 9, "k": 1, "floor": 0.0}  # used up, so that others follow by larger K
    weighted = fb.SelectionProblem(similarity, weights=[1, 0, 1, 0, 0, 1], **settings)
    without = fb.SelectionProblem(similarity[[0, 2, 5]], **settings)
    ours, theirs = fb.select(weighted, method), fb.select(without, method)
    assert ours.indices == theirs.indices
    chosen = [(row.gain, row.adds_from) for row in ours.explain().chosen]
    assert chosen == [
        (pytest.approx(row.gain, abs=1e-12), row.adds_from) for row in theirs.explain().chosen
    ]


def test_in_general_selection_the_weights_are_those_of_the_candidates() -> None:
    pool = fb.ClassCentroids(np.eye(4) + 0.1, weights=[0, 0, 1, 1])
    assert fb.SelectionProblem.from_centroids(pool, m=1, k=1).weights.tolist() == [0, 0, 0.5, 0.5]
    task = fb.ClassCentroids(np.eye(4)[:2])
    assert fb.SelectionProblem.from_centroids(pool, task, m=1, k=1).weights is None


@pytest.mark.parametrize("seed", range(40))
def test_weighted_bounds_and_values_hold_against_enumeration(seed: int) -> None:
    similarity, weights, settings = drawn(1000 + seed)
    problem = fb.SelectionProblem(similarity, weights=weights, **settings)
    best = max(problem.value(choice) for choice in all_choices(problem))
    share = weights / weights.sum()
    for method in METHODS:
        selection = fb.select(problem, method, seed)
        rows = [
            plain_value(similarity[[n]], tuple(selection.indices), **settings | {"mu": 0.0})
            for n in range(len(similarity))
        ]
        cost = settings["cost"]
        price = 0.0 if cost is None else settings["mu"] * cost[selection.indices].sum()
        assert selection.value == pytest.approx(float(share @ rows) - price, abs=1e-12), method
        assert selection.value <= best + 1e-12
        assert selection.upper_bound is not None
        assert selection.upper_bound >= best - 1e-12, method
        if selection.gap == 0:
            assert selection.value >= best - 1e-12, method
    swapped = fb.WithSwaps(fb.RandomSelection()).select(problem, seed)
    assert swapped.value >= fb.RandomSelection().select(problem, seed).value


def test_only_ratios_matter_and_equal_weights_change_nothing() -> None:
    similarity, weights, settings = drawn(3)
    problem = fb.SelectionProblem(similarity, weights=weights, **settings)
    assert problem.weights is not None
    assert problem.weights.sum() == pytest.approx(1.0)
    more = problem.replace(weights=weights * 8.0)
    plain = problem.replace(weights=None)
    equal = problem.replace(weights=np.full(len(similarity), 4.0))
    for method in METHODS:
        assert fb.select(more, method).indices == fb.select(problem, method).indices
        one, two = fb.select(plain, method), fb.select(equal, method)
        assert (one.indices, one.value, one.upper_bound) == (
            two.indices,
            two.value,
            two.upper_bound,
        )


def test_domain_similarity_takes_the_weighted_mean() -> None:
    rng = np.random.default_rng(0)
    candidates, novel = rng.standard_normal((30, 5)), rng.standard_normal((4, 5))
    problem = fb.SelectionProblem.from_centroids(candidates, novel, m=6, weights=[3, 1, 0, 0])
    centre = np.array([0.75, 0.25, 0.0, 0.0]) @ novel
    cosine = candidates @ centre / np.linalg.norm(candidates, axis=1)
    assert fb.select(problem, "domsim").indices == np.argsort(-cosine)[:6].tolist()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -1], "got -1.0 for novel class 1"),
        ([1, np.nan], "got nan for novel class 1"),
        ([0, 0], "finite sum above 0 but it is 0.0"),
        ([1], r"got int64 of shape \(1,\)"),
        (["a", "b"], "`weights` to be 2 finite numbers of at least 0, one for each novel class"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(weights: list, message: str) -> None:
    with pytest.raises(fb.InputError, match=message):
        fb.SelectionProblem(np.eye(2), m=1, k=1, weights=weights)
