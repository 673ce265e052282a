"""Processor time of a first selection with an empty numba cache, and with a warm cache.

python benchmarks/compile_time.py
python benchmarks/compile_time.py --tree ../other-worktree
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import main

HERE = Path(__file__).resolve().parents[1]
WORKER = """
import sys, time
import numpy as np
import fsl_basesel as fb

rng = np.random.default_rng(0)
problem = fb.SelectionProblem(rng.random((100, 400), dtype=np.float32), m=50, k=3, lam=0.2)
start = time.process_time()
fb.select(problem, sys.argv[1], certify=False)
print(time.process_time() - start)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.description = __doc__
    parser.add_argument("--tree", default=str(HERE), help="the tree to measure (this one)")


def run(args: argparse.Namespace) -> int:
    """Measure and print a Markdown table."""
    print("| method | first call, s of processor time | cache warm |")
    print("|---|---|---|")
    for method in ("double-greedy", "auto"):
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (_seconds(method, args.tree, cache) for _ in range(2))
        print(f"| {method} | {cold:.1f} | {warm:.2f} |", flush=True)
    return 0


def _seconds(method: str, tree: str, cache: str) -> float:
    settings = {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": tree, "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WORKER, method]
    done = subprocess.run(
        command, env=os.environ | settings, cwd=tree, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(main(add_arguments, run))
