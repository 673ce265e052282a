"""Memory stated is memory held: the matrix, and one block or one more copy."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.similarity import BLOCK


def peak_bytes(work: Callable[[], object]) -> int:
    work()  # compiled code and caches are no part of it
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_similarities_need_the_result_and_one_block() -> None:
    rng = np.random.default_rng(0)
    candidates = rng.random((30_000, 32), dtype=np.float32)
    novel = rng.random((100, 32), dtype=np.float32)
    names = [str(n) for n in range(len(candidates))]
    result = 4 * 30_000 * 100
    # A block in float64: its centroids, scaled, and its similarities, raw and cut to [-1, 1].
    block = 8 * BLOCK * (3 * 32 + 2 * 100)
    strings = 100 * len(candidates)
    peak = peak_bytes(
        lambda: fb.SelectionProblem.from_centroids(candidates, novel, m=10, names=names)
    )
    assert peak < result + block + strings


@pytest.mark.parametrize(
    ("method", "copies"),
    [
        ("auto", 0.5),
        ("dual", 0.5),
        ("greedy-target", 0.5),
        ("random-greedy", 0.5),
        ("double-greedy", 1.9),  # for a small m; the sorted rows are kept and do not count here
    ],
)
def test_selecting_holds_little_besides_the_matrix(method: str, copies: float) -> None:
    rng = np.random.default_rng(0)
    problem = fb.SelectionProblem(rng.random((300, 8000), dtype=np.float32), m=40, k=2)
    matrix = problem.by_candidate.nbytes
    assert peak_bytes(lambda: fb.select(problem.replace(), method, certify=False)) < copies * matrix
