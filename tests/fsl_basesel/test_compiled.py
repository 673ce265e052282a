"""Machine code on disk never outlives the source it was made from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fsl_basesel.compiled import forget_stale_code

CALLED = """
from fsl_basesel.compiled import kernel

@kernel
def number():
    return {number}
"""
CALLER = """
from fsl_basesel.compiled import forget_stale_code, kernel
from pathlib import Path
forget_stale_code(Path(__file__).parent)
from called import number

@kernel
def twice():
    return 2 * number()

print(twice())
"""


def run(folder: Path) -> str:
    command = [sys.executable, "-c", "import caller"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_change_in_a_called_kernel_reaches_its_callers(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED.format(number=1))
    assert run(tmp_path) == "2"
    (tmp_path / "called.py").write_text(CALLED.format(number=21))
    assert run(tmp_path) == "42"


def test_nothing_is_dropped_while_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(CALLED.format(number=1))
    assert forget_stale_code(tmp_path)
    code = tmp_path / "__pycache__" / "module.number.nbi"
    code.touch()
    assert not forget_stale_code(tmp_path)
    assert code.exists()
    (tmp_path / "other.py").write_text("no kernel here")
    assert not forget_stale_code(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions work differently there")
def test_a_read_only_package_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module.py").write_text(CALLED.format(number=1))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert not forget_stale_code(tmp_path)
