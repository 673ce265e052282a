"""One gradient through the public call, beside the paper's method, in one run.

    python benchmarks/gradient.py
    python benchmarks/gradient.py --device cuda

`problem.gradient(x)` is called in a loop with x an array (or a tensor on the device). Contenders
take turns; medians are printed, with 20/80 quantiles in the CSV. On a machine that others use too,
`--clock processor` counts the time this program was running.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product

import numpy as np
import torch
from paper_gradient import gradient as paper_gradient
from selection import clustered_problem
from timing import CLOCKS, Timing, interleaved, main, write_csv

import fsl_basesel as fb
from fsl_basesel.errors import InputError

SHAPES = ("100x400", "1000x1000", "1000x21000")
# Rows the paper's method is measured on where all would take minutes; its time is scaled up.
SAMPLED_ROWS = {"1000x21000": 2}
PATIENCE = 8.0  # a contender that took so many seconds in all sits out the remaining rounds
LOT = 0.02  # seconds that a turn lasts at least


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.description = "One gradient of the multilinear extension beside the paper's method."
    parser.add_argument("--device", default="cpu", help="where x is: cpu or cuda (%(default)s)")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="some of %(default)s")
    parser.add_argument("--k", default="3,5", help="values of K (%(default)s)")
    parser.add_argument("--mean", default="0.01,0.25", help="values of mean x (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (%(default)s)")
    parser.add_argument(
        "--clock", choices=list(CLOCKS), default="wall", help="what is measured (%(default)s)"
    )
    parser.add_argument("--csv", metavar="FILE", help="also write every figure to FILE")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write."""
    try:
        cases = [
            (int(shape.split("x")[0]), int(shape.split("x", 1)[1]), int(k), float(mean))
            for shape, k, mean in product(
                args.shapes.split(","), args.k.split(","), args.mean.split(",")
            )
        ]
    except (ValueError, IndexError) as error:
        raise InputError(
            "Expected --shapes like 100x400,1000x1000, --k like 1,5 and --mean like 0.01,0.25 but "
            f"got --shapes {args.shapes} --k {args.k} --mean {args.mean}"
        ) from error
    if args.device != "cpu" and not torch.cuda.is_available():
        raise InputError(f"Expected a GPU for `--device {args.device}` but torch finds none.")
    timings: list[Timing] = []
    print(f"one gradient, ms of {args.clock} time; ~: scaled up from a sample of rows\n")
    print("| shape | K | mean x | paper | with suffix sums | `problem.gradient(x)` | times |")
    print("|---|---|---|---|---|---|---|")
    problems = {}
    for n_novel, n_candidates, k, mean in cases:
        shape = f"{n_novel}x{n_candidates}"
        if shape not in problems:
            problems = {shape: clustered_problem(n_novel, n_candidates, 1, 0)}
        measured = measure(problems[shape].replace(k=k), mean, args)
        paper, plus, ours = (1e3 * timing.median for timing in measured)
        mark = "~" if shape in SAMPLED_ROWS else ""
        print(
            f"| {shape} | {k} | {mean:g} | {mark}{paper:.4g} | {mark}{plus:.4g} | {ours:.3g} "
            f"| {paper / ours:.0f} |",
            flush=True,
        )
        timings += measured
    if args.csv:
        write_csv(args.csv, timings)
    return 0


def measure(problem: fb.SelectionProblem, mean: float, args: argparse.Namespace) -> list[Timing]:
    """Every contender on one setting; the point is uniform on [0, 2 mean]."""
    x = 2 * mean * np.random.default_rng(0).random(problem.n_candidates)
    point = x if args.device == "cpu" else torch.from_numpy(x).to(args.device)
    shape = f"{problem.n_novel}x{problem.n_candidates}"
    rows, sampled = problem.sorted_rows, SAMPLED_ROWS.get(shape)

    def ours() -> None:
        problem.gradient(point)
        if args.device != "cpu":
            torch.cuda.synchronize()

    contenders = {
        "paper": lambda: paper_gradient(rows, x, problem.k, sampled),
        "paper+": lambda: paper_gradient(rows, x, problem.k, sampled, suffix_sums=True),
        args.device: ours,
    }
    for work in contenders.values():  # compile before the clock runs
        work()
    setting = f"{shape} K={problem.k} mean={mean:g}"
    timings = interleaved(contenders, args.rounds, setting, PATIENCE, args.clock, LOT)
    if sampled is None:
        return timings
    scale = rows.n_novel / sampled
    return [
        *(timing.scaled(scale, f"{timing.name}, extrapolated") for timing in timings[:2]),
        timings[2],
    ]


if __name__ == "__main__":
    sys.exit(main(add_arguments, run))
