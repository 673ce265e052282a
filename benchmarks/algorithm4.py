"""Algorithm 4 and one gradient, end to end, beside another tree of this project.

    python benchmarks/algorithm4.py --against ../other-worktree

Both trees run in processes of their own on one thread and take turns. Times are processor time, so
that other programs on the machine count little. Every selection starts from the matrix: sorting the
rows, the climb, rounding, and the reasons for each class. The median of the rounds is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from timing import main

from fsl_basesel.errors import InputError

HERE = Path(__file__).resolve().parents[1]
CASES = ((100, 400, 100), (1000, 1000, 250), (1000, 21000, 1000))
WORKER = """
import json, sys, time
import numpy as np
import fsl_basesel as fb

rng = np.random.default_rng(0)
centres = np.abs(rng.standard_normal((200, 64), dtype=np.float32))
def draw(count):
    noise = rng.standard_normal((count, 64), dtype=np.float32)
    return np.maximum(0, centres[rng.integers(0, 200, count)] + noise)
def clock(work, times=1):
    start = time.process_time()
    for _ in range(times):
        result = work()
    return 1e3 * (time.process_time() - start) / times, result
for line in sys.stdin:
    n_novel, n_candidates, m, k = json.loads(line)
    rng = np.random.default_rng(0)
    candidates, novel = draw(n_candidates), draw(n_novel)
    candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
    novel /= np.linalg.norm(novel, axis=1, keepdims=True)
    matrix = novel @ candidates.T
    problem = fb.SelectionProblem(matrix, m=m, k=k, lam=0.2)
    x = 0.5 * np.random.default_rng(1).random(n_candidates)
    problem.gradient(x)
    gradient, _ = clock(lambda: problem.gradient(x), 20)
    fresh = fb.SelectionProblem(matrix, m=m, k=k, lam=0.2)
    select, found = clock(lambda: fb.select(fresh, "double-greedy", certify=False))
    print(json.dumps([select, gradient, sorted(found.indices)]), flush=True)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.description = __doc__
    parser.add_argument("--against", metavar="FOLDER", help="the root of another tree")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (%(default)s)")
    parser.add_argument("-k", type=int, default=3, help="K (%(default)s)")
    parser.add_argument("--largest", type=int, default=21000, help="most candidates (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Measure and print a Markdown table."""
    trees = {"this tree": HERE}
    if args.against:
        other = Path(args.against).resolve()
        if not (other / "fsl_basesel").is_dir():
            raise InputError(f"Expected --against to hold fsl_basesel/ but {other} does not.")
        trees = {"other tree": other, **trees}
    workers = {name: _start(tree) for name, tree in trees.items()}
    print("| shape, m | | " + " | ".join(f"{name}, ms" for name in trees) + " | ratio | same set |")
    print("|---|---|" + "---|" * (len(trees) + 2))
    try:
        for case in CASES:
            if case[1] <= args.largest:
                _compare(workers, (*case, args.k), args.rounds)
    finally:
        for worker in workers.values():
            worker.terminate()
    return 0


def _start(tree: Path) -> subprocess.Popen[str]:
    threads = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env=os.environ | threads | {"PYTHONPATH": str(tree)},
        cwd=tree,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _compare(workers: dict[str, subprocess.Popen[str]], case: tuple[int, ...], rounds: int) -> None:
    """Print one row for the selection and one for the gradient."""
    taken: dict[str, list[list[float]]] = {name: [] for name in workers}
    sets = {}
    for turn in range(rounds + 1):  # the first round compiles
        for name, worker in workers.items():
            assert worker.stdin is not None
            assert worker.stdout is not None
            print(json.dumps(case), file=worker.stdin, flush=True)
            select, gradient, sets[name] = json.loads(worker.stdout.readline())
            if turn:
                taken[name].append([select, gradient])
    same = "yes" if len({tuple(found) for found in sets.values()}) == 1 else "no"
    n_novel, n_candidates, m, _ = case
    for what, title in enumerate(("Algorithm 4", "`gradient(x)`, mean x = 0.25")):
        medians = [float(np.median(np.array(each)[:, what])) for each in taken.values()]
        cells = " | ".join(f"{median:.4g}" for median in medians)
        ratio = f"{medians[-1] / medians[0]:.2f}" if len(medians) > 1 else "-"
        shape = f"{n_novel}x{n_candidates}, {m}"
        print(f"| {shape} | {title} | {cells} | {ratio} | {'' if what else same} |", flush=True)


if __name__ == "__main__":
    sys.exit(main(add_arguments, run))
