"""What is imported to start: no torch, numba or matplotlib where none is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fsl_basesel.cli import COMMANDS

HEAVY = "{'torch', 'numba', 'matplotlib', 'pytorch_lightning', 'scipy', 'sklearn', 'pyarrow'}"


def imported(words: list[str], forbidden: str) -> None:
    """Run a command and fail if one of the libraries was imported."""
    code = (
        "import sys\nfrom fsl_basesel.cli import main\n"
        f"code = main({words!r})\n"
        f"found = {forbidden} & set(sys.modules)\n"
        "assert code == 0, code\nassert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_imports_nothing_heavy(command: str | None) -> None:
    imported([*([] if command is None else [command]), "--help"], HEAVY)


def test_a_selection_from_files_needs_no_torch(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, count in (("pool", 12), ("task", 4)):
        np.savez(tmp_path / f"{name}.npz", features=rng.random((count, 5)))
    words = ["select", str(tmp_path / "pool.npz"), "--novel", str(tmp_path / "task.npz"), "-m", "3"]
    imported(words, "{'torch', 'matplotlib', 'pytorch_lightning', 'sklearn', 'pyarrow'}")


def test_help_of_fit_lists_its_own_flags_and_says_where_the_others_are(run) -> None:
    result = run("fit", "--help")
    assert result.code == 0
    for words in ("--config FILE", "--run DIR", "--ckpt-path", "`fit --help-all` lists them"):
        assert words in result.out
    assert max(map(len, result.out.splitlines())) <= 90


def test_help_all_of_fit_lists_those_of_lightning(run) -> None:
    result = run("fit", "--help-all")
    assert result.code == 0
    for words in ("--ckpt-path", "--run", "--trainer.max_epochs", "--model"):
        assert words in result.out
