"""Every backend computes the same F and gradient: enumeration, two references, awkward inputs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import SortedRows, choose_backend, value_and_gradient, walk
from fsl_basesel.multilinear.reference import sorted_probabilities

BACKENDS = ("cpu", "torch", "reference")


def enumerated(
    columns: np.ndarray, floor: float, x: np.ndarray, k: int
) -> tuple[float, np.ndarray]:
    """F and its gradient from their definition: every subset with its probability."""
    n_candidates = len(columns)

    def mean_top(members: list[int]) -> float:
        entries = np.concatenate([columns[members], np.full((k, columns.shape[1]), floor)])
        return float(np.sort(entries, axis=0)[-k:].sum(axis=0).mean() / k)

    def expectation(x: np.ndarray) -> float:
        total = 0.0
        for inside in product([0, 1], repeat=n_candidates):
            chance = np.where(inside, x, 1 - x).prod()
            if chance:
                total += chance * mean_top([u for u in range(n_candidates) if inside[u]])
        return total

    gradient = np.zeros(n_candidates)
    for u in range(n_candidates):
        with_u, without = x.copy(), x.copy()
        with_u[u], without[u] = 1.0, 0.0
        gradient[u] = expectation(with_u) - expectation(without)
    return expectation(x), gradient


def autograd_reference(
    rows: SortedRows, x: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """F and its gradient by automatic differentiation of the forward recursion alone.

    F_n = sum_i q_i x_i P(fewer than K of the first i-1 are in), which has no backward recursion to
    get wrong.
    """
    x = x.detach().clone().requires_grad_()
    q, _, xs = sorted_probabilities(rows, x)
    seen = [torch.ones_like(xs[..., 0])] + [torch.zeros_like(xs[..., 0])] * (k - 1)
    total = xs.new_zeros(xs.shape[:2])
    for i in range(rows.n_candidates):
        probability = xs[..., i]
        total = total + q[:, i] * probability * sum(seen)
        seen = [
            (1 - probability) * now + (probability * seen[j - 1] if j else 0)
            for j, now in enumerate(seen)
        ]
    value = total.mean(1) / k + rows.floor
    (gradient,) = torch.autograd.grad(value.sum(), x, allow_unused=True)
    return value.detach(), torch.zeros_like(x) if gradient is None else gradient


def errors(left: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...]) -> float:
    return max(
        float((a.double() - b.double()).abs().max()) for a, b in zip(left, right, strict=True)
    )


def instance(
    kind: str, n_candidates: int, n_novel: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[SortedRows, torch.Tensor]:
    """Sorted rows and three points: ordinary, mostly whole, and sparse."""
    rng = np.random.default_rng(seed)
    columns = rng.random((n_candidates, n_novel))
    if kind == "negative":
        columns = rng.standard_normal((n_candidates, n_novel))
    elif kind == "ties":
        columns = columns.round(1)
    x = np.stack([rng.random(n_candidates) * scale for scale in (1.0, 1.0, 0.02)])
    x[1] = x[1] < 0.3
    if kind == "selected":
        x[:, rng.random(n_candidates) < 0.1] = 1.0
    single = dtype == torch.float32
    rows = SortedRows.from_columns(
        columns.astype(np.float32) if single else columns, floor=min(0.0, columns.min())
    )
    return rows, torch.from_numpy(x).to(dtype)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("kind", ["random", "negative", "ties"])
def test_equal_to_enumeration(backend: str, k: int, kind: str) -> None:
    rng = np.random.default_rng(k)
    columns = rng.standard_normal((6, 3)) if kind == "negative" else rng.random((6, 3))
    if kind == "ties":
        columns = columns.round(1)
    x = rng.random(6)
    x[0], x[1] = 1.0, 0.0
    floor = min(0.0, float(columns.min()))
    expected = enumerated(columns, floor, x, k)
    value, gradient = value_and_gradient(
        SortedRows.from_columns(columns, floor), torch.from_numpy(x), k, backend
    )
    assert float(value) == pytest.approx(expected[0], abs=1e-14)
    assert gradient.numpy() == pytest.approx(expected[1], abs=1e-14)


@pytest.mark.parametrize("k", [1, 2, 4, 7, 32])
def test_the_two_references_agree(k: int) -> None:
    rows, x = instance("negative", 60, 5)
    assert (
        errors(value_and_gradient(rows, x, k, "reference"), autograd_reference(rows, x, k)) < 1e-13
    )


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("k", range(1, 33))
def test_cpu_equals_the_reference_for_every_k(k: int, dtype: torch.dtype) -> None:
    kind = ("random", "negative", "ties", "selected")[k % 4]
    rows, x = instance(kind, 203, 37, dtype, seed=k)
    got = value_and_gradient(rows, x, k, "cpu")
    assert got[0].dtype == got[1].dtype == dtype
    expected = value_and_gradient(rows, x.double(), k, "reference")
    assert errors(got, expected) < (1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 10, 16, 33])
def test_walks_of_many_chunks_equal_the_reference(k: int, dtype: torch.dtype) -> None:
    length = 5 * walk.CHUNK + 7
    rows, x = instance("random", length, 37, dtype, seed=k)
    expected = value_and_gradient(rows, x.double(), k, "reference")
    got = value_and_gradient(rows, x, k, "cpu")
    assert errors(got, expected) < (1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("kind", ["random", "negative", "ties", "selected"])
@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_torch_equals_the_reference(kind: str, k: int, dtype: torch.dtype) -> None:
    rows, x = instance(kind, 203, 37, dtype)
    expected = value_and_gradient(rows, x.double(), k, "reference")
    got = value_and_gradient(rows, x, k, "torch")
    assert errors(got, expected) < (1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 17), (2, 16), (15, 1), (33, 130), (701, 31)])
@pytest.mark.parametrize("k", [1, 3, 40])
def test_ragged_shapes_and_k_above_the_number_of_candidates(
    backend: str, shape: tuple[int, int], k: int
) -> None:
    rows, x = instance("negative", *shape)
    assert (
        errors(value_and_gradient(rows, x, k, backend), value_and_gradient(rows, x, k, "reference"))
        < 1e-12
    )


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_float32_rows_with_float64_points(backend: str) -> None:
    rows, x = instance("random", 300, 20, torch.float32)
    x = x.double()
    expected = value_and_gradient(rows, x, 3, "reference")
    assert errors(value_and_gradient(rows, x, 3, backend), expected) < 1e-12


def test_a_long_walk_in_float32_stays_within_its_tolerance() -> None:
    rng = np.random.default_rng(0)
    rows = SortedRows.from_columns(rng.random((8000, 8), dtype=np.float32))
    x = torch.from_numpy(rng.random(8000) * 0.004)
    expected = value_and_gradient(rows, x, 24, "cpu")
    assert errors(value_and_gradient(rows, x.float(), 24, "cpu"), expected) < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_is_its_points_one_by_one(backend: str) -> None:
    rows, x = instance("random", 150, 30)
    value, gradient = value_and_gradient(rows, x, 3, backend)
    for i, point in enumerate(x):
        one_value, one_gradient = value_and_gradient(rows, point, 3, backend)
        assert one_value.shape == ()
        assert one_gradient.shape == (150,)
        assert errors((one_value, one_gradient), (value[i], gradient[i])) < 1e-15


@pytest.mark.parametrize("k", range(1, 11))
@pytest.mark.parametrize("largest", [1e-4, 0.02, 0.25])
def test_small_probabilities_keep_their_digits(k: int, largest: float) -> None:
    rng = np.random.default_rng(k)
    rows = SortedRows.from_columns(rng.random((300, 37)))
    x = torch.from_numpy(largest * rng.random(300))
    got = value_and_gradient(rows, x, k, "cpu")
    expected = value_and_gradient(rows, x, k, "reference")
    for a, b in zip(got, expected, strict=True):
        assert float((a - b).abs().max() / b.abs().max()) < 1e-12


def test_arrays_give_arrays_and_tensors_give_tensors() -> None:
    rows, x = instance("random", 30, 5)
    expected = value_and_gradient(rows, x, 2)
    for backend in BACKENDS:
        value, gradient = value_and_gradient(rows, x.numpy(), 2, backend)
        assert isinstance(value, np.ndarray)
        assert isinstance(gradient, np.ndarray)
        assert errors((torch.from_numpy(value), torch.from_numpy(gradient)), expected) < 1e-12


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_rows_of_no_novel_class_give_the_floor_and_no_slope(backend: str) -> None:
    rows = SortedRows(np.empty((0, 9)), np.empty((0, 9), np.uint32), -0.5)
    value, gradient = value_and_gradient(rows, np.full(9, 0.1), 2, backend)
    assert float(value) == -0.5
    assert gradient.tolist() == [0.0] * 9


def test_early_termination_is_right_where_x_is_whole() -> None:
    """Counting entries up to K-1 would stop one position too early here."""
    columns = np.array([[0.9], [0.8], [0.5], [0.4]])
    rows = SortedRows.from_columns(columns)
    x = torch.tensor([1.0, 1.0, 1.0, 1.0]).double()
    _, gradient = value_and_gradient(rows, x, 2, "cpu")
    # Without the first, the third would take its place: 0.9 - 0.5, and so on.
    assert (2 * gradient).tolist() == pytest.approx([0.4, 0.3, 0.0, 0.0])


@given(
    columns=arrays.arrays(
        np.float64, st.tuples(st.integers(1, 40), st.integers(1, 20)), elements=st.floats(-2, 2)
    ),
    k=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_cpu_equals_the_reference_on_any_matrix(columns: np.ndarray, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.random((2, len(columns))) ** rng.choice([0.1, 1, 5]))
    rows = SortedRows.from_columns(columns, floor=min(0.0, columns.min()))
    assert (
        errors(value_and_gradient(rows, x, k, "cpu"), value_and_gradient(rows, x, k, "reference"))
        < 1e-12
    )


def test_bad_arguments_are_named() -> None:
    rows, x = instance("random", 10, 3)
    with pytest.raises(InputError, match="last dimension of 10"):
        value_and_gradient(rows, x[:, :4], 1)
    with pytest.raises(InputError, match="float32 or float64"):
        value_and_gradient(rows, x.int(), 1)
    with pytest.raises(InputError, match="`k`"):
        value_and_gradient(rows, x, 0)
    with pytest.raises(InputError, match="one of auto, cpu, torch, triton, reference"):
        value_and_gradient(rows, x, 1, backend="gpu")
    with pytest.raises(InputError, match="NaN"):
        value_and_gradient(rows, torch.full_like(x, torch.nan), 1)


@pytest.mark.parametrize(
    ("device", "k", "expected"),
    [
        ("cpu", 5, "cpu"),
        ("cuda", 5, "triton"),
        ("cuda", 32, "triton"),
        ("cuda", 33, "torch"),
        ("mps", 5, "torch"),
    ],
)
def test_auto_goes_by_device_and_k(
    device: str, k: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsl_basesel.multilinear.triton._refusal", lambda: "")
    assert choose_backend(device, k) == expected
