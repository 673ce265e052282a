"""The Triton kernels on a GPU, where there is one: what the interpreter cannot show."""

from __future__ import annotations

import gradient_cuda
import numpy as np
import pytest
import torch

from fsl_basesel import SelectionProblem
from fsl_basesel.multilinear import cpu, device_steps
from fsl_basesel.multilinear import triton as backend
from fsl_basesel.multilinear.order import SortedRows
from fsl_basesel.rounding import pipage
from fsl_basesel.selectors.double_greedy import fractional
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
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("k", [1, 5, 32])
def test_large_shapes_equal_the_cpu(
    shape: tuple[int, int, int], deterministic: bool, k: int
) -> None:
    rows, x = make(*shape)
    value, gradient = backend.value_and_gradient(rows, x, k, deterministic=deterministic)
    expected, slopes = cpu.value_and_gradient(rows, x.double(), k)
    np.testing.assert_allclose(value, expected, atol=1e-5)
    np.testing.assert_allclose(gradient, slopes, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_deterministic_gradients_have_the_same_bits_every_time(shape: tuple[int, int, int]) -> None:
    rows, x = make(*shape)
    first, second = (
        backend.value_and_gradient(rows, x, 5, deterministic=True)[1] for _ in range(2)
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nothing_waits_for_the_device_and_a_graph_replays_it(shape: tuple[int, int, int]) -> None:
    rows, x = make(*shape)
    rows, x = backend.place_rows(rows, "cuda"), x.cuda()
    out = torch.empty_like(x)

    def work() -> None:
        out.copy_(backend.value_gradient_left(rows, x, 5, deterministic=True)[1])

    replay = gradient_cuda.captured(work)
    expected = out.clone()
    out.fill_(float("nan"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        replay()
        backend.value_gradient_left(rows, x, 5)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(out, expected)


def test_algorithm_4_on_the_device_selects_what_the_cpu_selects() -> None:
    similarity = np.random.default_rng(0).random((40, 300))
    problem = SelectionProblem(similarity, m=60, k=3, lam=0.2, selected=(5, 9))
    chosen = device_steps.solve(
        backend.place_rows(problem.sorted_rows, "cuda"),
        torch.from_numpy(problem.modular).cuda(),
        torch.from_numpy(~problem.is_selected).cuda(),
        *(problem.m, problem.k),
    )
    assert chosen == pipage(problem, fractional(problem)).tolist()
