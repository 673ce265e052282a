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

from fsl_basesel import SelectionProblem
from fsl_basesel.multilinear import device_steps, reference
from fsl_basesel.multilinear import triton as backend
from fsl_basesel.multilinear.order import PrefixTooShortError, SortedRows
from fsl_basesel.multilinear.triton.settings import GROUP, calculate_settings
from fsl_basesel.rounding import pipage
from fsl_basesel.selectors.double_greedy import fractional

NAN = float("nan")


@dataclass(frozen=True)
class Case:
    """A shape, a kind of data, and how the work is cut."""

    n_novel: int
    n_candidates: int
    n_samples: int
    k: int
    kind: str
    decomposition: str
    double: bool = False
    deterministic: bool = False
    cut: bool = False  # two launches, one program, a wave for every four chunks

    def __str__(self) -> str:
        parts = [f"{self.n_novel}x{self.n_candidates}", f"S{self.n_samples}", f"K{self.k}"]
        parts += [self.kind, self.decomposition]
        parts += [name for name in ("double", "deterministic", "cut") if getattr(self, name)]
        return "-".join(parts)


CASES = (
    Case(3, 19, 2, 1, "random", "walk"),
    Case(2, 37, 3, 2, "negative", "walk", deterministic=True),
    Case(67, 5, 1, 3, "ties", "walk", cut=True),
    Case(3, 21, 2, 5, "integral", "walk", double=True),
    Case(2, 13, 1, 8, "random", "walk", deterministic=True),
    Case(1, 9, 2, 32, "negative", "walk"),
    Case(2, 35, 1, 32, "random", "walk"),
    Case(3, 40, 1, 1, "dense", "walk", double=True),
    Case(3, 19, 2, 1, "integral", "scan"),
    Case(2, 37, 3, 2, "ties", "scan", cut=True),
    Case(3, 70, 1, 3, "negative", "scan", deterministic=True, cut=True),
    Case(2, 33, 2, 5, "random", "scan", double=True),
    Case(5, 17, 1, 7, "random", "scan", double=True, deterministic=True),
    Case(2, 20, 1, 8, "random", "scan"),
    Case(1, 9, 2, 32, "random", "scan"),
    Case(1, 35, 1, 32, "ties", "scan"),
    Case(3, 90, 2, 2, "dense", "scan", cut=True),
    Case(2, 33, 1, 1, "padded", "scan"),
    Case(2, 21, 1, 2, "padded", "walk"),
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
        rows = backend.place_rows(rows, "cpu")
        # Whatever stands behind the end of a row must not matter.
        rows.values._base[:, rows.length :] = NAN
        rows.order._base.view(torch.int16)[:, rows.length :] = -1
    return rows, torch.from_numpy(x).to(torch.float64 if case.double else torch.float32)


def gradient_errors(case: Case, device: str = "cpu") -> dict[str, float]:
    """Largest errors of value and gradient against the reference in float64."""
    rows, x = make(case)
    settings = calculate_settings(
        *(case.n_samples, case.n_novel, case.n_candidates, case.k, x.element_size()),
        decomposition=case.decomposition,
    )
    if case.cut:
        waves = tuple(range(0, settings.n_chunks + 1, GROUP))
        settings = replace(settings, rows=case.n_novel - 1, dense_rows=1, programs=1, waves=waves)
    value, gradient, _ = backend.value_gradient_left(
        rows.to(device),
        x.to(device),
        case.k,
        deterministic=case.deterministic,
        settings=settings,
    )
    value, gradient = value.cpu(), gradient.cpu()
    expected, slopes = reference.value_and_gradient(rows, x.double(), case.k)
    assert value.dtype == gradient.dtype == x.dtype
    return {
        "value": float((value - expected).abs().max()),
        "gradient": float((gradient - slopes).abs().max()),
    }


def prefix_outcomes() -> dict[str, Any]:
    """A prefix that is long enough gives the gradient of the whole row; a short one is refused."""
    columns = np.random.default_rng(0).random((60, 3))
    x = torch.full((1, 60), 0.75, dtype=torch.float64)
    whole = SortedRows.from_columns(columns)
    _, expected = reference.value_and_gradient(whole, x, 2)
    found: dict[str, Any] = {}
    for decomposition in ("walk", "scan"):
        longer = SortedRows.from_columns(columns, prefix=50)
        _, gradient = backend.value_and_gradient(longer, x, 2, decomposition=decomposition)
        found[f"{decomposition} error"] = float((gradient - expected).abs().max())
        try:
            shorter = SortedRows.from_columns(columns, prefix=6)
            backend.value_and_gradient(shorter, x, 2, decomposition=decomposition)
        except PrefixTooShortError as error:
            found[f"{decomposition} message"] = str(error)
    return found


def selections() -> list[dict[str, Any]]:
    """Algorithm 4 with every step in kernels and tensors, against the CPU's."""
    found = []
    for seed, (n_novel, n_candidates, m, k, selected) in enumerate(
        ((3, 14, 5, 2, ()), (2, 11, 4, 3, (1, 4)))
    ):
        rng = np.random.default_rng(seed)
        similarity = rng.standard_normal((n_novel, n_candidates)).astype(np.float32)
        problem = SelectionProblem(similarity, m=m, k=k, lam=0.3, selected=selected)
        arguments = (
            problem.sorted_rows,
            torch.from_numpy(problem.modular),
            torch.from_numpy(~problem.is_selected),
            *(problem.m, problem.k),
        )
        found.append(
            {
                "device": device_steps.solve(*arguments, steps=3),
                "cpu": pipage(problem, fractional(problem, steps=3)).tolist(),
            }
        )
    return found


def main() -> None:
    """Print everything as one line of JSON."""
    poison()
    results = {
        "gradients": {str(case): gradient_errors(case) for case in CASES},
        "prefix": prefix_outcomes(),
        "selections": selections(),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
