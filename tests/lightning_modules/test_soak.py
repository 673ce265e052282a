"""A short version of `benchmarks/soak.py`: no case is wrong, and the table says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import soak

SOAK = Path(soak.__file__)


def test_random_faults_leave_no_trace(tmp_path: Path) -> None:
    log = tmp_path / "soak.jsonl"
    command = [sys.executable, str(SOAK), "--seed", "100", "--cases", "4", "--log", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SOAK.parents[1])
    assert done.returncode == 0, done.stdout + done.stderr
    cases = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(cases) == 4
    assert all(case["outcome"] == "identical" for case in cases)
    (setting,) = {case["name"] for case in cases}
    rows = done.stdout.splitlines()
    assert f"| fault | {setting} | all |" in rows
    assert "| all | 4: 4 / 0 / 0 | 4: 4 / 0 / 0 |" in rows


def test_a_difference_is_told_and_counted(tmp_path: Path) -> None:
    whole = {"classes 0": ["a"], "logged numbers": {"loss at 3": "0x1p+0", "loss at 4": "0x1p+0"}}
    broken = {"classes 0": ["b"], "logged numbers": {"loss at 3": "0x1p+0"}}
    assert soak.differences(whole, whole) == []
    assert soak.differences(whole, broken) == ["classes 0", "logged numbers: loss at 4"]
    assert soak.differences(whole, {}) == ["it did not finish"]
    log = tmp_path / "soak.jsonl"
    kinds = [("one process", "wrong"), ("one process", "identical"), (soak.ALONE, "wrong")]
    cases = [{"name": n, "fault": {"kind": "SIGTERM"}, "outcome": o} for n, o in kinds]
    log.write_text("\n".join(map(json.dumps, cases)))
    rows = soak.table(log)
    assert rows[0] == "| fault | one process | all | Lightning alone |"
    assert "| SIGTERM | 2: 1 / 0 / 1 | 2: 1 / 0 / 1 | 1: 0 / 0 / 1 |" in rows
