"""The choice that the page makes is that of greedy with swaps in Python, class by class."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.selectors.swap import WithSwaps
from tests.fsl_basesel.report.conftest import Show

DRIVER = """(problems) => problems.map(({ problem, limits }) => {
  const arrays = { similarity: Float32Array, weights: Float64Array, means: Float64Array };
  for (const [name, Kind] of Object.entries(arrays)) problem[name] = new Kind(problem[name]);
  problem.cost = problem.cost && new Float64Array(problem.cost);
  return new chooser.Chooser(problem, limits).choose();
})"""


def limits_for_page(problem: fb.SelectionProblem) -> dict[str, Any]:
    """Limits as `choose.js` takes them."""
    found: dict[str, Any] = {"m": problem.m}
    found |= {"exclude": list(problem.exclude), "include": list(problem.include)}
    limits = problem.limits
    if limits is not None and problem.budget is not None:
        found["budget"] = problem.budget
    if limits is not None and (problem.at_most is not None or problem.at_least is not None):
        arrays = {"group": limits.group, "most": limits.most, "least": limits.least}
        found |= {name: array.tolist() for name, array in arrays.items()}
    return found


def random_problem(seed: int, limited: bool) -> fb.SelectionProblem:
    """A problem of any kind: ties, signs, duplicates, B_s, weights, costs, limits."""
    rng = np.random.default_rng(seed)
    base, novel = int(rng.integers(3, 90)), int(rng.choice([1, 5, 63, 64, 65, 130, 300, 600]))
    similarity = rng.random((novel, base))
    if seed % 4 == 1:
        similarity = np.round(similarity, 1)  # many ties
    if seed % 4 == 2:
        similarity = rng.normal(size=(novel, base))  # signed
    if seed % 8 == 3:
        similarity[:, base // 2 :] = similarity[:, : base - base // 2]  # duplicates
    selected = rng.choice(base, int(rng.integers(0, 3)), replace=False).tolist()
    settings: dict[str, Any] = {"k": int(rng.choice([1, 2, 3, 5, 9])), "selected": selected}
    if seed % 5 == 1:
        settings |= {"lam": 0.7}
    if seed % 5 == 2:
        settings |= {"cost": rng.random(base), "mu": 0.02}
    if seed % 7 == 3:
        settings |= {"weights": rng.integers(0, 4, novel) + (np.arange(novel) == 0)}
    m = int(rng.integers(1, base - len(selected) + 1)) if seed % 6 else base - len(selected)
    plain = fb.SelectionProblem(similarity.astype(np.float32), m=m, **settings)
    return _with_limits(plain, rng) if limited else plain


def _with_limits(plain: fb.SelectionProblem, rng: np.random.Generator) -> fb.SelectionProblem:
    """The same problem with limits that can be kept to."""
    free = rng.permutation(plain.unselected).tolist()
    base = plain.n_candidates
    while True:
        split = int(rng.integers(0, len(free) // 2 + 1))
        limits: dict[str, Any] = {"exclude": free[:split], "m": max(1, plain.m - split)}
        if rng.random() < 0.5:
            limits["include"] = free[split : split + int(rng.integers(1, 4))]
        if rng.random() < 0.6:
            cost = rng.choice([rng.random(base), np.exp(rng.normal(size=base)), np.ones(base)])
            cost = np.where(rng.random(base) < 0.1, 0.0, cost)
            limits |= {"cost": cost, "budget": float(rng.uniform(0.2, 0.9) * cost[free].mean() * 8)}
        if rng.random() < 0.6:
            limits["groups"] = [f"group {g}" for g in rng.integers(0, 4, base)]
            limits["at_most"] = int(rng.integers(1, 9))
            if rng.random() < 0.5:
                limits["at_least"] = {"group 1": 1, "group 2": int(rng.integers(0, 3))}
        try:
            return plain.replace(**limits)
        except fb.InputError:
            continue  # limits that contradict each other


def as_json(problem: fb.SelectionProblem) -> dict[str, Any]:
    """What the page's own code gets."""
    return {
        "problem": {
            "candidates": problem.n_candidates,
            "rows": problem.n_novel,
            "similarity": np.asarray(problem.similarity).T.ravel().tolist(),
            "weights": problem.row_weights.tolist(),
            "means": problem.column_means.tolist(),
            "cost": None if problem.cost is None else problem.cost.tolist(),
            "selected": list(problem.selected),
            **{name: getattr(problem, name) for name in ("k", "lam", "mu", "floor")},
        },
        "limits": limits_for_page(problem),
    }


@pytest.fixture
def browser(show: Show, tmp_path):
    """An empty page with the code that chooses."""
    path = tmp_path / "empty.html"
    path.write_text("<!doctype html><title>empty</title>")
    page = show(path)
    page.add_script_tag(
        content=files("fsl_basesel.report.page").joinpath("choose.js").read_text(encoding="utf-8")
    )
    return page


@pytest.mark.parametrize("limited", [False, True], ids=["plain m", "limits"])
def test_page_and_python_agree_on_100_random_problems(browser, limited: bool) -> None:
    problems = [random_problem(seed, limited) for seed in range(100)]
    found = browser.evaluate(DRIVER, [as_json(problem) for problem in problems])
    for seed, (problem, ours) in enumerate(zip(problems, found, strict=True)):
        assert ours == WithSwaps().select(problem).indices, seed


def test_page_and_python_agree_where_a_budget_makes_several_classes_useless(browser) -> None:
    """Few novel classes and a large budget: what nobody lists any more leaves at once."""
    problems = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        base, novel = int(rng.integers(10, 80)), int(rng.choice([2, 4, 8, 20]))
        similarity = rng.random((novel, base)).astype(np.float32)
        cost = rng.choice([rng.random(base), np.exp(2 * rng.normal(size=base))])
        settings = {"m": base - 1, "k": int(rng.choice([1, 2, 3])), "cost": cost}
        budget = float(rng.uniform(0.5, 15) * np.median(cost))
        problems.append(fb.SelectionProblem(similarity, budget=budget, **settings))
    found = browser.evaluate(DRIVER, [as_json(problem) for problem in problems])
    for seed, (problem, ours) in enumerate(zip(problems, found, strict=True)):
        assert ours == WithSwaps().select(problem).indices, seed
