"""Rows are sorted as a stable comparison sort would, in the memory that was promised."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import SortedRows

pytestmark = pytest.mark.usefixtures("poisoned")


def columns_of(kind: str, shape: tuple[int, int], dtype: type) -> np.ndarray:
    rng = np.random.default_rng(hash(shape) % 1000)
    if kind == "ties":
        columns = rng.integers(-3, 4, shape) / 4
        columns[columns == 0] *= rng.choice([-1.0, 1.0], (columns == 0).sum())
    elif kind == "equal":
        columns = np.full(shape, 0.5)
    elif kind == "wide":
        columns = rng.standard_normal(shape) * 10.0 ** rng.integers(-30, 30, shape)
    else:
        columns = rng.standard_normal(shape)
    return columns.astype(dtype)


@pytest.mark.parametrize("kind", ["random", "ties", "equal", "wide"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (17, 40), (400, 19), (2500, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_stand_as_a_stable_sort_leaves_them(
    kind: str, shape: tuple[int, int], dtype: type
) -> None:
    columns = columns_of(kind, shape, dtype)
    expected = np.argsort(-columns.T, axis=1, kind="stable")
    rows = SortedRows.from_columns(columns)
    assert np.array_equal(rows.order, expected)
    assert np.array_equal(rows.values, np.take_along_axis(columns.T, expected, axis=1))


def test_more_candidates_than_sixteen_bits_count() -> None:
    columns = np.random.default_rng(0).random((65_537, 2), dtype=np.float32)
    order = SortedRows.from_columns(columns).order
    assert np.array_equal(order, np.argsort(-columns.T, axis=1, kind="stable"))


def test_arrays_that_are_read_only_or_strided_are_taken_as_they_are() -> None:
    wide = np.random.default_rng(0).random((30, 12), dtype=np.float32)
    wide.flags.writeable = False
    strided = wide[:, ::2]
    assert np.array_equal(
        SortedRows.from_columns(strided).order,
        np.argsort(-strided.T, axis=1, kind="stable"),
    )


def test_sorting_takes_two_matrices_and_little_more() -> None:
    columns = np.random.default_rng(0).random((21_000, 100), dtype=np.float32)
    SortedRows.from_columns(columns[:100])  # compiled code is no part of it
    tracemalloc.start()
    try:
        SortedRows.from_columns(columns)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The scratch of a thread is two rows of keys and columns.
    scratch = 2 * (2 * 21_000 * (4 + 4))
    assert peak < 2 * columns.nbytes + scratch + 50_000


@pytest.mark.parametrize("columns", [np.ones(3), np.ones((2, 2), np.int64), np.ones((2, 2), "f2")])
def test_other_arrays_are_refused(columns: np.ndarray) -> None:
    with pytest.raises(InputError, match="columns"):
        SortedRows.from_columns(columns)
