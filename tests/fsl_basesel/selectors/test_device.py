"""`device=`: which device and backend run, what is refused, and the same selection everywhere."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fsl_basesel as fb
from fsl_basesel.cli import main
from fsl_basesel.selectors import double_greedy
from fsl_basesel.selectors.double_greedy import choose_device

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def problem(**settings: object) -> fb.SelectionProblem:
    matrix = np.random.default_rng(0).random((12, 30), dtype=np.float32)
    return fb.SelectionProblem(matrix, **{"m": 8, "k": 3, "lam": 0.2, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["double-greedy", fb.WithSwaps(fb.ContinuousDoubleGreedy())])
def test_the_cpu_can_be_asked_for(method: str | fb.Selector) -> None:
    selection = fb.select(problem(), method, device="cpu")
    assert selection.indices == fb.select(problem(), method).indices


def test_a_selection_says_backend_and_device() -> None:
    selection = fb.select(problem(), fb.ContinuousDoubleGreedy(backend="torch"), device="cpu")
    assert (selection.backend, selection.device) == ("torch", "cpu")
    assert "device" not in selection.hyperparameters
    selection = fb.select(problem(), "auto")
    assert (selection.backend, selection.device) == (None, None)


@no_gpu
@pytest.mark.parametrize("method", ["double-greedy", fb.WithSwaps(fb.ContinuousDoubleGreedy())])
def test_without_a_gpu_cuda_is_a_clear_error_and_auto_is_silent(method: str | fb.Selector) -> None:
    with pytest.raises(fb.InputError, match=r"Expected `device` .*'cuda'.*device=\"cpu\""):
        fb.select(problem(), method, device="cuda")
    with pytest.raises(fb.InputError, match="Expected `device`"):
        fb.select_grid(problem(), m=[2, 3], method=method, device="cuda")
    assert fb.select(problem(), "double-greedy", device="auto").device == "cpu"


@pytest.mark.parametrize(
    "method", ["auto", "dual", "greedy-target", fb.WithSwaps(fb.RandomGreedy())]
)
def test_methods_of_the_cpu_refuse_a_gpu(method: str | fb.Selector) -> None:
    with pytest.raises(fb.InputError, match="which runs on the CPU"):
        fb.select(problem(), method, device="cuda")
    assert fb.select(problem(), method, device="cpu").indices


def test_devices_and_backends_that_do_not_exist_are_refused() -> None:
    with pytest.raises(fb.InputError, match="Expected `device`"):
        fb.select(problem(), "double-greedy", device="gpu")
    with pytest.raises(fb.InputError, match="Expected `backend`"):
        fb.select(problem(), fb.ContinuousDoubleGreedy(backend="gpu"))


def test_auto_takes_a_gpu_for_large_problems_once_torch_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fsl_basesel.multilinear.triton._refusal", lambda: "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    small = problem()
    assert choose_device(small, "auto", "auto") == ("cpu", "cpu")
    assert choose_device(small, "triton", "auto") == ("triton", "cuda")
    monkeypatch.setattr(double_greedy, "LARGE", 100)
    assert choose_device(small, "auto", "auto") == ("triton", "cuda")
    assert choose_device(small, "auto", "cpu") == ("cpu", "cpu")
    assert choose_device(small, "cpu", "auto") == ("cpu", "cpu")
    assert choose_device(small.replace(k=33), "auto", "auto") == ("torch", "cuda")
    monkeypatch.delitem(sys.modules, "torch")
    assert choose_device(small, "auto", "auto") == ("cpu", "cpu")


def test_a_grid_climbs_in_tensors_as_its_settings_do_alone() -> None:
    method = fb.ContinuousDoubleGreedy(backend="torch")
    settings = [(lam, m) for lam in (0.0, 0.3) for m in (0, 5, 28)]
    grid = fb.select_grid(problem(selected=(1, 2)), lam=[0.0, 0.3], m=[0, 5, 28], method=method)
    for found, (lam, m) in zip(grid, settings, strict=True):
        single = fb.select(problem(selected=(1, 2), lam=lam, m=m), "double-greedy")
        assert found.indices == single.indices
        assert found.device == "cpu"


def test_old_files_without_a_device_load(tmp_path: Path) -> None:
    selection = fb.select(problem(), "double-greedy")
    fields = json.loads(selection.to_json())
    del fields["device"]
    (tmp_path / "old.json").write_text(json.dumps(fields))
    assert fb.Selection.load(tmp_path / "old.json") == dataclasses.replace(selection, device=None)


@no_gpu
def test_the_command_line_refuses_a_gpu_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pool.npz"
    np.savez(path, features=np.random.default_rng(0).random((9, 4)))
    words = ["select", str(path), "-m", "3", "--method", "double-greedy", "--device", "cuda"]
    assert main(words) == 2
    assert "Expected `device`" in capsys.readouterr().err
