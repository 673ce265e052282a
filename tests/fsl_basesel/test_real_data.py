"""Real class centroids: the certificates that the documentation reports."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fsl_basesel as fb


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "selection_quality.py"
    spec = importlib.util.spec_from_file_location("selection_quality", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_auto_and_dual_are_certified_in_22_of_24_cases(
    data_folder: Path, benchmark: ModuleType
) -> None:
    candidates, novel = benchmark.centroids(data_folder)
    certified = {"auto": 0, "dual": 0}
    for case in benchmark.cases():
        problem = fb.SelectionProblem.from_centroids(candidates, novel, **case)
        greedy = fb.GreedyOnTarget().select(problem).value
        for method in certified:
            selection = fb.select(problem, method)
            assert selection.value >= greedy
            certified[method] += selection.value >= 0.999 * selection.upper_bound
    assert min(certified.values()) >= 22, certified


def test_signed_features_of_lvis_text_embeddings(data_folder: Path) -> None:
    with np.load(data_folder / "lvis1203_clip_text.npz") as stored:
        embeddings = next(stored[key] for key in stored.files if stored[key].ndim == 2)
    embeddings = embeddings.astype(np.float32)
    problem = fb.SelectionProblem.from_centroids(embeddings[:900], embeddings[900:], m=50, k=3)
    selection = fb.select(problem)
    assert selection.gap < 0.002
    assert selection.value >= fb.select(problem, "greedy-target", certify=False).value
