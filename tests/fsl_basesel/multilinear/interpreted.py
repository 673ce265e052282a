"""Run inside Triton's interpreter by `test_triton_interpreter.py`: prints the errors of every case.

A process of its own, because `TRITON_INTERPRET` must be set before Triton is imported and changes
what its decorators make of a kernel.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import fsl_basesel as fb
from fsl_basesel.multilinear import SortedRows, reference
from fsl_basesel.multilinear import triton as backend
from fsl_basesel.multilinear.triton.settings import GROUP, calculate_settings

NAN = float("nan")


@dataclass(frozen=True)
class Case:
    """A shape, a kind of data, and how the work is cut."""

    n_novel: int
    n_candidates: int
    n_samples: int
    k: int
    kind: str
    double: bool = False
    cut: bool = False  # two launches, one program, a wave for every four chunks

    def __str__(self) -> str:
        parts = [f"{self.n_novel}x{self.n_candidates}", f"S{self.n_samples}", f"K{self.k}"]
        parts += [self.kind]
        parts += [name for name in ("double", "cut") if getattr(self, name)]
        return "-".join(parts)


CASES = (
    Case(3, 19, 2, 1, "integral"),
    Case(2, 37, 3, 2, "ties", cut=True),
    Case(3, 70, 1, 3, "negative", cut=True),
    Case(67, 5, 1, 3, "ties", cut=True),
    Case(3, 21, 2, 5, "integral", double=True),
    Case(2, 33, 2, 5, "random", double=True),
    Case(5, 17, 1, 7, "random", double=True),
    Case(2, 20, 1, 8, "random"),
    Case(1, 9, 2, 32, "negative"),
    Case(1, 35, 1, 32, "ties"),
    Case(3, 90, 2, 2, "dense", cut=True),
    Case(3, 40, 1, 1, "dense", double=True),
    Case(2, 33, 1, 1, "padded"),
)


def poison() -> None:
    """Fill what `torch.empty` and its kin hand out with NaN: an unwritten output then shows."""
    empty_like, new_empty = torch.empty_like, torch.Tensor.new_empty

    def poisoned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.fill_(NAN) if tensor.is_floating_point() else tensor

    torch.empty_like = lambda *args, **kwargs: poisoned(empty_like(*args, **kwargs))
    torch.Tensor.new_empty = lambda *args, **kwargs: poisoned(new_empty(*args, **kwargs))


def make(case: Case) -> tuple[SortedRows, torch.Tensor]:
    """Sorted rows and probabilities; the seed is a function of the shape."""
    rng = np.random.default_rng(case.n_novel * 1000 + case.n_candidates + case.k)
    shape = (case.n_candidates, case.n_novel)
    columns = rng.standard_normal(shape) if case.kind == "negative" else rng.random(shape)
    if case.kind == "ties":
        columns = np.round(columns, 1)
    columns = columns.astype(np.float64 if case.double else np.float32)
    rows = SortedRows.from_columns(columns, floor=min(0.0, float(columns.min())))
    x = rng.random((case.n_samples, case.n_candidates))
    if case.kind == "integral":
        x = np.round(x)
    if case.kind == "dense":  # rows die early, so later chunks and waves must be skipped
        x = np.maximum(x, 0.6)
    if case.kind == "padded":
        # Whatever stands behind the end of a row must not matter.
        values, order = rows.on_device(torch.device("cpu"))
        values._base[:, rows.n_candidates :] = NAN
        order._base[:, rows.n_candidates :] = -1
    return rows, torch.from_numpy(x).to(torch.float64 if case.double else torch.float32)


def gradient_errors(case: Case, device: str = "cpu") -> dict[str, float]:
    """Largest errors of value and gradient against the reference in float64."""
    rows, x = make(case)
    settings = calculate_settings(
        case.n_samples, case.n_novel, case.n_candidates, case.k, x.element_size()
    )
    if case.cut:
        waves = tuple(range(0, settings.n_chunks + 1, GROUP))
        settings = replace(settings, rows=case.n_novel - 1, dense_rows=1, programs=1, waves=waves)
    value, gradient = backend.value_and_gradient(rows, x.to(device), case.k, settings)
    value, gradient = value.cpu(), gradient.cpu()
    expected, slopes = reference.value_and_gradient(rows, x.double(), case.k)
    assert value.dtype == gradient.dtype == x.dtype
    return {
        "value": float((value - expected).abs().max()),
        "gradient": float((gradient - slopes).abs().max()),
    }


def selections() -> list[dict[str, Any]]:
    """Algorithm 4 through the public call, on Triton and on the CPU."""
    found = []
    for seed, (n_novel, n_candidates, m, k, selected) in enumerate(
        ((3, 14, 5, 2, ()), (2, 11, 4, 3, (1, 4)))
    ):
        rng = np.random.default_rng(seed)
        similarity = rng.standard_normal((n_novel, n_candidates)).astype(np.float32)
        problem = fb.SelectionProblem(similarity, m=m, k=k, lam=0.3, selected=selected)
        for name in ("triton", "cpu"):
            method = fb.ContinuousDoubleGreedy(steps=3, backend=name)
            chosen = fb.select(problem, method)
            found.append({"backend": chosen.backend, "indices": chosen.indices})
    return found


def main() -> None:
    """Print everything as one line of JSON."""
    poison()
    results = {
        "gradients": {str(case): gradient_errors(case) for case in CASES},
        "selections": selections(),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
