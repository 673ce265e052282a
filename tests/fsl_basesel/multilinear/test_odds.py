"""Walks by odds: the same gradient as both ways, wherever they are used."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fsl_basesel.multilinear import PrefixTooShortError, SortedRows, odds, value_and_gradient

LENGTHS = (1, 7, 127, 128, 129, 300)


def rows_and_point(
    length: int, n_novel: int, largest: float, dtype: torch.dtype, seed: int, kind: str = "random"
) -> tuple[SortedRows, torch.Tensor]:
    """Sorted rows, and a point uniform up to `largest`, which it reaches."""
    rng = np.random.default_rng(seed)
    columns = rng.random((length, n_novel))
    if kind == "negative":
        columns = rng.standard_normal((length, n_novel))
    elif kind == "ties":
        columns = columns.round(1)
    x = largest * rng.random(length)
    x[rng.integers(length)] = largest
    kept = np.float32 if dtype == torch.float32 else np.float64
    rows = SortedRows.from_columns(columns.astype(kept), floor=min(0.0, columns.min()))
    return rows, torch.from_numpy(x).to(dtype)


def relative_error(got: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> float:
    """The largest error of value and gradient, each as a share of its largest entry."""
    return max(
        float((a.double() - b.double()).abs().max() / b.abs().max().clamp(min=1e-30))
        for a, b in zip(got, expected, strict=True)
    )


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("largest", [1e-4, 0.02, 0.1, 0.25])
@pytest.mark.parametrize("k", range(1, 11))
def test_equal_to_the_reference(k: int, largest: float, dtype: torch.dtype) -> None:
    kind = ("random", "negative", "ties")[k % 3]
    length = LENGTHS[k % len(LENGTHS)]
    rows, x = rows_and_point(length, 37, largest, dtype, seed=k, kind=kind)
    expected = value_and_gradient(rows, x.double(), k, "reference")
    error = relative_error(value_and_gradient(rows, x, k, "cpu"), expected)
    assert error < (1e-12 if dtype == torch.float64 else 2e-6)


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("n_novel", [1, 15, 16, 17, 300])
def test_equal_to_both_ways(k: int, n_novel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, x = rows_and_point(200, n_novel, 0.2, torch.float64, seed=k)
    by_odds = value_and_gradient(rows, x, k, "cpu")
    monkeypatch.setattr(odds, "LARGEST", -1.0)
    both_ways = value_and_gradient(rows, x, k, "cpu")
    assert 0 < relative_error(by_odds, both_ways) < 1e-12  # 0: it was the same walk


def test_small_slopes_far_down_a_row_keep_their_digits() -> None:
    """With one running sum down the row they would be what is left of much larger numbers."""
    rows, x = rows_and_point(1000, 1, 0.02, torch.float32, seed=0)
    _, expected = value_and_gradient(rows, x.double(), 1, "reference")
    _, got = value_and_gradient(rows, x, 1, "cpu")
    assert float(expected.max() / expected.min()) > 1e3
    assert float(((got - expected) / expected).abs().max()) < 1e-4


@pytest.mark.parametrize("k", [1, 4, 7, 10])
def test_walks_end_early_and_are_refused_a_prefix_that_is_too_short(k: int) -> None:
    rows, x = rows_and_point(2000, 40, 0.25, torch.float64, seed=k)
    columns = torch.empty_like(rows.values).scatter_(1, rows.order.long(), rows.values).numpy().T
    expected = value_and_gradient(rows, x, k, "reference")
    head = SortedRows.from_columns(np.ascontiguousarray(columns), prefix=900)
    assert relative_error(value_and_gradient(head, x, k, "cpu"), expected) < 1e-11
    short = SortedRows.from_columns(np.ascontiguousarray(columns), prefix=60)
    with pytest.raises(PrefixTooShortError):
        value_and_gradient(short, x, k, "cpu")


def test_a_batch_of_small_and_large_points_keeps_its_order_and_shape() -> None:
    rows, small = rows_and_point(90, 20, 0.02, torch.float64, seed=0)
    scales = torch.tensor([[1.0, 40.0, 0.0], [10.0, 0.5, 49.0]]).double()
    batch = scales[..., None] * small
    value, gradient = value_and_gradient(rows, batch, 5, "cpu")
    assert (value.shape, gradient.shape) == ((2, 3), (2, 3, 90))
    for at in np.ndindex(2, 3):
        expected = value_and_gradient(rows, batch[at], 5, "reference")
        assert relative_error((value[at], gradient[at]), expected) < 1e-12
    assert float(value[0, 2]) == 0.0


@pytest.mark.parametrize("largest", [0.1, 1.0])
def test_rows_of_no_novel_class_give_the_floor_and_no_slope(largest: float) -> None:
    rows, x = rows_and_point(9, 1, largest, torch.float64, seed=0)
    none = SortedRows(rows.values[:0], rows.order[:0], -0.5, 9)
    value, gradient = value_and_gradient(none, x, 2, "cpu")
    assert float(value) == -0.5
    assert gradient.tolist() == [0.0] * 9


@given(
    largest=st.floats(0, 0.25),
    k=st.integers(1, 10),
    extra=st.integers(0, 3),
    epsilon=st.sampled_from([1e-6, 1e-13]),
)
def test_what_the_series_leaves_out_is_below_epsilon(
    largest: float, k: int, extra: int, epsilon: float
) -> None:
    states = min(10, k + extra)
    terms = odds.terms_for(largest, k, states, epsilon)
    assert 1 <= terms <= states
    assert terms >= k or (largest / (1 - largest)) ** terms <= epsilon
