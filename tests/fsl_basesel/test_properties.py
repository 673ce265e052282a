"""Invariants on instances that hypothesis makes up; entries are dyadic, so sums are exact."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fsl_basesel as fb

EVERY = tuple(name for name in fb.methods() if name not in ("domsim", "kmedoids"))


@st.composite
def problems(draw: st.DrawFn, lam: st.SearchStrategy[float] | None = None) -> fb.SelectionProblem:
    n_novel, n_candidates = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    low = draw(st.sampled_from([0, -16]))
    entries = draw(
        st.lists(
            st.integers(low, 16),
            min_size=n_novel * n_candidates,
            max_size=n_novel * n_candidates,
        )
    )
    selected = draw(st.sets(st.integers(0, n_candidates - 1), max_size=3))
    return fb.SelectionProblem(
        np.array(entries, float).reshape(n_novel, n_candidates) / 16,
        m=draw(st.integers(0, n_candidates - len(selected))),
        k=draw(st.integers(1, 4)),
        lam=draw(lam if lam is not None else st.sampled_from([0.0, 0.5])),
        selected=sorted(selected),
    )


@given(problems(), st.data())
def test_submodular(problem: fb.SelectionProblem, data: st.DataObject) -> None:
    free = problem.unselected.tolist()
    large = data.draw(st.sets(st.sampled_from(free))) if free else set()
    small = data.draw(st.sets(st.sampled_from(sorted(large)))) if large else set()
    few, many = problem.gains(small), problem.gains(large)
    outside = [u for u in free if u not in large]
    assert (few[outside] >= many[outside] - 1e-12).all()


@given(problems(lam=st.just(0.0)), st.data())
def test_monotone_without_diversity_term(problem: fb.SelectionProblem, data: st.DataObject) -> None:
    free = problem.unselected.tolist()
    chosen = data.draw(st.sets(st.sampled_from(free))) if free else set()
    gains = problem.gains(chosen)
    assert (gains[gains > -np.inf] >= 0).all()


# lam = 0: with it, equal gains are equal in exact arithmetic only, and rounding may order them.
@given(problems(lam=st.just(0.0)), st.integers(1, 5))
@pytest.mark.parametrize("method", ["greedy-novel", "greedy-target"])
def test_picks_do_not_depend_on_the_floor(
    method: str, problem: fb.SelectionProblem, below: int
) -> None:
    lower = problem.replace(floor=problem.floor - below)
    assert fb.select(lower, method).indices == fb.select(problem, method).indices


@given(problems(), st.randoms(use_true_random=False))
def test_picks_do_not_depend_on_the_order_of_the_rows(
    problem: fb.SelectionProblem, random: Random
) -> None:
    rows = list(range(problem.n_novel))
    random.shuffle(rows)
    shuffled = fb.SelectionProblem(
        problem.similarity[rows],
        m=problem.m,
        k=problem.k,
        lam=problem.lam,
        selected=problem.selected,
    )
    picks = fb.select(problem, "greedy-target").indices
    assert fb.select(shuffled, "greedy-target").indices == picks


@given(problems(), st.integers(0, 3))
@pytest.mark.parametrize("method", EVERY)
def test_exactly_m_and_never_what_is_already_in(
    method: str, problem: fb.SelectionProblem, seed: int
) -> None:
    selection = fb.select(problem, method, seed)
    assert len(set(selection.indices)) == len(selection.indices) == problem.m
    assert not set(selection.indices) & set(problem.selected)
    assert selection.value <= selection.upper_bound + 1e-12


@given(problems(), st.data())
def test_gains_are_differences_of_values(problem: fb.SelectionProblem, data: st.DataObject) -> None:
    free = problem.unselected.tolist()
    chosen = data.draw(st.sets(st.sampled_from(free))) if free else set()
    gains = problem.gains(chosen)
    for u in set(free) - chosen:
        difference = problem.value([*chosen, u]) - problem.value(chosen)
        assert float(gains[u]) == pytest.approx(difference, abs=1e-12)
