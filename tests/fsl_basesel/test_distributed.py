"""Rows on two and three processes give the selections of one process, bit for bit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import fsl_basesel as fb

METHODS = {
    "auto": fb.Auto(max_steps=30),
    "dual": fb.LagrangianDual(max_steps=20),
    "greedy-target": fb.GreedyOnTarget(),
    "swaps": fb.WithSwaps(fb.RandomSelection(), max_passes=1),
    "random-greedy": fb.RandomGreedy(),
    "double-greedy": fb.ContinuousDoubleGreedy(steps=8),
    "random": fb.RandomSelection(),
    "domsim": fb.DomainSimilarity(),
}
SETTINGS = (
    {"m": 12, "k": 3, "lam": 0.2, "selected": (5, 7)},
    {"m": 30, "k": 1, "lam": 0.0},
    {"m": 35, "k": 2, "lam": 0.5},  # more than half: random greedy drops
    {"m": 47, "k": 1, "lam": 0.0, "selected": (5, 7), "novel": 23},  # used up; empty shards
    {"m": 12, "k": 1, "lam": 0.0, "similarity": "whitened"},
)


QUICK = fb.Auto(max_steps=20)
LIMITS = {"budget": 9.0, "cost": [0.5, 1.0, 1.5, 2.0, 2.5] * 10, "include": [3], "m": 12}
WEIGHTS = list(range(600))


def problem_of(settings: dict, **more: object) -> fb.SelectionProblem:
    rng = np.random.default_rng(0)
    centres = np.abs(rng.standard_normal((6, 8)))

    def draw(count: int) -> np.ndarray:
        return np.abs(centres[rng.integers(0, 6, count)] + rng.standard_normal((count, 8)))

    settings = dict(settings)
    count = settings.pop("novel", 600)
    return fb.SelectionProblem.from_centroids(draw(50), draw(count), **settings, **more)


def describe(problem: fb.SelectionProblem) -> dict:
    """Everything a process finds out, in plain types."""
    found: dict = {}
    for name, method in METHODS.items():
        selection = fb.select(problem, method, seed=1, certify=False)
        found[name] = (selection.indices, selection.value, selection.upper_bound)
    chosen = fb.select(problem, "greedy-target", certify=False)
    found["explanation"] = chosen.to_dict()["explanation"]
    x = torch.linspace(0, 1, 50, dtype=torch.float64)
    found["gradient"] = problem.gradient(x).tolist()
    found["multilinear"] = problem.multilinear(x)
    found["gains"] = problem.gains([1]).tolist()
    found["ratio"] = np.nan_to_num(problem.similarity_ratio([1, 2]), nan=-1.0).tolist()
    return found


def said(work: Callable[[], object]) -> str:
    """The message of what a call refuses."""
    try:
        work()
    except fb.InputError as error:
        return str(error)
    return "accepted"


def spread_over(
    similarity: str, mean_at: int | None = None, **options: object
) -> fb.SelectionProblem:
    """A problem whose novel class at `mean_at` is equal to the mean of the candidates."""
    candidates, novel = np.random.default_rng(0).random((2, 600, 4))
    if mean_at is not None:
        novel[mean_at] = candidates.mean(axis=0)
    how = {"similarity": similarity, **options}
    return fb.SelectionProblem.from_centroids(candidates, novel, m=3, k=1, spread=True, **how)


def dots(block: np.ndarray, novel: np.ndarray) -> np.ndarray:
    return novel @ block.T


def mistakes(rank: int, shard: fb.SelectionProblem) -> dict[str, str]:
    """Calls that differ by rank, and a method that cannot be had inside another."""
    other = problem_of(SETTINGS[rank % 2])
    return {
        "seed": said(lambda: fb.select(shard, "random", seed=rank)),
        "method": said(lambda: fb.select(shard, "dual" if rank else "greedy-target")),
        "options": said(lambda: fb.select(shard, fb.Auto(gap=0.1 * rank))),
        "replace": said(lambda: fb.select(shard.replace(m=3 + rank), "greedy-target")),
        "call": said(lambda: shard.value([1]) if rank else shard.gains([1])),
        "indices": said(lambda: shard.value([rank])),
        "x": said(lambda: shard.gradient(np.full(50, 0.5 * rank))),
        "shard": said(other.shard),
        "centroids": said(lambda: problem_of({"m": 3, "novel": 600 + rank}, spread=True)),
        "names": said(lambda: problem_of({"m": 3}, spread=True, names=range(rank, 50 + rank))),
        "similarity": said(lambda: spread_over("whitened" if rank else "centred")),
        "shrinkage": said(lambda: spread_over("whitened", shrinkage=0.5 - 0.1 * rank)),
        "a row of rank 1": said(lambda: spread_over("whitened", mean_at=500)),
        "nested": said(lambda: fb.select(shard, fb.WithSwaps(fb.GreedyOnNovelClass()))),
        "paper": said(lambda: fb.select(shard.replace(m=9, lam=0.0), "paper", certify=False)),
        "fine again": said(lambda: fb.select(shard, "random", certify=False)),
    }


def worker(rank: int, folder: str, size: int) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size
    )
    whole = [problem_of(settings) for settings in SETTINGS]
    found = [describe(problem.shard()) for problem in whole]
    spread = problem_of(SETTINGS[0], spread=True)
    extra: dict = {
        "spread": spread.by_candidate.shape,
        "spread picks": fb.select(spread, QUICK).indices,
    }
    if size == 2:
        extra |= {
            "replaced": fb.select(
                whole[0].shard().replace(m=3), "greedy-target", certify=False
            ).indices,
            "limits": fb.select(whole[0].shard().replace(**LIMITS), QUICK).to_dict()
            | {"seconds": 0},
            "weights": fb.select(whole[0].shard().replace(weights=WEIGHTS), QUICK).indices,
            "function": fb.select(
                problem_of({"m": 5, "k": 1, "novel": 20}, spread=True, similarity=dots), QUICK
            ).indices,
            "refused": said(lambda: fb.select(whole[0].shard(), "greedy-novel")),
            "mistakes": mistakes(rank, whole[0].shard()),
        }
    Path(folder, f"rank-{rank}.json").write_text(json.dumps([found, extra]))
    dist.destroy_process_group()


def run_on(size: int, folder: str) -> list:
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        mp.spawn(worker, args=(folder, size), nprocs=size)
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = threads
    return [json.loads(Path(folder, f"rank-{rank}.json").read_text()) for rank in range(size)]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list:
    return run_on(2, str(tmp_path_factory.mktemp("ranks")))


@pytest.fixture(scope="module")
def expected() -> list:
    return [json.loads(json.dumps(describe(problem_of(settings)))) for settings in SETTINGS]


def require_same(found: list, expected: list) -> None:
    for case, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        for method in METHODS:
            assert ours[method][0] == theirs[method][0], (case, method)  # the same, in order
            if method != "double-greedy":
                assert ours[method] == theirs[method], (case, method)
        assert ours["explanation"] == theirs["explanation"], case
        assert ours["gains"] == theirs["gains"]
        assert ours["ratio"] == theirs["ratio"]
        for name in ("gradient", "multilinear"):  # of other blocks: equal but for rounding
            assert ours[name] == pytest.approx(theirs[name], abs=1e-12)


def test_two_processes_select_like_one(reports: list, expected: list) -> None:
    assert reports[0][0] == reports[1][0]
    require_same(reports[0][0], expected)


def test_three_processes_select_like_one(
    expected: list, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = run_on(3, str(tmp_path_factory.mktemp("three")))
    assert [extra["spread"] for _, extra in found] == [[50, 256], [50, 256], [50, 88]]
    for own, _ in found:
        require_same(own, expected)


def test_a_problem_spread_over_processes_can_be_changed(reports: list) -> None:
    extra = reports[0][1]
    assert extra["spread picks"] == fb.select(problem_of(SETTINGS[0]), QUICK).indices
    smaller = problem_of(SETTINGS[0]).replace(m=3)
    assert extra["replaced"] == fb.select(smaller, "greedy-target").indices


def test_limits_and_weights_on_two_processes(reports: list) -> None:
    extra = reports[0][1]
    limited = problem_of(SETTINGS[0]).replace(**LIMITS)
    here = json.loads(json.dumps(fb.select(limited, QUICK).to_dict() | {"seconds": 0}))
    assert extra["limits"] == here
    few = problem_of({"m": 5, "k": 1, "novel": 20}, similarity=dots)  # rank 1 has no rows
    assert extra["function"] == fb.select(few, QUICK).indices
    weighted = problem_of(SETTINGS[0]).replace(weights=WEIGHTS)
    assert extra["weights"] == fb.select(weighted, QUICK).indices


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("seed", "same seed in select on every process but got 0 on rank 0 and 1 on rank 1"),
        ("method", "same method in select .* 'greedy-target' on rank 0 and 'dual' on rank 1"),
        ("options", "same options in select on every process"),
        ("replace", "same m in select on every process but got 3 on rank 0 and 4 on rank 1"),
        ("call", "same call .* problem.gains on rank 0 and problem.value on rank 1"),
        ("indices", "same indices in problem.value"),
        ("x", "same x in problem.gradient"),
        ("shard", "same m in problem.shard on every process but got 12 on rank 0 and 30 on rank 1"),
        ("centroids", r"same novel in .* got \(600, 8\) on rank 0 and \(601, 8\) on rank 1"),
        ("names", "belong to different ones"),
        ("similarity", r"same similarity in .* \('centred', .* and \('whitened', "),
        ("shrinkage", r"same similarity in .* 0.5\) on rank 0 and .* 0.4\) on rank 1"),
        ("a row of rank 1", r"row 500 \(class '500'\) is equal to it; .* \(rank 1\)$"),
        ("nested", "on one process for method 'greedy-novel'"),
        ("paper", "^accepted$"),
        ("fine again", "^accepted$"),
    ],
)
def test_calls_that_differ_are_the_same_error_on_all(
    reports: list, name: str, message: str
) -> None:
    messages = [extra["mistakes"][name] for _, extra in reports]
    assert messages[0] == messages[1]
    assert re.search(message, messages[0])


def test_a_method_that_needs_all_rows_is_refused(reports: list) -> None:
    assert "on one process for method 'greedy-novel'" in reports[0][1]["refused"]


def test_without_a_process_group_the_error_says_what_to_do() -> None:
    with pytest.raises(fb.InputError, match="init_process_group first"):
        problem_of(SETTINGS[0]).shard()


def test_a_problem_of_one_process_asks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the report of a training that torchrun started, which the first process writes."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    problem = problem_of(SETTINGS[4])
    assert problem.rows.size == 1
    assert fb.select(problem, QUICK).indices == describe(problem)["auto"][0]


DYING = """
import os, signal, sys, time
import numpy as np, torch.distributed as dist
import fsl_basesel as fb
from fsl_basesel.errors import ProcessError
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
shard = fb.SelectionProblem(np.random.default_rng(0).random((600, 50)), m=9, k=2).shard()
shard.value([1])
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    fb.select(shard)
except ProcessError as error:
    print(error, flush=True)
    os._exit(7)
"""


def test_a_process_that_dies_leaves_the_others_with_an_error(tmp_path: Path) -> None:
    words = [sys.executable, "-c", DYING]
    place = str(tmp_path / "rendezvous")
    started = [
        subprocess.Popen([*words, str(rank), place], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    try:
        told, _ = started[0].communicate(timeout=120)
        assert started[1].wait(timeout=120) == -signal.SIGKILL
    finally:
        for process in started:
            process.kill()
    assert started[0].returncode == 7
    assert told.startswith("Expected all 2 processes to go on but one of them ended")


def torchrun(*words: object) -> subprocess.CompletedProcess:
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    line = [*run, "-m", "fsl_basesel", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=240)


def test_the_command_line_under_torchrun(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "pool.npz", centroids=rng.random((60, 8)))
    np.savez(tmp_path / "task.npz", centroids=rng.random((300, 8)))
    files = (tmp_path / "pool.npz", "--novel", tmp_path / "task.npz", "-m", 10, "-k", 3)
    words = ("--method", "greedy-target", "--no-certify", "--format", "json")
    done = torchrun("select", *files, *words, "--out", tmp_path / "chosen.json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)  # by one process
    pool, task = (np.load(tmp_path / f"{name}.npz")["centroids"] for name in ("pool", "task"))
    alone = fb.select(fb.SelectionProblem.from_centroids(pool, task, m=10, k=3), "greedy-target")
    assert (printed["indices"], printed["value"]) == (alone.indices, alone.value)
    assert fb.Selection.load(tmp_path / "chosen.json").indices == alone.indices
    refused = torchrun("select", *files, "--method", "greedy-novel")
    assert refused.returncode != 0
    assert refused.stderr.count("on one process for method 'greedy-novel'") == 1


def test_a_matrix_too_large_for_memory_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fsl_basesel import memory

    monkeypatch.setattr(memory, "free_bytes", lambda: 10_000)
    candidates = np.random.default_rng(0).random((100, 4))
    with pytest.raises(fb.InputError, match=r"takes 8e-05 GB and 1e-05 GB are free; spread the"):
        fb.SelectionProblem.from_centroids(candidates, m=5, k=1)
