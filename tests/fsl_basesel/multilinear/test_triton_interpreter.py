"""The Triton kernels in Triton's interpreter, on small ragged shapes, against the reference."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fsl_basesel.multilinear.interpreted import CASES

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    script = Path(__file__).with_name("interpreted.py")
    root = Path(__file__).parents[3]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradient_equal_the_reference(case: Any, results: dict[str, Any]) -> None:
    errors = results["gradients"][str(case)]
    bound = 1e-12 if case.double else 2e-6
    assert not any(math.isnan(error) for error in errors.values())
    assert errors["value"] <= bound
    assert errors["gradient"] <= bound


@pytest.mark.parametrize("decomposition", ["walk", "scan"])
def test_a_prefix_is_exact_or_refused(decomposition: str, results: dict[str, Any]) -> None:
    assert results["prefix"][f"{decomposition} error"] <= 1e-12
    assert "sort a longer prefix" in results["prefix"][f"{decomposition} message"]


def test_algorithm_4_on_the_device_selects_what_the_cpu_selects(results: dict[str, Any]) -> None:
    assert len(results["selections"]) == 2
    for found in results["selections"]:
        assert found["device"] == found["cpu"]
