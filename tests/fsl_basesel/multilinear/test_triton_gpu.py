"""The Triton kernels on a GPU, where there is one: what the interpreter cannot show."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fsl_basesel as fb
from fsl_basesel.multilinear import SortedRows, value_and_gradient
from tests.fsl_basesel.multilinear.interpreted import CASES, Case, gradient_errors

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

SHAPES = [(37, 300, 3), (130, 2111, 2), (3, 20_011, 1)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradient_equal_the_reference(case: Case) -> None:
    errors = gradient_errors(case, "cuda")
    assert max(errors.values()) <= (1e-12 if case.double else 2e-6)


def make(n_novel: int, n_candidates: int, n_samples: int) -> tuple[SortedRows, torch.Tensor]:
    rng = np.random.default_rng(n_candidates)
    rows = SortedRows.from_columns(rng.random((n_candidates, n_novel), dtype=np.float32))
    return rows, torch.from_numpy(rng.random((n_samples, n_candidates), dtype=np.float32)) * 0.02


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("k", [1, 5, 32])
def test_large_shapes_equal_the_cpu(shape: tuple[int, int, int], k: int) -> None:
    rows, x = make(*shape)
    value, gradient = value_and_gradient(rows, x, k, "triton")
    expected, slopes = value_and_gradient(rows, x.double(), k, "cpu")
    np.testing.assert_allclose(value, expected, atol=1e-5)
    np.testing.assert_allclose(gradient, slopes, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_bits_are_the_same_every_time_and_nothing_waits(shape: tuple[int, int, int]) -> None:
    rows, x = make(*shape)
    x = x.cuda()
    first = value_and_gradient(rows, x, 5)[1]
    torch.cuda.set_sync_debug_mode("error")
    try:
        second = value_and_gradient(rows, x, 5)[1]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(first, second)


def test_algorithm_4_on_the_device_selects_what_the_cpu_selects() -> None:
    similarity = np.random.default_rng(0).random((40, 300))
    problem = fb.SelectionProblem(similarity, m=60, k=3, lam=0.2, selected=(5, 9))
    on_gpu = fb.select(problem, fb.ContinuousDoubleGreedy(backend="triton"))
    on_cpu = fb.select(problem, fb.ContinuousDoubleGreedy(backend="cpu"))
    assert on_gpu.indices == on_cpu.indices
