"""One selection on one and on two processes of one machine: memory per process, and time.

    python benchmarks/processes.py [--candidates 200000] [--novel 2000]

Class centroids are drawn in 64 dimensions, float32, and written to files; the command line is run
on them, by itself and by torchrun. Memory is the highest of any process (Linux's ru_maxrss), time
is wall time with everything: start, reading, similarities, choice and proof. Figures in
docs/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MODULE = ["-m", "fsl_basesel"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def write_centroids(folder: Path, candidates: int, novel: int) -> None:
    """Centroids around 500 centres."""
    rng = np.random.default_rng(0)
    centres = np.abs(rng.standard_normal((500, 64), np.float32))
    for name, count in (("pool", candidates), ("task", novel)):
        rows = centres[rng.integers(0, 500, count)] + rng.standard_normal((count, 64), np.float32)
        np.savez(folder / f"{name}.npz", centroids=np.abs(rows))


def main() -> int:
    """Run and print a line for each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=200_000, help="(%(default)s)")
    parser.add_argument("--novel", type=int, default=2000, help="(%(default)s)")
    parser.add_argument("-m", type=int, default=1000, help="classes to choose (%(default)s)")
    parser.add_argument("--method", default="auto", help="(%(default)s)")
    args = parser.parse_args()
    chosen = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_centroids(folder, args.candidates, args.novel)
        for processes in (2, 1):  # the highest memory of any child so far: two take less each
            start = time.perf_counter()
            launcher = [*TORCHRUN, str(processes)] if processes > 1 else []
            words = [*MODULE, "select", str(folder / "pool.npz"), "-m", str(args.m), "-k", "3"]
            words += ["--novel", str(folder / "task.npz"), "--method", args.method, "--no-certify"]
            words += ["--format", "json"]
            done = subprocess.run(
                [sys.executable, *launcher, *words], check=True, stdout=subprocess.PIPE, text=True
            )
            seconds = time.perf_counter() - start
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
            found = json.loads(done.stdout)
            chosen.append(found["indices"])
            gap = "-" if found["gap"] is None else f"{100 * found['gap']:.3f} %"
            print(f"{processes} process(es): {memory:.2f} GB each, {seconds:.0f} s, gap {gap}")
    matrix = args.candidates * args.novel * 4 / 1e9
    same = "the same" if chosen[0] == chosen[1] else "DIFFERENT"
    print(f"matrix {matrix:.1f} GB; {same} classes")
    return int(chosen[0] != chosen[1])


if __name__ == "__main__":
    sys.exit(main())
