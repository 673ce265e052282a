"""The memory of a command is that of all its processes: one that holds a known amount."""

from __future__ import annotations

import sys
from pathlib import Path

import demo_memory
import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc"
)

HOLDER = """
import subprocess, sys, time
held = "import time; a = b'x' * 80_000_000; time.sleep(2)"
child = subprocess.Popen([sys.executable, "-c", held])
mine = b"x" * 40_000_000
sys.exit(child.wait() or 3)
"""


def test_the_memory_of_all_processes_counts() -> None:
    code, peak, _ = demo_memory.watch([sys.executable, "-c", HOLDER])
    assert code == 3
    assert len(peak.each) == 2
    assert peak.each[0] > 80_000_000
    assert peak.each[1] > 40_000_000
    assert peak.memory == sum(peak.each) < 220_000_000  # the rest is two bare interpreters
