"""The Triton kernels on the GPU at hand.

Times are taken with CUDA events, rounds interleaved; each contender also runs from a captured CUDA
graph, which leaves out what the host takes to launch. The bandwidth is the least traffic the
gradient needs (similarity and column of every live element once, x and gradient once) over the
time, against the peak of the memory and against a plain copy measured in the same run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from timing import Timing, write_csv
from torch import Tensor

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import chunked
from fsl_basesel.multilinear.device_steps import double_greedy_steps
from fsl_basesel.multilinear.order import SortedRows, order_dtype
from fsl_basesel.multilinear.triton import place_rows, value_gradient_left
from fsl_basesel.multilinear.triton.settings import EPSILON, WALK_LENGTH
from fsl_basesel.selection import library_version

CLIMB_STATES = 5  # K of the climbs
SAMPLES = 2  # x and y of Algorithm 4
COPY_BYTES = 1 << 28
Work = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One setting of the benchmark."""

    n_novel: int
    n_candidates: int
    k: int
    mean: float

    def __str__(self) -> str:
        return f"{self.n_novel}x{self.n_candidates} K={self.k} mean x={self.mean:g}"


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, write the CSV if one is asked for.

    Args:
        args: of `python benchmarks/gradient.py`.

    Raises:
        InputError: where torch finds no such GPU, or arguments cannot be read.
    """
    device, rounds, settings = gpu(args.device), args.rounds, cases(args.shapes, args.k, args.mean)
    copied = copy_bandwidth(device, rounds)
    peak = peak_bandwidth(device)
    console = Console()
    name = torch.cuda.get_device_name(device)
    nominal = f"peak {peak / 1e9:.0f} GB/s, " if peak else ""
    console.print(f"{name}: {nominal}a copy reaches {copied / 1e9:.0f} GB/s")
    table = Table("setting", "kernel", "ms", "20-80 %", "GB/s", "of peak", "of a copy")
    timings: list[Timing] = []
    for case in settings:
        rows, x = make(case, device, args.seed)
        least = least_bytes(rows, x, case.k)
        for timing in interleaved(contenders(rows, x, case.k), rounds, str(case), name):
            rate = least / timing.median
            table.add_row(
                timing.setting,
                timing.name,
                f"{timing.median * 1e3:.3f}",
                f"{timing.low * 1e3:.3f}-{timing.high * 1e3:.3f}",
                f"{rate / 1e9:.1f}",
                f"{rate / peak:.1%}" if peak else "unknown",
                f"{rate / copied:.1%}",
            )
            timings.append(timing)
    console.print(table)
    climbs = Table("setting", "Algorithm 4, T = 20", "ms", "20-80 %")
    for n_novel, n_candidates in dict.fromkeys((one.n_novel, one.n_candidates) for one in settings):
        case = Case(n_novel, n_candidates, CLIMB_STATES, mean=0.25)
        rows, _ = make(case, device, args.seed)
        for timing in interleaved(climb(rows, case.k), rounds, str(case), name):
            span = f"{timing.low * 1e3:.2f}-{timing.high * 1e3:.2f}"
            climbs.add_row(timing.setting, timing.name, f"{timing.median * 1e3:.2f}", span)
            timings.append(timing)
    console.print(climbs)
    if args.csv:
        write_csv(args.csv, timings)
    return 0


def gpu(name: str) -> torch.device:
    """The device `name` if it is a GPU that torch can use."""
    device = torch.device(name)
    if device.type != "cuda" or not torch.cuda.is_available():
        raise InputError(
            f"Expected a GPU for `--device {name}` but torch finds none; run on a machine with an "
            "NVIDIA or AMD GPU and a torch build for it, or use --device cpu"
        )
    return device


def cases(shapes: str, states: str, means: str) -> list[Case]:
    """Every combination of shapes, values of K and mean probabilities.

    Example:
        >>> [str(case) for case in cases("100x400", "1,5", "0.25")]
        ['100x400 K=1 mean x=0.25', '100x400 K=5 mean x=0.25']
    """
    found = []
    try:
        for shape, k, mean in product(shapes.split(","), states.split(","), means.split(",")):
            n_novel, n_candidates = (int(side) for side in shape.split("x"))
            found.append(Case(n_novel, n_candidates, int(k), float(mean)))
    except ValueError as error:
        raise InputError(
            "Expected --shapes like 100x400,1000x21000, --k like 1,5 and --mean like 0.01,0.25 but "
            f"got --shapes {shapes} --k {states} --mean {means}"
        ) from error
    return found


def make(case: Case, device: torch.device | str, seed: int) -> tuple[SortedRows, Tensor]:
    """Sorted rows of made-up similarities and `[S, |B|]` probabilities of the wanted mean."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (case.n_novel, case.n_candidates)
    similarity = torch.rand(shape, device=device, generator=generator)
    values, order = similarity.sort(dim=1, descending=True, stable=True)
    dtype = torch.from_numpy(np.empty(0, order_dtype(case.n_candidates))).dtype
    rows = SortedRows(values, order.to(dtype), 0.0, case.n_candidates)
    x = torch.rand(SAMPLES, case.n_candidates, device=device, generator=generator)
    return place_rows(rows, device), x * (2 * case.mean)


def contenders(rows: SortedRows, x: Tensor, k: int) -> dict[str, Work]:
    """Both decompositions, with and without atomics, eager and captured; and plain torch."""
    work: dict[str, Work] = {}
    short = rows.length <= 2 * WALK_LENGTH  # a walk keeps scratch for whole rows
    for decomposition in ("walk", "scan") if short else ("scan",):
        for deterministic in (False, True):
            name = f"{decomposition}{' deterministic' if deterministic else ''}"

            def call(
                decomposition: str = decomposition, deterministic: bool = deterministic
            ) -> None:
                value_gradient_left(
                    rows, x, k, deterministic=deterministic, decomposition=decomposition
                )

            work[name] = call
            work[f"{name}, graph"] = captured(call)
    if short:
        work["torch"] = lambda: chunked.value_and_gradient(rows, x, k)
    return work


def climb(rows: SortedRows, k: int) -> dict[str, Work]:
    """The climb of Algorithm 4 to a quarter of the candidates, all on the device."""
    modular = torch.zeros(rows.n_candidates, dtype=torch.float64, device=rows.values.device)
    free = torch.ones_like(modular, dtype=torch.bool)

    def work() -> None:
        double_greedy_steps(rows, modular, free, rows.n_candidates // 4, k)

    return {"eager": work, "graph": captured(work)}


def captured(work: Work) -> Work:
    """`work` as the replay of a CUDA graph: everything it launches, nothing of the host."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()  # compiles and fills the allocator, which a capture must not
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def interleaved(work: Mapping[str, Work], rounds: int, setting: str, device: str) -> list[Timing]:
    """Seconds by CUDA events, every contender once a round after one round to warm up."""
    milliseconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(rounds + 1):
        for name, call in work.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            stop.record()
            stop.synchronize()
            if turn:
                milliseconds[name].append(start.elapsed_time(stop))
    return [
        Timing(
            setting=setting,
            name=name,
            median=float(np.median(taken)) / 1e3,
            low=float(np.quantile(taken, 0.2)) / 1e3,
            high=float(np.quantile(taken, 0.8)) / 1e3,
            rounds=rounds,
            device=device,
            version=library_version(),
        )
        for name, taken in milliseconds.items()
    ]


def copy_bandwidth(device: torch.device, rounds: int) -> float:
    """Bytes a second, read and written, of a plain copy on the device."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    (timing,) = interleaved({"copy": lambda: target.copy_(source)}, rounds, "copy", str(device))
    return 2 * COPY_BYTES / timing.median


def peak_bandwidth(device: torch.device) -> float | None:
    """Bytes a second the memory delivers by clock and width; None where torch does not say."""
    properties = torch.cuda.get_device_properties(device)
    clock = getattr(properties, "memory_clock_rate", 0)  # kHz; data moves on both edges
    width = getattr(properties, "memory_bus_width", 0)  # bits
    return 2 * clock * 1e3 * width / 8 or None


def least_bytes(rows: SortedRows, x: Tensor, k: int) -> int:
    """The traffic no implementation avoids: live elements, x and the gradient, once each."""
    live = int(live_lengths(rows, x, k).amax(0).sum())
    element = rows.values.element_size() + rows.order.element_size()
    return live * element + 2 * x.numel() * x.element_size()


def live_lengths(rows: SortedRows, x: Tensor, k: int) -> Tensor:
    """`[S, |N|]` elements of each row before its K+1 entries are in almost surely.

    Example:
        >>> rows = SortedRows.from_columns(np.eye(3))
        >>> live_lengths(rows, torch.tensor([[1.0, 1.0, 1.0]]), k=1).tolist()
        [[2, 2, 2]]
    """
    state = x.new_zeros(x.shape[0], rows.n_novel, k + 2)
    state[..., 1] = 1  # state 0 stays empty, so that every state has one below
    live = torch.zeros(x.shape[0], rows.n_novel, dtype=torch.int64, device=x.device)
    for i in range(rows.length):
        alive = state.sum(-1) >= EPSILON[x.dtype]
        if i % 64 == 0 and not bool(alive.any()):
            break
        live += alive
        chance = x[:, rows.order[:, i].long(), None]
        state[..., 1:] += chance * (state[..., :-1] - state[..., 1:])
    return live
