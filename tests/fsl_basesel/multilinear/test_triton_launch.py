"""Choosing sizes, moving rows, refusing what the Triton backend cannot do; no kernel runs here."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import SortedRows, value_and_gradient
from fsl_basesel.multilinear.triton import settings

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@given(
    n_samples=st.integers(1, 64),
    n_rows=st.integers(1, 30_000),
    length=st.integers(1, 1_000_000),
    k=st.integers(1, 32),
    itemsize=st.sampled_from([4, 8]),
)
def test_settings_cover_every_element_within_the_scratch(
    n_samples: int, n_rows: int, length: int, k: int, itemsize: int
) -> None:
    found = settings.calculate_settings(n_samples, n_rows, length, k, itemsize)
    assert found.states >= min(k, length)
    assert found.chunk % found.tile == 0
    assert found.waves[0] == 0
    assert list(found.waves) == sorted(set(found.waves))
    spare = found.n_chunks * found.chunk - length
    assert 0 <= spare < settings.GROUP * found.chunk
    assert all(boundary % settings.GROUP == 0 for boundary in found.waves)
    assert 1 <= found.rows <= n_rows
    ring = settings.BLOCK * found.chunk * itemsize * (1 + found.states / found.tile)
    assert found.programs == 1 or found.programs * ring <= settings.RING_BYTES
    dense = n_samples * length * itemsize
    assert found.dense_rows == 1 or found.dense_rows * dense <= settings.SCRATCH_BYTES
    summaries = n_samples * found.n_chunks * (3 * found.states + 1) * itemsize
    assert found.rows == 1 or found.rows * summaries <= settings.SCRATCH_BYTES
    # Lanes are counted in 32 bits.
    assert found.rows * found.n_chunks * n_samples < 2**31


def test_memory_on_the_device_stays_under_three_matrices() -> None:
    found = settings.calculate_settings(2, 1000, 21_000, 5)
    rows = 1000 * 21_008 * (4 + 4)
    summaries = found.rows * 2 * found.n_chunks * (3 * 5 + 1) * 4
    rings = found.programs * settings.BLOCK * found.chunk * (found.tile + 5) // found.tile * 4
    assert rows + summaries + rings <= 3 * 1000 * 21_000 * 4


def test_more_states_than_compiled_for_are_refused_unless_the_row_is_short() -> None:
    with pytest.raises(InputError, match=r"at most 32.*got 33.*backend"):
        settings.calculate_settings(1, 1, 40, 33)
    assert settings.calculate_settings(1, 1, 20, 33).states == 24


def test_placed_rows_are_padded_equal_and_kept() -> None:
    rows = SortedRows.from_columns(np.random.default_rng(0).random((21, 3)), floor=-0.5)
    values, order = rows.on_device(torch.device("cpu"))
    assert values.stride() == order.stride() == (32, 1)
    assert np.array_equal(values, rows.values)
    assert np.array_equal(order, rows.order)
    assert rows.on_device(torch.device("cpu"))[0] is values


def test_an_old_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(triton, "__version__", "3.3.1+git")
    rows = SortedRows.from_columns(np.ones((3, 2)))
    with pytest.raises(InputError, match=r"3\.4 or later, but got 3\.3\.1\+git; install"):
        value_and_gradient(rows, torch.zeros(1, 3), k=1, backend="triton")


@no_gpu
def test_without_a_gpu_the_backend_says_what_to_use() -> None:
    pytest.importorskip("triton")
    rows = SortedRows.from_columns(np.ones((3, 2)))
    with pytest.raises(InputError, match=r"Expected a GPU.*backend="):
        value_and_gradient(rows, torch.zeros(1, 3), k=1, backend="triton")


def test_importing_the_package_imports_no_triton() -> None:
    code = (
        "import sys, fsl_basesel, fsl_basesel.multilinear.triton, "
        "fsl_basesel.multilinear.device_steps; sys.exit('triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
