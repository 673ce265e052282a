"""Budgets, classes that must or cannot be in, groups: against enumeration of all allowed sets."""

from __future__ import annotations

from itertools import chain, combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.problem import ROUNDING

SERVING = {
    "auto": fb.Auto(),
    "dual": fb.LagrangianDual(),
    "greedy-target": fb.GreedyOnTarget(),
    "random": fb.RandomSelection(),
    "swaps after random": fb.WithSwaps(fb.RandomSelection()),
}


def allowed_sets(problem: fb.SelectionProblem) -> list[tuple[int, ...]]:
    """Every choice that keeps to all limits, by their definitions."""
    free = [u for u in range(problem.n_candidates) if u not in problem.selected + problem.exclude]
    sizes = [problem.m] if problem.budget is None else range(min(problem.m, len(free)) + 1)
    found = []
    cost = np.ones(problem.n_candidates) if problem.cost is None else problem.cost
    for choice in chain.from_iterable(combinations(free, size) for size in sizes):
        if not set(problem.include) <= set(choice):
            continue
        if problem.budget is not None and cost[list(choice)].sum() > problem.budget * (1 + 1e-12):
            continue
        base = [*problem.selected, *choice]
        ok = True
        for label in set(problem.groups or ()) - {None}:
            inside = [u for u in base if problem.groups[u] == label]  # type: ignore[index]
            before = sum(problem.groups[u] == label for u in problem.selected)  # type: ignore[index]
            most, least = (
                _of(given, label, other)
                for given, other in ((problem.at_most, 99), (problem.at_least, 0))
            )
            ok &= max(least, 0) <= len(inside) <= max(most, before)
        if ok:
            found.append(choice)
    return found


def _of(given: int | dict | None, label: str, otherwise: int) -> int:
    if isinstance(given, dict):
        return given.get(label, otherwise)
    return otherwise if given is None else given


def limited(seed: int) -> fb.SelectionProblem | None:
    """A small problem with some of all limits, None if no choice keeps to them."""
    rng = np.random.default_rng(seed)
    n, b = int(rng.integers(1, 7)), int(rng.integers(4, 10))
    columns = rng.permutation(b).tolist()
    take = lambda most: [columns.pop() for _ in range(int(rng.integers(0, most)))]  # noqa: E731
    selected, exclude, include = take(3), take(2), take(2)
    settings: dict = {"selected": selected, "exclude": exclude, "include": include}
    lam = float(rng.choice([0.0, 0.0, 0.4]))
    if rng.random() < 0.7:
        kind = int(rng.integers(4))
        cost = [
            rng.lognormal(size=b),
            10.0 ** rng.uniform(-6, 12, b),
            rng.integers(0, 4, b).astype(float),
            np.full(b, 0.1),
        ][kind]
        settings["cost"] = cost
        settings["budget"] = float(cost[rng.permutation(b)[: int(rng.integers(1, 5))]].sum())
        settings["mu"] = float(rng.choice([0.0, 0.0, 0.05])) if kind != 1 else 0.0
        settings["m"] = int(rng.integers(1, 6)) if lam or rng.random() < 0.5 else None
    else:
        settings["m"] = int(rng.integers(1, 5))
    if rng.random() < 0.7:
        settings["groups"] = rng.choice(["a", "b", "c", None], b).tolist()
        most, least = int(rng.integers(1, 4)), int(rng.integers(0, 2))
        settings["at_most"] = [None, most, {"a": most}][int(rng.integers(3))]
        settings["at_least"] = [None, {"b": least}, least][int(rng.integers(3))]
    values = rng.random((n, b)) - (0.5 if seed % 4 == 0 else 0.0)
    weights = rng.random(n) if seed % 3 == 0 else None
    try:
        return fb.SelectionProblem(
            values, k=int(rng.integers(1, 4)), lam=lam, weights=weights, **settings
        )
    except fb.InputError:
        return None


def problem_of(**settings: object) -> fb.SelectionProblem:
    values = np.random.default_rng(0).random((5, 8))
    return fb.SelectionProblem(values, **{"m": 3, "k": 2} | settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exclude": [1], "include": [1]}, "`include` and `exclude` to name different classes"),
        ({"exclude": [1], "selected": [1]}, "`exclude` and `selected` to name different"),
        ({"include": [1], "selected": [1]}, r"got 1 \('1'\) in both: it is already in"),
        ({"include": [1, 2, 3, 4]}, "m to be at least 4, the classes that `include`"),
        ({"at_most": 1}, "Expected `groups` with `at_most`"),
        ({"groups": "aab"}, "`groups` to be 8 labels, one for each candidate, but got 3"),
        ({"groups": list("aaaabbbb"), "at_most": {"c": 1}}, "groups among a, b but got 'c'"),
        ({"groups": list("aaaabbbb"), "at_most": 1}, "m to be at most 2, the classes that"),
        ({"groups": list("aaaabbbb"), "at_least": 2}, "m to be at least 4, the classes that"),
        ({"groups": list("abbbbbbb"), "at_least": {"a": 2}}, "2 classes of the group 'a' must"),
        (
            {"groups": list("aaaabbbb"), "at_most": 1, "include": [0, 1]},
            "`include` to keep to `at_most` but it has 2 classes of the group 'a'",
        ),
        ({"budget": 1.0, "include": [0, 1]}, "a budget of at least 2, what `include` and"),
        ({"budget": -1.0}, "`budget` to be finite and at least 0 but got -1"),
        ({"budget": 5, "cost": [-1.0] + 7 * [1.0]}, "`cost` of at least 0 with a budget"),
        ({"budget": 5, "m": None, "lam": 0.5}, "Expected m with lam > 0 and a budget"),
        ({"m": 7, "exclude": [0, 1]}, "`m` to be at least 0 and at most 6, the candidates not"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(fb.InputError, match=message):
        problem_of(**settings)


def test_methods_for_a_plain_m_refuse_limits_by_name_and_keep_to_exclude() -> None:
    values = np.random.default_rng(0).random((5, 8))
    problem = fb.SelectionProblem.from_centroids(values.T, m=3, k=2, lam=0.2, exclude=[0, 4])
    for method in fb.methods():
        assert not set(fb.select(problem, method).indices) & {0, 4}, method
    for method in ("paper", "greedy-novel", "random-greedy", "double-greedy", "kmedoids"):
        with pytest.raises(fb.InputError, match=f"for method '{method}', which is for a plain m"):
            fb.select(problem.replace(budget=2), method)
    with pytest.raises(fb.InputError, match="'random-greedy', which is for a plain m"):
        fb.WithSwaps(fb.RandomGreedy()).select(problem.replace(include=[1]))
    assert 1 in fb.select(problem.replace(include=[1]), "domsim").indices


def test_a_budget_makes_m_an_upper_limit_and_what_is_left_is_said(tmp_path: Path) -> None:
    problem = problem_of(m=None, budget=2.5)
    assert (problem.m, problem.replace(exclude=[0]).m) == (8, 7)
    selection = fb.select(problem)
    assert len(selection.indices) == 2
    assert selection.spent == 2.0
    assert selection.limits == {"budget": 2.5}
    assert selection.nu is not None
    assert fb.Selection.load(selection.save(tmp_path / "selection.json")) == selection
    tenths = problem_of(m=None, budget=0.3, cost=[0.1, 0.2, 5, 5, 5, 5, 5, 5])
    assert sorted(fb.select(tenths).indices) == [0, 1]  # .1 + .2 exceeds .3 by rounding


def test_classes_that_are_there_count_towards_groups() -> None:
    groups = list("aaaabbbb")
    problem = problem_of(selected=[0, 1], groups=groups, at_most=2, m=2)
    assert {groups[u] for u in fb.select(problem).indices} == {"b"}
    needed = problem_of(selected=[0], groups=groups, at_least={"a": 2, "b": 1}, m=2)
    assert sorted(groups[u] for u in fb.select(needed).indices) == ["a", "b"]
    more = problem.replace(at_most=1, m=1)  # B_s has more than that: no further ones
    assert groups[fb.select(more).indices[0]] == "b"


def test_the_frontier_never_falls_and_its_bounds_hold() -> None:
    rng = np.random.default_rng(1)
    values, cost = rng.random((20, 40)), rng.lognormal(size=40)
    problem = fb.SelectionProblem(values, k=2, cost=cost, budget=1.0)
    rows = fb.frontier(problem, budgets=[8.0, 2.0, 4.0, 1.0])
    assert list(rows) == [1.0, 2.0, 4.0, 8.0]
    for before, after in pairwise(rows.values()):
        assert before.value <= after.value
        assert before.upper_bound <= after.upper_bound  # type: ignore[operator]
        assert after.nu <= before.nu + 1e-3  # type: ignore[operator]
    for limit, row in rows.items():
        assert row.spent is not None
        assert row.spent <= limit
        assert row.gap is not None
        assert row.gap < 1e-2
    plain = fb.frontier(fb.SelectionProblem(values, m=1, k=2), ms=[3, 1])
    assert [len(row.indices) for row in plain.values()] == [1, 3]
    with pytest.raises(fb.InputError, match="either `budgets` or `ms`"):
        fb.frontier(problem)


@pytest.mark.parametrize("part", range(25))
def test_limits_against_enumeration(part: int) -> None:
    checked = 0
    for seed in range(40 * part, 40 * part + 40):
        problem = limited(seed)
        if problem is None:
            continue
        allowed = allowed_sets(problem)
        values = [problem.value(choice) for choice in allowed]
        best = int(np.argmax(values))
        price = np.abs(problem.modular)
        for name, selector in SERVING.items():
            selection = fb.select(problem, selector, seed)
            assert tuple(sorted(selection.indices)) in set(map(tuple, map(sorted, allowed))), name
            terms = max(price[selection.indices].sum(), price[list(allowed[best])].sum())
            slack = ROUNDING * (1 + terms)
            assert selection.upper_bound is not None
            assert selection.upper_bound >= values[best] - slack, (seed, name)
            assert selection.value <= values[best] + slack
            if selection.gap == 0:
                assert selection.value >= values[best] - slack, (seed, name)
            if name == "auto":
                assert selection.gap == 0, (seed, selection.gap)
                checked += 1
    assert checked >= 15


@pytest.mark.parametrize(("k", "cap"), [(1, None), (2, 4)])
def test_bounds_at_100_by_400_hold_against_an_exact_solver(k: int, cap: int | None) -> None:
    """The linear relaxation by HiGHS lies above the optimum, its best integer solution below."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array, eye_array, hstack, kron

    rng = np.random.default_rng(k)
    centres = rng.random((12, 16))
    draw = lambda count: centres[rng.integers(0, 12, count)] + 0.4 * rng.random((count, 16))  # noqa: E731
    candidates, novel = draw(400), draw(100)
    cost, groups = rng.lognormal(size=400), rng.integers(0, 40, 400)
    more = {} if cap is None else {"groups": groups, "at_most": cap}
    problem = fb.SelectionProblem.from_centroids(
        candidates, novel, k=k, cost=cost, budget=15.0, **more
    )
    selection = fb.select(problem)
    assert selection.upper_bound is not None
    assert selection.gap is not None
    assert selection.gap < 5e-4

    values = np.asarray(problem.similarity, np.float64) - problem.floor
    near = [np.argsort(-row)[:60] for row in values]  # y[n, u] only for the nearest of each row
    rows = np.repeat(np.arange(100), 60)
    columns = np.concatenate(near)
    pairs = len(rows)
    gain = values[rows, columns] / (100 * k)
    link = hstack(
        [coo_array((-np.ones(pairs), (np.arange(pairs), columns)), (pairs, 400)), eye_array(pairs)]
    )
    top = hstack([coo_array((100, 400)), kron(eye_array(100), np.ones((1, 60)))])
    limits = [LinearConstraint(link, -np.inf, 0), LinearConstraint(top, -np.inf, k)]
    spent = hstack([coo_array(cost[None]), coo_array((1, pairs))])
    limits.append(LinearConstraint(spent, -np.inf, 15.0))
    if cap is not None:
        member = coo_array((np.ones(400), (groups, np.arange(400))), (40, 400))
        limits.append(LinearConstraint(hstack([member, coo_array((40, pairs))]), -np.inf, cap))
    whole = np.concatenate([np.ones(400), np.zeros(pairs)])
    found = milp(
        -np.concatenate([np.zeros(400), gain]),
        constraints=limits,
        integrality=whole,
        bounds=Bounds(0, 1),
        options={"time_limit": 60, "mip_rel_gap": 1e-5},
    )
    assert found.x is not None
    chosen = np.flatnonzero(found.x[:400] > 0.5)
    theirs = problem.value(chosen)
    assert selection.upper_bound >= theirs - 1e-9  # no allowed set is above our bound
    assert selection.value >= theirs - 5e-4 * abs(theirs)
