"""How long the library takes to start, beside bare `import torch` and `import numba`, in one run.

    python benchmarks/startup.py

Every command runs in a process of its own; rounds are interleaved, and the first, which may compile
and fill caches, does not count. Processor time is that of all threads of the process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from timing import main

from fsl_basesel.cli import COMMANDS
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import csv_text, write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.description = "Start-up times, each in a process of its own."
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (%(default)s)")
    parser.add_argument("--csv", metavar="FILE", help="also write every figure to FILE")


def run(args: argparse.Namespace) -> int:
    """Measure, print medians, write the CSV."""
    if args.rounds < 1:
        raise InputError(f"Expected --rounds to be at least 1 but got {args.rounds}.")
    with tempfile.TemporaryDirectory() as folder:
        commands = contenders(Path(folder))
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(args.rounds + 1):
            for name, words in commands.items():
                times = seconds(words)
                if number:
                    taken[name].append(times)
    table = Table(title="Seconds to start and finish, medians")
    for heading in ("command", "wall", "processor", "times import numba"):
        table.add_column(heading, justify="left" if heading == "command" else "right")
    medians = {name: np.median(times, axis=0) for name, times in taken.items()}
    for name, (wall, processor) in medians.items():
        ratio = wall / medians["import numba"][0]
        table.add_row(name, f"{wall:.2f}", f"{processor:.2f}", f"{ratio:.2f}")
    Console().print(table)
    if args.csv:
        rows = [{"command": k, "wall": w, "processor": p} for k, (w, p) in medians.items()]
        write_text(args.csv, csv_text(rows))
    return 0


def contenders(folder: Path) -> dict[str, list[str]]:
    """What is started, by name; the selection is 100 of 1000 classes, in a file, for 100 others."""
    rng = np.random.default_rng(0)
    for name, count in (("pool", 1000), ("task", 100)):
        names = [f"{name} {number}" for number in range(count)]
        np.savez(folder / f"{name}.npz", features=rng.random((count, 512)), names=names)
    python = [sys.executable, "-c"]
    command = [sys.executable, "-m", "fsl_basesel"]
    task = ["--novel", str(folder / "task.npz")]
    return {
        "import torch": [*python, "import torch"],
        "import numba": [*python, "import numba"],
        "import fsl_basesel": [*python, "import fsl_basesel"],
        "fb.select and SelectionProblem": [
            *python,
            "import fsl_basesel as fb; fb.select, fb.SelectionProblem",
        ],
        "--help": [*command, "--help"],
        **{f"{name} --help": [*command, name, "--help"] for name in COMMANDS},
        "select, 1000 classes": [*command, "select", str(folder / "pool.npz"), *task, "-m", "100"],
    }


def seconds(words: Sequence[str]) -> tuple[float, float]:
    """Wall and processor time of a process."""
    start = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise InputError(f"Expected {' '.join(words)} to end well but got {process.returncode}.")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main(add_arguments, run))
