"""Choosing sizes, moving rows, refusing what the Triton backend cannot do; no kernel runs here."""

from __future__ import annotations

import argparse
import subprocess
import sys

import gradient_cuda
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import value_and_gradient
from fsl_basesel.multilinear.order import SortedRows
from fsl_basesel.multilinear.triton import place_rows, settings

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
    if found.decomposition == "walk":
        assert 0 <= spare < found.tile
    else:
        assert 0 <= spare < settings.GROUP * found.chunk
        assert all(boundary % settings.GROUP == 0 for boundary in found.waves)
    assert 1 <= found.rows <= n_rows
    ring = settings.BLOCK * found.chunk * itemsize * (1 + found.states / found.tile)
    assert found.programs == 1 or found.programs * ring <= settings.RING_BYTES
    dense = n_samples * length * itemsize
    assert found.dense_rows == 1 or found.dense_rows * dense <= settings.SCRATCH_BYTES
    if found.decomposition == "scan":
        summaries = n_samples * found.n_chunks * (3 * found.states + 1) * itemsize
        assert found.rows == 1 or found.rows * summaries <= settings.SCRATCH_BYTES
    # Lanes are counted in 32 bits.
    assert found.rows * found.n_chunks * n_samples < 2**31


def test_the_decomposition_follows_the_shape() -> None:
    assert settings.calculate_settings(2, 100, 512, 5).decomposition == "walk"
    assert settings.calculate_settings(2, 100, 513, 5).decomposition == "scan"
    assert settings.calculate_settings(2, 30_000, 512, 5).decomposition == "scan"
    forced = settings.calculate_settings(2, 100, 513, 5, decomposition="walk")
    assert forced.decomposition == "walk"


def test_memory_on_the_device_stays_under_two_and_a_half_matrices() -> None:
    found = settings.calculate_settings(2, 1000, 21_000, 5)
    rows = 1000 * 21_008 * (4 + 2)
    summaries = found.rows * 2 * found.n_chunks * (3 * 5 + 1) * 4
    rings = found.programs * settings.BLOCK * found.chunk * (found.tile + 5) // found.tile * 4
    assert rows + summaries + rings <= 2.5 * 1000 * 21_000 * 4


def test_an_unknown_decomposition_is_refused() -> None:
    with pytest.raises(InputError, match=r"walk.*scan.*'both'"):
        settings.calculate_settings(1, 1, 1, 1, decomposition="both")


def test_more_states_than_compiled_for_are_refused_unless_the_row_is_short() -> None:
    with pytest.raises(InputError, match=r"at most 32.*got 33.*backend"):
        settings.calculate_settings(1, 1, 40, 33)
    assert settings.calculate_settings(1, 1, 20, 33).states == 24


def test_placed_rows_are_padded_and_equal() -> None:
    rows = SortedRows.from_columns(np.random.default_rng(0).random((21, 3)), floor=-0.5)
    placed = place_rows(rows, "cpu")
    assert placed.values.stride() == placed.order.stride() == (32, 1)
    assert torch.equal(placed.values, rows.values)
    assert torch.equal(placed.order, rows.order)
    assert (placed.floor, placed.n_candidates) == (rows.floor, rows.n_candidates)
    again = place_rows(placed, "cpu")
    assert again.values is placed.values


def test_padding_that_the_storage_does_not_hold_is_not_read() -> None:
    launch = pytest.importorskip("fsl_basesel.multilinear.triton.launch")
    assert launch.readable_width(torch.empty(3, 32)[:, :20]) == 32
    assert launch.readable_width(torch.empty(84).as_strided((3, 20), (32, 1))) == 20


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


@no_gpu
def test_the_benchmark_without_a_gpu_is_one_clear_line() -> None:
    with pytest.raises(InputError) as raised:
        gradient_cuda.run(argparse.Namespace(device="cuda", rounds=1))
    assert str(raised.value).startswith("Expected a GPU for `--device cuda`")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("wrong", [("100", "1", "0.1"), ("1x2x3", "1", "0.1"), ("1x2", "one", "0")])
def test_settings_of_the_benchmark_that_cannot_be_read_are_refused(wrong: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="Expected --shapes like 100x400"):
        gradient_cuda.cases(*wrong)


def test_live_lengths_of_the_benchmark_stop_where_k_plus_1_are_in() -> None:
    rows = SortedRows.from_columns(np.random.default_rng(0).random((9, 4)))
    x = torch.tensor([[1.0] * 9, [0.0] * 9])
    assert gradient_cuda.live_lengths(rows, x, k=3).tolist() == [[4] * 4, [9] * 4]


def test_importing_the_package_imports_no_triton() -> None:
    code = (
        "import sys, fsl_basesel, fsl_basesel.multilinear.triton, "
        "fsl_basesel.multilinear.device_steps; sys.exit('triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
