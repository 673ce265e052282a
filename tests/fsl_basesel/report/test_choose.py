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
  return chooser.choose(problem, limits);
})"""


def random_problem(seed: int) -> tuple[fb.SelectionProblem, list[int]]:
    """A problem of any kind, and columns that are vetoed."""
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
    vetoed = [u for u in rng.choice(base, base // 4, replace=False) if u not in selected]
    settings: dict[str, Any] = {"k": int(rng.choice([1, 2, 3, 5, 9])), "selected": selected}
    if seed % 5 == 1:
        settings |= {"lam": 0.7}
    if seed % 5 == 2:
        settings |= {"cost": rng.random(base), "mu": 0.02}
    if seed % 7 == 3:
        settings |= {"weights": rng.integers(0, 4, novel) + (np.arange(novel) == 0)}
    free = base - len(selected) - len(vetoed)
    m = int(rng.integers(1, free + 1)) if seed % 6 else free
    return fb.SelectionProblem(similarity.astype(np.float32), m=m, **settings), vetoed


def without(problem: fb.SelectionProblem, vetoed: list[int]) -> list[int]:
    """What Python chooses where the vetoed columns are not there at all."""
    stay = np.setdiff1d(np.arange(problem.n_candidates), vetoed)
    place = {int(u): i for i, u in enumerate(stay)}
    smaller = fb.SelectionProblem(
        np.asarray(problem.similarity)[:, stay],
        m=problem.m,
        k=problem.k,
        lam=problem.lam,
        selected=[place[u] for u in problem.selected],
        cost=None if problem.cost is None else problem.cost[stay],
        mu=problem.mu,
        floor=problem.floor,
        weights=problem.weights,
    )
    return [int(stay[u]) for u in WithSwaps().select(smaller).indices]


def as_json(problem: fb.SelectionProblem, vetoed: list[int]) -> dict[str, Any]:
    """What the page's own code gets."""
    matrix = np.asarray(problem.similarity)
    data = {
        "candidates": problem.n_candidates,
        "rows": problem.n_novel,
        "similarity": matrix.T.ravel().tolist(),
        "weights": problem.row_weights.tolist(),
        "means": problem.column_means.tolist(),
        "cost": None if problem.cost is None else problem.cost.tolist(),
        "selected": list(problem.selected),
        **{name: getattr(problem, name) for name in ("k", "lam", "mu", "floor")},
    }
    limits = {"m": problem.m, "exclude": [int(u) for u in vetoed], "include": []}
    return {"problem": data, "limits": limits}


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


def test_page_and_python_agree_on_100_random_problems(browser) -> None:
    problems = [random_problem(seed) for seed in range(100)]
    found = browser.evaluate(DRIVER, [as_json(*one) for one in problems])
    for seed, ((problem, vetoed), ours) in enumerate(zip(problems, found, strict=True)):
        assert ours == without(problem, vetoed), seed
