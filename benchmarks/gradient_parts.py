"""What each part of the CPU gradient brings, by processor time: the same work with and without it.

    python benchmarks/gradient_parts.py

Contenders take turns and the fastest of their rounds counts. Figures in docs/kernels.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from gradient import rows_of
from timing import CLOCKS

from fsl_basesel.multilinear import SortedRows, cpu, odds, value_and_gradient
from fsl_basesel.multilinear.order import likely_reach

SHAPE, K = "1000x21000", 5


def fastest(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Least milliseconds of each over the rounds."""
    now = CLOCKS["processor"]
    best = dict.fromkeys(contenders, np.inf)
    for work in contenders.values():
        work()
    for _ in range(rounds):
        for name, work in contenders.items():
            start = now()
            work()
            best[name] = min(best[name], 1e3 * (now() - start))
    return best


def full_walk(rows: SortedRows, x: torch.Tensor) -> None:
    """The gradient with no walk ended before the end of its row."""
    kept = dict(cpu.EPSILON)
    cpu.EPSILON.update(dict.fromkeys(kept, 0.0))
    try:
        value_and_gradient(rows, x, K, backend="cpu")
    finally:
        cpu.EPSILON.update(kept)


def both_ways(rows: SortedRows, x: torch.Tensor, k: int) -> None:
    """The gradient by the walk that serves every x."""
    kept = odds.LARGEST
    odds.LARGEST = -1.0
    try:
        value_and_gradient(rows, x, k, backend="cpu")
    finally:
        odds.LARGEST = kept


def apart(rows: SortedRows, points: torch.Tensor) -> None:
    """The gradients of a batch one by one."""
    for point in points:
        value_and_gradient(rows, point, K, backend="cpu")


def main(argv: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default=SHAPE)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args(argv)
    rows = rows_of(args.shape, 0)
    columns = np.ascontiguousarray(
        torch.empty_like(rows.values).scatter_(1, rows.order.long(), rows.values).numpy().T
    )
    uniform = torch.from_numpy(np.random.default_rng(0).random(rows.n_candidates, np.float32))
    print("| | with, ms | without, ms | times |")
    print("|---|---|---|---|")

    def line(title: str, ours: Callable[[], object], other: Callable[[], object]) -> None:
        best = fastest({"with": ours, "without": other}, args.rounds)
        ratio = best["without"] / best["with"]
        print(f"| {title} | {best['with']:.3g} | {best['without']:.3g} | {ratio:.1f} |", flush=True)

    for k in (1, K, 10):
        x = 0.02 * uniform
        by_odds = partial(value_and_gradient, rows, x, k, backend="cpu")
        line(
            f"by odds instead of both ways, mean x = 0.01, K = {k}",
            by_odds,
            partial(both_ways, rows, x, k),
        )
    for mean in (0.01, 0.25):
        x = 2 * mean * uniform
        both = torch.stack([x, 1 - x])

        one = partial(value_and_gradient, rows, x, K, backend="cpu")
        double = partial(value_and_gradient, rows, x.double(), K, backend="cpu")
        line(f"walks that end early, mean x = {mean}", one, partial(full_walk, rows, x))
        line(f"float32 instead of float64, mean x = {mean}", one, double)
        line(
            f"x and y = 1 - x in one batch, mean x = {mean}",
            partial(value_and_gradient, rows, both, K, backend="cpu"),
            partial(apart, rows, both),
        )
    head = likely_reach(0.01, K)
    line(
        f"sorting the first {head} of a row only, enough at mean x = 0.01",
        lambda: SortedRows.from_columns(columns, prefix=head),
        lambda: SortedRows.from_columns(columns),
    )
    line(
        "radix sort instead of torch.sort",
        lambda: SortedRows.from_columns(columns),
        lambda: torch.sort(torch.from_numpy(columns).T, descending=True, stable=True),
    )


if __name__ == "__main__":
    main()
