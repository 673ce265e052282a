"""Every backend against the paper's method, in one run.

    python benchmarks/gradient.py

Rounds are interleaved; medians and 20/80 quantiles are reported and written to CSV. What is short
is repeated within its turn. The memory floor is the time to read the sorted rows once, all of them,
measured in the same rounds; a walk that ends early reads less than that. On a machine that others
use too, `--clock processor` counts the time this program was running.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import gradient_cuda
import numpy as np
import torch
from growth import plot_growth
from paper_gradient import gradient as paper_gradient
from rich import box
from rich.console import Console
from rich.table import Table
from selection import clustered_problem
from timing import CLOCKS, Timing, interleaved, main, write_csv

from fsl_basesel.compiled import kernel
from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import SortedRows, value_and_gradient
from fsl_basesel.parallel import map_blocks

SHAPES = ("100x400", "400x400", "1000x1000", "1000x21000")
# Rows the paper's method is measured on where all would take minutes; its time is scaled up.
SAMPLED_ROWS = {"1000x21000": 2}
COLUMNS = {
    "paper": "paper",
    "paper+": "paper+",
    "reference": "ref.",
    "torch": "torch",
    "cpu": "cpu",
    "floor": "floor",
}
RATIOS = ("paper / cpu", "paper+ / cpu", "cpu / floor")
# A contender that took this long in all sits out the remaining rounds.
PATIENCE = 8.0
LOT = 0.02  # seconds that a turn lasts at least


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.description = "One gradient of the multilinear extension, every backend."
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for the Triton kernels")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="some of %(default)s")
    parser.add_argument("--k", default="1,3,5,10", help="values of K (%(default)s)")
    parser.add_argument("--mean", default="0.01,0.25", help="values of mean x (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (%(default)s)")
    parser.add_argument(
        "--clock", choices=list(CLOCKS), default="wall", help="what is measured (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the made-up centroids")
    parser.add_argument("--csv", metavar="FILE", help="also write every figure to FILE")
    parser.add_argument(
        "--growth", metavar="FILE", help="instead: plot time against |B|, |N| and K to FILE"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print, write."""
    if torch.device(args.device).type != "cpu":
        return gradient_cuda.run(args)
    console = Console()
    if args.growth:
        for name, slope in plot_growth(Path(args.growth), args.rounds, args.clock).items():
            console.print(f"time grows like {name}^{slope:.2f}")
        return 0
    shapes = args.shapes.split(",")
    if set(shapes) - set(SHAPES) or args.rounds < 1:
        raise InputError(
            f"Expected --shapes among {', '.join(SHAPES)} and at least one round but got "
            f"--shapes {args.shapes} --rounds {args.rounds}."
        )
    timings: list[Timing] = []
    for shape in shapes:
        rows = rows_of(shape, args.seed)
        title = f"One gradient, {shape}, ms of {args.clock} time"
        table = Table(title=title, box=box.SIMPLE_HEAD, padding=0, collapse_padding=True)
        for heading in ("K", "mean x", *COLUMNS.values(), *RATIOS):
            table.add_column(heading, justify="right")
        for k, mean in product(_numbers(args.k), _numbers(args.mean)):
            with console.status(f"{shape}, K = {k:g}, mean x = {mean:g}"):
                measured = measure(rows, shape, int(k), mean, args.rounds, args.seed, args.clock)
            timings += measured
            table.add_row(f"{k:g}", f"{mean:g}", *_cells(measured))
        console.print(table)
    console.print(
        "paper: one dynamic program a candidate, with both prunings; paper+: with suffix sums "
        "too, which the paper lacks.\nref.: plain torch, for tests. floor: all sorted rows read "
        "once. ~: scaled up from a sample of rows."
    )
    if args.csv:
        write_csv(args.csv, timings)
    return 0


def rows_of(shape: str, seed: int) -> SortedRows:
    """Sorted rows of made-up centroids."""
    n_novel, n_candidates = (int(part) for part in shape.split("x"))
    return clustered_problem(n_novel, n_candidates, 1, seed).sorted_rows


def measure(
    rows: SortedRows,
    shape: str,
    k: int,
    mean: float,
    rounds: int,
    seed: int,
    clock: str = "wall",
) -> list[Timing]:
    """Every contender on one setting; the point is uniform on [0, 2 mean]."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy((2 * mean * rng.random(rows.n_candidates)).astype(np.float32))
    sampled = SAMPLED_ROWS.get(shape)
    scale = 1.0 if sampled is None else rows.n_novel / sampled
    contenders = {
        "paper": lambda: paper_gradient(rows, x, k, sampled),
        "paper+": lambda: paper_gradient(rows, x, k, sampled, suffix_sums=True),
        "reference": lambda: value_and_gradient(rows, x, k, backend="reference"),
        "torch": lambda: value_and_gradient(rows, x, k, backend="torch"),
        "cpu": lambda: value_and_gradient(rows, x, k, backend="cpu"),
        "floor": lambda: read_once(rows),
    }
    for name in ("paper", "paper+", "cpu", "floor"):  # compile before the clock runs
        contenders[name]()
    setting = f"{shape} K={k} mean={mean:g}"
    timings = interleaved(contenders, rounds, setting, PATIENCE, clock, LOT)
    return [
        timing.scaled(scale, f"{timing.name}, extrapolated")
        if timing.name in ("paper", "paper+") and sampled
        else timing
        for timing in timings
    ]


def read_once(rows: SortedRows) -> float:
    """Read every sorted similarity and its column once, on all threads."""
    values, order = rows.values.numpy(), rows.order.numpy()
    parts = map_blocks(lambda a, b: _touch(values[a:b], order[a:b]), rows.n_novel, 64)
    return float(sum(parts))


@kernel
def _touch(values: np.ndarray, order: np.ndarray) -> np.float32:
    total = np.float32(0.0)
    for n in range(values.shape[0]):
        for i in range(0, values.shape[1], 16):  # one number a cache line brings in the line
            total += values[n, i] + np.float32(order[n, i])
    return total


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"Expected numbers separated by commas but got '{text}'.") from None


def _cells(timings: list[Timing]) -> list[str]:
    by_name = {timing.name.split(",")[0]: timing for timing in timings}
    cells = []
    for name in COLUMNS:
        mark = "~" if by_name[name].name != name else ""
        cells.append(mark + _milliseconds(by_name[name].median))
    ours = by_name["cpu"].median
    ahead = [f"{by_name[name].median / ours:.0f}" for name in ("paper", "paper+")]
    return [*cells, *ahead, f"{ours / by_name['floor'].median:.1f}"]


def _milliseconds(seconds: float) -> str:
    """Three digits, and no exponent for long times."""
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


if __name__ == "__main__":
    sys.exit(main(add_arguments, run))
