"""The CPU backend with any number of threads, in forked children and workers, compiled once."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from fsl_basesel.multilinear import SortedRows, value_and_gradient

COUNT_COMPILATIONS = """
import json, sys
import numpy as np
import fsl_basesel as fb

rng = np.random.default_rng(0)
problem = fb.SelectionProblem(rng.random((200, 60)), m=20, k=3, lam=0.2)
found = fb.ContinuousDoubleGreedy().select(problem)
compiled, loaded = [], 0
for name, module in list(sys.modules.items()):
    if name.startswith("fsl_basesel"):
        for key, value in vars(module).items():
            stats = getattr(value, "stats", None)
            if hasattr(stats, "cache_misses"):
                loaded += sum(stats.cache_hits.values())
                if sum(stats.cache_misses.values()):
                    compiled.append(f"{name}.{key}")
print(json.dumps({"indices": found.indices, "compiled": compiled, "loaded": loaded}))
"""


def work() -> tuple[torch.Tensor, torch.Tensor]:
    """A gradient over several blocks of rows, so that threads are used where they may be."""
    rng = np.random.default_rng(0)
    rows = SortedRows.from_columns(rng.random((90, 700), dtype=np.float32))
    return value_and_gradient(rows, torch.from_numpy(rng.random((2, 90))), 3, "cpu")


def same(left: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("threads", ["1", "2", "3", "7"])
def test_the_bits_do_not_depend_on_the_number_of_threads(
    threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = work()
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    assert same(work(), expected)


def send_work(to: Connection) -> None:
    to.send([part.numpy() for part in work()])
    to.close()


def test_a_forked_child_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    expected = work()  # the parent's threads exist before the fork
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=send_work, args=(send,))
    child.start()
    assert receive.poll(120), "the forked child hangs"
    got = receive.recv()
    child.join(30)
    assert child.exitcode == 0
    assert same(tuple(map(torch.from_numpy, got)), expected)


class Gradients(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return work()[1]


def test_data_loader_workers_compute_the_same() -> None:
    expected = work()[1]
    for batch in DataLoader(Gradients(), batch_size=1, num_workers=2, timeout=120):
        assert torch.equal(batch[0], expected)


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}

    def run() -> dict:
        command = [sys.executable, "-c", COUNT_COMPILATIONS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    first, second = run(), run()
    assert first["compiled"]
    assert second["compiled"] == []
    assert second["loaded"] > 0
    assert second["indices"] == first["indices"]
