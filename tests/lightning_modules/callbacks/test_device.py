"""`device=` of the selection callbacks: the Trainer's GPU where the method can use one."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import fsl_basesel as fb
from fsl_basesel.errors import InputError
from lightning_modules import SelectBaseClasses
from lightning_modules.callbacks import base
from tests.lightning_modules.runs import tiny_data, tiny_model, tiny_trainer

PROBLEM = fb.SelectionProblem([[0.1, 0.9, 0.5], [0.7, 0.2, 0.4]], m=2, k=1)


@pytest.mark.parametrize(
    ("method", "asked", "trained_on", "expected"),
    [
        ("double-greedy", "auto", "cuda:1", "cuda:1"),
        ("greedy-target", "auto", "cuda:1", "auto"),  # it cannot use one
        ("double-greedy", "auto", "cpu", "auto"),
        ("double-greedy", "cpu", "cuda:1", "cpu"),
        ("double-greedy", "cuda", "cpu", "cuda"),
    ],
)
def test_auto_is_the_trainers_gpu_if_the_method_can_use_it(
    method: str, asked: str, trained_on: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def select(*_: Any, device: str) -> None:
        seen.append(device)

    monkeypatch.setattr(base, "select", select)
    strategy = SimpleNamespace(root_device=torch.device(trained_on), broadcast=lambda value: value)
    trainer: Any = SimpleNamespace(strategy=strategy, is_global_zero=True, world_size=1)
    SelectBaseClasses(2, 1, method=method, device=asked).select(trainer, PROBLEM)
    assert seen == [expected]


def fitted(folder: Path, device: str) -> fb.Selection:
    callback = SelectBaseClasses(3, 1, method="double-greedy", device=device, verbose=False)
    trainer = tiny_trainer(folder, callback, max_epochs=1, limit_train_batches=1)
    trainer.fit(tiny_model(), tiny_data())
    return fb.Selection.load(folder / "selection-stage-1.json")


def test_on_a_cpu_auto_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = fitted(tmp_path, "auto")
    assert found.device == "cpu"
    assert not [one for one in told if "device" in str(one.message) or "GPU" in str(one.message)]
    assert "cuda" not in capsys.readouterr().err.lower()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Expected .*cuda.*(device|cpu|auto)"):
        fitted(tmp_path, "cuda")
