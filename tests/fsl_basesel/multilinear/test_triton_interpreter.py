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


def test_algorithm_4_on_triton_selects_what_the_cpu_selects(results: dict[str, Any]) -> None:
    found = results["selections"]
    assert len(found) == 4
    for on_triton, on_cpu in zip(found[::2], found[1::2], strict=True):
        assert (on_triton["backend"], on_cpu["backend"]) == ("triton", "cpu")
        assert on_triton["indices"] == on_cpu["indices"]
