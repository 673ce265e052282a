"""What similarities cost: cosine, centred and whitened matrices, in one run.

    python benchmarks/similarities.py

Processor time, interleaved rounds; 1000 novel classes, 21,000 candidates, 1280 dimensions.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import numpy as np
from timing import interleaved, main, write_csv

from fsl_basesel.problem import SelectionProblem
from fsl_basesel.similarity import SIMILARITIES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.description = "Processor time of the similarity matrix, by name of the similarity."
    parser.add_argument("--novel", type=int, default=1000, help="novel classes (%(default)s)")
    parser.add_argument("--candidates", type=int, default=21000, help="candidates (%(default)s)")
    parser.add_argument("--dimensions", type=int, default=1280, help="dimensions (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (%(default)s)")
    parser.add_argument("--csv", metavar="FILE", help="also write every figure to FILE")


def run(args: argparse.Namespace) -> int:
    """Run and print seconds and multiples of the cosine's."""
    rng = np.random.default_rng(0)
    candidates, novel = (
        rng.standard_normal((count, args.dimensions), np.float32) + 1
        for count in (args.candidates, args.novel)
    )
    make = partial(SelectionProblem.from_centroids, candidates, novel, m=1, k=1)
    contenders = {name: partial(make, similarity=name) for name in SIMILARITIES}
    setting = f"{args.novel} x {args.candidates}, {args.dimensions} dimensions"
    timings = interleaved(contenders, args.rounds, setting, clock="processor")
    print(f"{setting}, {timings[0].device}, processor time")
    for timing in timings:
        multiple = timing.median / timings[0].median
        print(f"{timing.name:10} {timing.median:6.2f} s  {multiple:.2f} times cosine")
    if args.csv:
        write_csv(args.csv, timings)
    return 0


if __name__ == "__main__":
    sys.exit(main(add_arguments, run))
