"""Rows on two processes give the selections of one process."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import fsl_basesel as fb

METHODS = ("auto", "dual", "greedy-target", "random-greedy", "double-greedy", "random", "domsim")
SETTINGS = (
    {"m": 12, "k": 3, "lam": 0.2, "selected": (5, 7)},
    {"m": 30, "k": 1, "lam": 0.0},
    {"m": 35, "k": 2, "lam": 0.5},  # more than half: random greedy drops
    {"m": 47, "k": 1, "lam": 0.0, "selected": (5, 7)},  # used up after at most 23
    {"m": 12, "k": 1, "lam": 0.0, "similarity": "whitened"},
)


def problem_of(settings: dict) -> fb.SelectionProblem:
    rng = np.random.default_rng(0)
    centres = np.abs(rng.standard_normal((6, 8)))

    def draw(count: int) -> np.ndarray:
        return np.abs(centres[rng.integers(0, 6, count)] + rng.standard_normal((count, 8)))

    return fb.SelectionProblem.from_centroids(draw(50), draw(23), **settings)


def describe(problem: fb.SelectionProblem) -> dict:
    """Everything a process finds out, in plain types."""
    found: dict = {}
    for method in METHODS:
        selection = fb.select(problem, method, seed=1)
        found[method] = (selection.indices, selection.value, selection.upper_bound)
    found["explanation"] = fb.select(problem, "greedy-target").to_dict()["explanation"]
    x = torch.linspace(0, 1, 50, dtype=torch.float64)
    found["gradient"] = problem.gradient(x).tolist()
    found["multilinear"] = problem.multilinear(x)
    found["gains"] = problem.gains([1]).tolist()
    found["ratio"] = np.nan_to_num(problem.similarity_ratio([1, 2]), nan=-1.0).tolist()
    return found


def broken() -> np.ndarray:
    rows = np.ones((3, 4))
    rows[1, 2] = np.nan
    return rows


# What rank 1 brings that is wrong.
BAD: dict[str, dict] = {
    "similarity": {"similarity": broken()},
    "candidates": {"similarity": np.ones((3, 5))},
    "m": {"m": 1},
    "selected": {"selected": (9,)},
    "novel_names": {"novel_names": ["a", "b", "c"]},
}


def message_of(rank: int, **wrong: object) -> str:
    settings: dict = {"similarity": np.ones((3, 4)), "m": 2, "k": 1} | (wrong if rank else {})
    try:
        fb.SelectionProblem.from_rows(**settings)
    except fb.InputError as error:
        return str(error)
    return "accepted"


def worker(rank: int, folder: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    whole = [problem_of(settings) for settings in SETTINGS]
    found = [describe(problem.shard()) for problem in whole]
    half = slice(0, 11) if rank == 0 else slice(11, 23)
    own = fb.SelectionProblem.from_rows(whole[1].similarity[half], m=30, k=1)
    extra = {
        "own rows": fb.select(own, "greedy-target").indices,
        "replaced": fb.select(whole[0].shard().replace(m=3), "greedy-target").indices,
    }
    try:
        fb.select(whole[0].shard(), "greedy-novel")
    except fb.InputError as error:
        extra["refused"] = str(error)
    extra["bad"] = {name: message_of(rank, **case) for name, case in BAD.items()}
    Path(folder, f"rank-{rank}.json").write_text(json.dumps([found, extra]))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list:
    folder = str(tmp_path_factory.mktemp("ranks"))
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        mp.spawn(worker, args=(folder,), nprocs=2)
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = threads
    return [json.loads(Path(folder, f"rank-{rank}.json").read_text()) for rank in (0, 1)]


def test_both_ranks_find_the_same(reports: list) -> None:
    assert reports[0] == reports[1]


@pytest.mark.parametrize("case", range(len(SETTINGS)))
def test_two_processes_select_like_one(reports: list, case: int) -> None:
    found = reports[0][0][case]
    expected = json.loads(json.dumps(describe(problem_of(SETTINGS[case]))))
    for method in METHODS:
        (picks, value, bound), (ours, our_value, our_bound) = found[method], expected[method]
        assert picks == ours, method
        assert (value, bound) == pytest.approx((our_value, our_bound), abs=1e-9)
    for name in ("gradient", "multilinear", "gains", "ratio"):
        assert found[name] == pytest.approx(expected[name], abs=1e-12)
    for ours, theirs in zip(
        expected["explanation"]["chosen"], found["explanation"]["chosen"], strict=True
    ):
        assert (ours["serves"], ours["adds_from"]) == (theirs["serves"], theirs["adds_from"])
        assert (ours["gain"], ours["loss"]) == pytest.approx((theirs["gain"], theirs["loss"]))


def test_each_process_may_bring_its_own_rows(reports: list) -> None:
    extra = reports[0][1]
    assert extra["own rows"] == fb.select(problem_of(SETTINGS[1]), "greedy-target").indices
    smaller = problem_of(SETTINGS[0]).replace(m=3)
    assert extra["replaced"] == fb.select(smaller, "greedy-target").indices


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("similarity", r"got nan at \[1, 2\].*\(rank 1\)"),
        ("candidates", "same candidates in .* got 4 on rank 0 and 5 on rank 1"),
        ("m", "same m in .* on every process but got 2 on rank 0 and 1 on rank 1"),
        ("selected", r"same selected .* \[9\] on rank 1"),
        ("novel_names", r"on every process or on none but got none on rank\(s\) \[0\]"),
    ],
)
def test_what_is_wrong_on_one_process_is_an_error_on_all(
    reports: list, name: str, message: str
) -> None:
    messages = [extra["bad"][name] for _, extra in reports]
    assert messages[0] == messages[1]
    assert re.search(message, messages[0])


def test_a_method_that_needs_all_rows_is_refused(reports: list) -> None:
    assert "on one process for method 'greedy-novel'" in reports[0][1]["refused"]


def test_without_a_process_group_the_error_says_what_to_do() -> None:
    with pytest.raises(fb.InputError, match="init_process_group first"):
        problem_of(SETTINGS[0]).shard()
