"""Controls: sets that look at no similarity, and what they are worth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fsl_basesel as fb
from fsl_basesel.controls import (
    controls,
    doubts,
    even_counts,
    random_set,
    random_set_with_images,
    standing,
    task_domain,
)
from fsl_basesel.errors import InputError
from fsl_basesel.selectors.base import seeded

RNG = np.random.default_rng(0)
PROBLEM = fb.SelectionProblem(RNG.random((5, 12)), m=3, k=2, selected=[4])
GROUPS = ["a"] * 5 + ["b"] * 7


def test_random_sets_have_the_mean_of_all_sets_and_never_beat_the_best() -> None:
    free = PROBLEM.unselected.tolist()
    values = [PROBLEM.value(chosen) for chosen in itertools.combinations(free, 3)]
    random = controls(PROBLEM, draws=3000)[0]
    assert random.kind == "random"
    assert random.size == 4
    assert len(random.values) == 3000
    assert random.mean == pytest.approx(np.mean(values), abs=0.005)
    assert random.best == pytest.approx(max(values))


def test_the_domain_is_drawn_first_and_filled_up_where_it_is_small() -> None:
    inside = task_domain(PROBLEM, GROUPS, ["a", "a", None])
    assert inside is not None
    for seed in range(20):
        assert set(random_set(PROBLEM, seeded(seed), inside)) <= {0, 1, 2, 3}
        more = set(random_set(PROBLEM.replace(m=6), seeded(seed), inside))
        assert {0, 1, 2, 3} < more
        assert len(more) == 6
        assert 4 not in more
        alike = random_set(PROBLEM, seeded(seed))
        assert alike == fb.select(PROBLEM, "random", seed, certify=False).indices
    drawn = {tuple(random_set(PROBLEM, seeded(seed))) for seed in range(20)}
    assert len(drawn) == 20


def test_the_title_tells_how_much_of_a_set_is_inside_the_domain() -> None:
    for changes, words in (
        ({"m": 4}, "inside the task's domain"),
        ({"m": 5}, "that take the task's domain first (80% of their classes)"),
        ({"m": 3, "groups": GROUPS, "at_most": 2}, "33% of"),  # class 4 is in already
        ({"m": 2, "include": [7]}, "50% of"),
        ({"m": 4, "budget": 4.0, "cost": [3.0] * 5 + [1.0] * 7}, "50% of"),
    ):
        domain = controls(PROBLEM.replace(**changes), GROUPS, ["a"], draws=2)[1]
        assert words in domain.title


def test_the_whole_pool_is_every_candidate() -> None:
    pool = controls(PROBLEM)[-1]
    best = np.sort(PROBLEM.by_candidate.T, axis=1)[:, -2:].mean()
    assert (pool.kind, pool.size, pool.best) == ("pool", 12, pytest.approx(best))
    kept = controls(PROBLEM.replace(exclude=[3, 5], selected=[0]))[-1]
    assert kept.title == "all 10 classes of the pool"


def test_which_controls_there_are_depends_on_what_is_known() -> None:
    kinds = [one.kind for one in controls(PROBLEM, GROUPS, ["b"], draws=2)]
    assert kinds == ["random", "domain", "pool"]
    for groups, novel in ((None, ["b"]), (GROUPS, None), (GROUPS, ["c"]), (["a"] * 12, ["a"])):
        assert [one.kind for one in controls(PROBLEM, groups, novel, 2)] == ["random", "pool"]


def test_the_same_seed_gives_the_same_sets_and_wrong_numbers_are_refused() -> None:
    assert controls(PROBLEM, draws=5, seed=3) == controls(PROBLEM, draws=5, seed=3)
    assert controls(PROBLEM, draws=5, seed=3) != controls(PROBLEM, draws=5, seed=4)
    with pytest.raises(InputError, match="`draws` to be at least 1"):
        controls(PROBLEM, draws=0)


def test_the_standing_is_nought_at_the_mean_of_random_sets_and_one_at_the_bound() -> None:
    random = controls(PROBLEM)[0]
    selection = fb.select(PROBLEM)
    assert selection.upper_bound is not None
    assert standing(random.mean, selection.upper_bound, random) == 0
    assert standing(selection.upper_bound, selection.upper_bound, random) == 1
    assert 0 < standing(random.best, selection.upper_bound, random) <= 1
    assert standing(0.5, None, random) is None
    assert standing(0.5, random.mean, random) is None


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(0, 400), st.integers(0, 9)
)
def test_images_are_taken_as_evenly_as_classes_allow(
    sizes: list[int], images: int, more: int
) -> None:
    if images < len(sizes):
        with pytest.raises(InputError, match="at least one image of each class but got"):
            even_counts(sizes, images)
        return
    counts = even_counts(sizes, images)
    assert counts.sum() == min(images, sum(sizes))
    assert all(1 <= count <= size for count, size in zip(counts, sizes, strict=True))
    # Who gives fewer than another by two or more has no more to give.
    short = counts < counts.max() - 1
    assert (counts[short] == np.array(sizes)[short]).all()
    assert (even_counts(sizes, images + more) >= counts).all()


def test_random_sets_have_enough_images_if_one_can_be_drawn() -> None:
    sizes = np.array([1, 1, 1, 1, 50, 1, 1, 9, 9, 9, 1, 1])
    first = fb.select(PROBLEM, "random", 5, certify=False).indices
    assert random_set_with_images(PROBLEM, sizes, 3, 5) == first
    for seed in range(20):
        drawn = random_set_with_images(PROBLEM, sizes, 50 + 9 + 2, seed)  # class 4 is in already
        assert 9 + 2 <= sizes[drawn].sum() <= 27
        assert 4 not in drawn
    assert any(
        random_set_with_images(PROBLEM, sizes, 61, seed)
        != fb.select(PROBLEM, "random", seed, certify=False).indices
        for seed in range(20)
    )
    most = random_set_with_images(PROBLEM, sizes, 1000, 0, draws=2000)
    assert set(most) == {7, 8, 9}
    sizes[:3] = 0, -1, 0
    drawn = [random_set_with_images(PROBLEM, sizes, 3, seed) for seed in range(20)]
    assert not {0, 1, 2} & set().union(*drawn)


def doubts_about(similarity: np.ndarray, trained: bool = True, **settings: int) -> str:
    problem = fb.SelectionProblem(similarity, **settings)
    return " / ".join(doubts(problem, fb.select(problem), controls(problem)[0], trained))


def test_a_sound_choice_raises_no_doubts() -> None:
    assert doubts_about(RNG.random((20, 60)), m=10, k=1) == ""


def test_doubts_say_what_is_wrong_and_what_to_do() -> None:
    alike = 0.99 + 0.01 * RNG.random((20, 60))
    assert "similarities hardly differ: random choices reach 99" in doubts_about(alike, m=5, k=3)
    signed = 0.2 + 0.3 * RNG.random((20, 60))
    assert "hardly differ" not in doubts_about(signed, m=5, k=3)
    signed[:, 0] = -10.0  # far below: the others are alike, counted from this floor
    assert "hardly differ" in doubts_about(signed, m=5, k=3)
    hub = RNG.random((20, 60))
    hub[:, 7] += 1
    assert "'7' is the nearest base class of 20 of the 20" in doubts_about(hub, m=5, k=1)
    assert "nearest base class" not in doubts_about(hub[:9], m=5, k=1)
    assert "k = 9 is more than the 5 base classes" in doubts_about(RNG.random((20, 60)), m=5, k=9)
    assert "random weights" in doubts_about(RNG.random((20, 60)), trained=False, m=5, k=1)
