"""Once no class adds anything at K, the next ones are those for K + 1, K + 2, ...; h stays."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.selectors import dual
from fsl_basesel.selectors.greedy import greedy_order, replace_unused
from tests.fsl_basesel.enumeration import greedy_after, optimum, random_problem

CERTIFYING = {"auto": fb.Auto(), "dual": fb.LagrangianDual()}


def used_up(seed: int, **settings: object) -> fb.SelectionProblem:
    """Few rows, many classes: random, signed, with duplicates, or with few different values."""
    rng = np.random.default_rng(seed)
    similarity = rng.standard_normal((int(rng.integers(1, 6)), 24))
    if seed % 4 == 1:
        similarity = np.abs(similarity)
    if seed % 4 == 2:
        similarity = similarity[:, rng.integers(0, 12, 24)]
    if seed % 4 == 3:
        similarity = rng.integers(0, 5, similarity.shape) / 4
    selected = rng.permutation(24)[: int(rng.integers(0, 4))].tolist()
    free = 24 - len(selected)
    chosen = {"m": int(rng.integers(6, free + 1)), "k": int(rng.integers(1, 3))}
    return fb.SelectionProblem(similarity, selected=selected, **(chosen | settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(60))
def test_greedy_goes_on_with_a_larger_k(seed: int) -> None:
    problem = used_up(seed)
    assert fb.GreedyOnTarget().select(problem).indices == greedy_after(problem, [], problem.m)


@pytest.mark.parametrize("seed", range(12))
def test_all_classes_asked_for_and_a_floor_of_ones_own(seed: int) -> None:
    problem = used_up(seed, floor=-7.5)
    problem = problem.replace(m=len(problem.unselected))
    picks = fb.GreedyOnTarget().select(problem).indices
    assert picks == greedy_after(problem, [], problem.m)
    assert sorted(picks) == problem.unselected.tolist()


def test_next_neighbours_come_before_lower_indices() -> None:
    problem = fb.SelectionProblem(
        [[0.1, 0.0, 0.6, 0.3, 0.9, 0.0], [0.1, 0.7, 0.0, 0.3, 0.0, 0.9]], m=5, k=1
    )
    # The nearest of both rows, then their second nearest, then the third.
    assert fb.GreedyOnTarget().select(problem).indices == [4, 5, 1, 2, 3]


def test_what_adds_nothing_at_any_k_goes_by_index() -> None:
    similarity = np.zeros((3, 6))
    similarity[:, 4] = 1.0
    problem = fb.SelectionProblem(similarity, m=4, k=2)
    assert fb.GreedyOnTarget().select(problem).indices == [4, 0, 1, 2]


@pytest.mark.parametrize("settings", [{"lam": 0.2}, {"cost": np.ones(24), "mu": 0.1}])
def test_with_a_price_of_their_own_classes_are_never_all_alike(settings: dict) -> None:
    for seed in range(8):
        problem = used_up(seed, **settings)
        picks: list[int] = []
        for _ in range(problem.m):
            picks.append(int(problem.gains(picks).argmax()))
        assert fb.GreedyOnTarget().select(problem).indices == picks
        assert replace_unused(problem, np.array(picks)).tolist() == picks


@pytest.mark.parametrize("method", CERTIFYING)
@pytest.mark.parametrize("seed", range(40))
def test_certified_sets_keep_what_is_needed_and_refill_the_rest(seed: int, method: str) -> None:
    problem = used_up(seed)
    selection = CERTIFYING[method].select(problem)
    base = [*problem.selected, *selection.indices]
    similarity = problem.similarity
    listed = {
        u
        for row in similarity
        for u in sorted(base, key=lambda u, row=row: (-row[u], u))[: problem.k]
    }
    needed = sorted(set(selection.indices) & listed)
    spare = sorted(set(selection.indices) - listed)
    assert selection.value == problem.value(needed)
    assert spare == sorted(greedy_after(problem, needed, len(spare)))
    assert selection.indices == in_greedy_order(problem, selection.indices)


def in_greedy_order(problem: fb.SelectionProblem, members: list[int]) -> list[int]:
    """The picks of plain greedy where no other classes than `members` exist."""
    columns = sorted([*problem.selected, *members])
    small = fb.SelectionProblem(
        problem.similarity[:, columns],
        m=len(members),
        k=problem.k,
        selected=[columns.index(u) for u in problem.selected],
        floor=problem.floor,
    )
    return [columns[u] for u in greedy_after(small, [], len(members))]


@pytest.mark.parametrize("method", CERTIFYING)
@pytest.mark.parametrize("seed", range(40))
def test_value_and_bound_are_what_they_were(
    seed: int, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = used_up(seed)
    filled = CERTIFYING[method].select(problem)
    monkeypatch.setattr(dual, "replace_unused", lambda problem, members: members)
    plain = CERTIFYING[method].select(problem.replace())
    assert (filled.value, filled.upper_bound) == (plain.value, plain.upper_bound)


@pytest.mark.parametrize("seed", range(60))
def test_refilling_any_set_never_lowers_its_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = used_up(seed)
    members = rng.permutation(problem.unselected)[: problem.m]
    filled = replace_unused(problem, members)
    assert len(set(filled.tolist())) == problem.m
    assert not set(filled.tolist()) & set(problem.selected)
    assert problem.value(filled) >= problem.value(members)


@pytest.mark.parametrize("method", ["greedy-target", "auto", "dual"])
@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_novel_classes_does_not_matter(seed: int, method: str) -> None:
    rng = np.random.default_rng(seed)
    similarity = rng.integers(0, 64, (8, 40)) / 64  # sums are exact in any order
    problem = fb.SelectionProblem(similarity, m=30, k=1, selected=[2])
    turned = fb.SelectionProblem(similarity[rng.permutation(8)], m=30, k=1, selected=[2])
    first, second = fb.select(problem, method), fb.select(turned, method)
    assert first.indices == second.indices
    assert first.value == second.value


@pytest.mark.parametrize("seed", range(20))
def test_greedy_order_is_that_of_greedy(seed: int) -> None:
    problem = used_up(seed)
    picks = fb.GreedyOnTarget().select(problem).indices
    assert greedy_order(problem, np.array(picks)) == picks


@pytest.mark.parametrize("seed", range(30))
def test_small_instances_are_still_optimal(seed: int) -> None:
    problem = random_problem(seed, lam=0.0, mu=0.0, k=1)
    selection = fb.select(problem)
    if selection.gap == 0:
        assert selection.value == pytest.approx(optimum(problem), abs=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_the_explanation_says_from_which_k_on_a_class_adds(seed: int) -> None:
    problem = used_up(seed)
    selection = fb.select(problem, "greedy-target", certify=False)
    for at, row in enumerate(selection.explain().chosen):
        before = selection.indices[:at]
        adds = [
            k
            for k in range(problem.k, problem.n_candidates + 1)
            if problem.replace(k=k).gains(before)[row.index] > 0
        ]
        assert row.adds_from == (adds[0] if adds else None)
        assert (row.gain > 0) == (row.adds_from == problem.k)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("levels", [4, 400])
def test_far_beyond_the_problems_k_greedy_is_still_plain_greedy(seed: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    similarity = rng.integers(0, levels, (7, 60)) / 16  # few levels: ties everywhere
    weights = rng.integers(0, 3, 7) if seed % 3 == 0 else None
    weights = None if weights is None or not weights.any() else weights
    problem = fb.SelectionProblem(similarity, m=55, k=2, selected=[3, 9], weights=weights)
    assert fb.GreedyOnTarget().select(problem).indices == greedy_after(problem, [], 55)
    limited = problem.replace(m=20, exclude=[5], groups=["a", "b", "c"] * 20, at_most=9)
    few = fb.GreedyOnTarget().select(limited).indices
    assert sorted(few) == sorted(plain_greedy_in_groups_of_nine(limited))


def plain_greedy_in_groups_of_nine(problem: fb.SelectionProblem) -> list[int]:
    """The largest gain of what fits, m times; K grows wherever nothing that fits gains."""
    picks: list[int] = []
    k = problem.k
    while len(picks) < problem.m:
        counts = np.bincount([u % 3 for u in (*problem.selected, *picks)], minlength=3)
        gains = problem.replace(k=k).gains(picks)
        gains[np.tile(counts == 9, 20)] = -np.inf
        gains[list(problem.exclude)] = -np.inf
        if gains.max() == 0 and k < problem.n_candidates:
            k += 1
        else:
            picks.append(int(gains.argmax()))
    return picks


def test_the_time_told_covers_reasons_and_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = fb.SelectionProblem(np.random.default_rng(0).random((10, 40)), m=40, k=3)
    clock = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    told = [fb.select(problem, "greedy-target", certify=own).seconds for own in (False, True)]
    assert told == [1.0, 2.0]  # the choice with its reasons; the certificate on top of it
