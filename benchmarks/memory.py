"""Peak memory of a gradient and of a selection, in copies of the float32 similarity matrix.

    python benchmarks/memory.py

Each case runs in a process of its own, which first does the same on a tiny problem, so that
compiled code and libraries do not count. Then the matrix is made, in place, and the highest
resident memory from there on (Linux's VmHWM) is compared with what was there before the matrix.
Figures in docs/kernels.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch

import fsl_basesel as fb

SHAPES = ("1000x21000", "200x40000", "1000x70000")
ALGORITHMS = ("auto", "dual", "greedy-target", "greedy-novel", "random-greedy", "double-greedy")


def gradient(problem: fb.SelectionProblem) -> None:
    """One float32 gradient of two points that sum to m, for which the heads of rows are enough."""
    problem.gradient(torch.full((2, problem.n_candidates), problem.m / problem.n_candidates))


def sorted_gradient(problem: fb.SelectionProblem) -> None:
    """The same with all rows sorted from end to end, as Algorithm 4 has them."""
    assert problem.sorted_rows.complete
    gradient(problem)


GRADIENTS = {"gradient": gradient, "sorted-gradient": sorted_gradient}


def selecting(method: str) -> Callable[[fb.SelectionProblem], None]:
    """A selection without its certificate."""
    return lambda problem: print(fb.select(problem, method, certify=False).value, file=sys.stderr)


def made(n_novel: int, n_candidates: int) -> fb.SelectionProblem:
    """A problem on a matrix that nothing else has a copy of."""
    columns = np.random.default_rng(0).random((n_candidates, n_novel), dtype=np.float32)
    columns.flags.writeable = False
    return fb.SelectionProblem(columns.T, m=max(1, n_candidates // 21), k=5)


def resident(field: str) -> int:
    """`VmRSS`, what is resident now, or `VmHWM`, the most that was; in bytes."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(field))
    return 1024 * int(line.split()[1])


def measure(what: str, shape: str) -> float:
    """Peak of one case in copies of the matrix, in this process."""
    work = GRADIENTS.get(what) or selecting(what)
    n_novel, n_candidates = (int(part) for part in shape.split("x"))
    work(made(20, 60))
    before = resident("VmRSS")
    problem = made(n_novel, n_candidates)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the highest so far is forgotten
    work(problem)
    return (resident("VmHWM") - before) / problem.by_candidate.nbytes


def main(argv: Sequence[str] | None = None) -> None:
    """Print a table, or the figure of one case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="some of %(default)s, or others")
    parser.add_argument("--what", default=",".join((*GRADIENTS, *ALGORITHMS)))
    parser.add_argument("--here", action="store_true", help="one case in this process")
    args = parser.parse_args(argv)
    if args.here:
        print(measure(args.what, args.shapes))
        return
    shapes = args.shapes.split(",")
    print("| |", " | ".join(shapes), "|")
    print("|---" * (len(shapes) + 1) + "|")
    for what in args.what.split(","):
        words = [sys.executable, __file__, "--here", "--what", what, "--shapes"]
        cells = [
            subprocess.run([*words, shape], capture_output=True, check=True, text=True).stdout
            for shape in shapes
        ]
        print(f"| {what} |", " | ".join(f"{float(cell):.2f}" for cell in cells), "|", flush=True)


if __name__ == "__main__":
    main()
