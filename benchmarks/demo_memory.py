"""Peak memory of the demo, all its processes together.

    python benchmarks/demo_memory.py                       # what `make demo` runs, in a new folder
    python benchmarks/demo_memory.py -- COMMAND WORDS ...  # any other command

Five times a second the proportional set sizes (Linux's PSS: a page that processes share is shared
out among them) of all processes of the command's session are summed. A peak shorter than a fifth
of a second may be missed; files in the page cache do not count.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
SECONDS = 0.2


@dataclass(frozen=True)
class Peak:
    """The most memory at one moment.

    Attributes:
        memory: PSS of all processes, in bytes.
        each: PSS of each of them, the largest first.
        after: seconds since the start of the command.
    """

    memory: int = 0
    each: tuple[int, ...] = ()
    after: float = 0.0


def session_memory(session: int) -> list[int]:
    """PSS in bytes of every process of a session, the largest first."""
    sizes = []
    for folder in PROC.iterdir():
        if folder.name.isdigit() and _session_of(folder) == session:
            sizes.append(_pss(folder))
    return sorted(sizes, reverse=True)


def _session_of(folder: Path) -> int | None:
    try:
        # After the name in brackets, which may hold anything: state, parent, group, session.
        return int((folder / "stat").read_text().rpartition(")")[2].split()[3])
    except (OSError, IndexError):
        return None  # it ended in the meantime


def _pss(folder: Path) -> int:
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def watch(words: Sequence[str]) -> tuple[int, Peak, float]:
    """Run a command in a session of its own; its exit code, its peak and its seconds."""
    start, peak = time.perf_counter(), Peak()
    process = subprocess.Popen(words, start_new_session=True)
    while process.poll() is None:
        sizes = session_memory(process.pid)
        if sum(sizes) > peak.memory:
            peak = Peak(sum(sizes), tuple(sizes), time.perf_counter() - start)
        time.sleep(SECONDS)
    return process.returncode, peak, time.perf_counter() - start


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo, or the command given, and print its peak."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="*", help="instead of the demo, after --")
    args = parser.parse_args(argv)
    if not (PROC / "self" / "smaps_rollup").exists():
        parser.error("Expected Linux 4.14 or later, whose /proc has smaps_rollup, but it has none.")
    with tempfile.TemporaryDirectory() as folder:
        demo = [sys.executable, "-m", "fsl_basesel", "demo", "--out-dir", folder]
        code, peak, seconds = watch(args.command or demo)
    each = " + ".join(f"{size / 2**20:.0f}" for size in peak.each if size >= 2**20)
    print(
        f"Peak memory: {peak.memory / 2**20:.0f} MiB (PSS, {len(peak.each)} processes together: "
        f"{each}), {peak.after:.0f} s after the start; {seconds:.0f} s in all."
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
