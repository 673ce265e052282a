"""The greedy selection against submodlib and apricot, in one run.

    python benchmarks/selection.py

Those libraries support K = 1 and lam = 0, facility location. Rounds are interleaved, so
that a slow moment of the machine affects all contenders; medians and 20/80 quantiles are reported.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from rich.console import Console
from rich.table import Table
from timing import Timing, interleaved, main, write_csv

from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selectors.auto import Auto
from fsl_basesel.selectors.base import seeded
from fsl_basesel.selectors.dual import solve
from fsl_basesel.selectors.greedy import greedy
from fsl_basesel.selectors.swap import improve_by_swaps

SIZES = {"small": (100, 400, 100), "medium": (1000, 1000, 250), "large": (1000, 21000, 1000)}


Pick: TypeAlias = Callable[[], list[int]]


@dataclass(frozen=True)
class Contender:
    """Something that picks m classes of a matrix, which it may first take over in its own way."""

    name: str
    prepare: Callable[[SelectionProblem], Pick]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.description = "Greedy selection against submodlib and apricot on the same matrix."
    parser.add_argument("--sizes", default="small,medium,large", help="some of %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the made-up centroids")
    parser.add_argument("--csv", metavar="FILE", help="also write every figure to FILE")


def run(args: argparse.Namespace) -> int:
    """Run, print a table of medians and ratios, write the CSV."""
    unknown = set(args.sizes.split(",")) - set(SIZES)
    if unknown or args.rounds < 1:
        raise InputError(
            f"Expected --sizes among {', '.join(SIZES)} and at least one round but got "
            f"--sizes {args.sizes} --rounds {args.rounds}."
        )
    console = Console()
    timings: list[Timing] = []
    for size in args.sizes.split(","):
        n_novel, n_candidates, m = SIZES[size]
        problem = clustered_problem(n_novel, n_candidates, m, args.seed)
        ready = {one.name: one.prepare(problem) for one in available(console)}
        picks = {name: pick() for name, pick in ready.items()}  # warm: compiles and caches
        with console.status(f"{n_novel} x {n_candidates}, m = {m}"):
            setting = f"{n_novel}x{n_candidates} m={m}"
            measured = interleaved(ready, rounds=args.rounds, setting=setting)
        console.print(_table(problem, measured, picks))
        timings += measured
    if args.csv:
        write_csv(args.csv, timings)
    return 0


def clustered_problem(
    n_novel: int, n_candidates: int, m: int, seed: int, k: int = 1, lam: float = 0.0
) -> SelectionProblem:
    """A problem of made-up ReLU-like centroids in 200 clusters, 512 dimensions."""
    rng = np.random.default_rng(seed)
    centres = np.abs(rng.standard_normal((200, 512), dtype=np.float32))

    def draw(count: int) -> np.ndarray:
        noise = rng.standard_normal((count, 512), dtype=np.float32)
        return np.maximum(0, centres[rng.integers(0, 200, count)] + noise)

    return SelectionProblem.from_centroids(draw(n_candidates), draw(n_novel), m=m, k=k, lam=lam)


def available(console: Console) -> list[Contender]:
    """Our forms, what follows them, and the libraries that are installed."""
    contenders = [
        Contender("ours", lambda p: lambda: greedy(p).tolist()),
    ]
    for module, contender in (
        ("submodlib", Contender("submodlib, lazy", _submodlib)),
        ("apricot", Contender("apricot, lazy", _apricot)),
    ):
        if importlib.util.find_spec(module):
            contenders.append(contender)
        else:
            console.print(f"[yellow]{module} is not installed: pip install 'fsl-basesel\\[bench]'")
    contenders += [
        Contender("ours, greedy + swaps", lambda p: lambda: _swapped(p).tolist()),
        Contender("ours, certified 99.99 %", lambda p: lambda: _certified(p)),
        Contender("ours, auto", lambda p: lambda: Auto().choose(p, seeded(0)).indices),
    ]
    return contenders


def _swapped(problem: SelectionProblem) -> np.ndarray:
    return np.array(improve_by_swaps(problem, greedy(problem)), np.int64)


def _certified(problem: SelectionProblem) -> list[int]:
    return solve(problem, _swapped(problem), gap=1e-4).indices


def _submodlib(problem: SelectionProblem) -> Pick:
    from submodlib import FacilityLocationFunction

    function = FacilityLocationFunction(
        n=problem.n_candidates,
        mode="dense",
        separate_rep=True,
        n_rep=problem.n_novel,
        sijs=np.ascontiguousarray(problem.similarity),
    )

    def pick() -> list[int]:
        picks = function.maximize(
            budget=problem.m, optimizer="LazyGreedy", stopIfZeroGain=False, show_progress=False
        )
        return [column for column, _ in picks]

    return pick


def _apricot(problem: SelectionProblem) -> Pick:
    """apricot compiles anew in every call, which its users wait for too."""
    from apricot import FacilityLocationSelection

    columns = problem.by_candidate.astype(np.float64)

    def pick() -> list[int]:
        selector = FacilityLocationSelection(problem.m, metric="ignore", optimizer="lazy")
        return selector.fit(columns).ranking.tolist()

    return pick


def _table(problem: SelectionProblem, timings: list[Timing], picks: dict[str, list[int]]) -> Table:
    table = Table(title=f"{problem.n_novel} x {problem.n_candidates}, m = {problem.m}, K = 1")
    for heading in ("method", "median ms", "20-80 %", "times ours", "value"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    ours = timings[0].median
    for timing in timings:
        table.add_row(
            timing.name,
            f"{1e3 * timing.median:.1f}",
            f"{1e3 * timing.low:.1f}-{1e3 * timing.high:.1f}",
            f"{timing.median / ours:.1f}",
            f"{problem.value(picks[timing.name]):.6f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main(add_arguments, run))
