"""Small pools and tasks on disk, and a way to run the command line inside the test process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fsl_basesel.cli import main

POOL_NAMES = [f"{word}-{i}" for i in range(5) for word in ("owl", "élan", "[b]牛[/b]", "a, b")]
TASK_NAMES = ["狐", "bat", ":smile:", "yak", "eel", "fly"]


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `fsl-basesel` with these words at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words: object) -> Result:
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return Result(code, printed.out, printed.err)

    return call


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """20 candidates as centroids."""
    path = tmp_path / "pool.npz"
    centroids = np.random.default_rng(1).random((len(POOL_NAMES), 6))
    np.savez(path, centroids=centroids, names=POOL_NAMES)
    return path


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """6 novel classes as 3 samples each."""
    path = tmp_path / "task.npz"
    samples = np.random.default_rng(2).random((3 * len(TASK_NAMES), 6)).astype(np.float16)
    labels = np.arange(len(samples)) % len(TASK_NAMES)
    np.savez(path, features=samples, labels=labels, names=TASK_NAMES)
    return path
