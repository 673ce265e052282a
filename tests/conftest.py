"""Settings shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Some virtual machines announce AMX and end the process at the first such instruction (bfloat16).
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

# The first example of a test may load a compiled kernel, and CI must not flicker.
settings.register_profile("project", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("project")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Where the real data lie: `FSL_BASESEL_DATA`, or `../shared/data` beside the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FSL_BASESEL_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"real data not found: {folder} is no folder; set FSL_BASESEL_DATA")
    return folder
