"""Lower bounds on the time of the compiled Triton kernels; computed without a GPU.

    python benchmarks/triton_bounds.py

Every kernel is compiled ahead of time for every target and read back: registers, spills, and the
instructions of the loop bodies, for sm_80 and sm_90 with the stall counts that the assembler wrote
into them. From these follows a lower bound on the time of one gradient on an A100 and an H100:

    T >= sum over the kernels, which run one after the other, of max(issue, latency, memory)

    issue    trips x warps x max(instructions, c x float64 instructions) / (multiprocessors x 4 x f)
             A multiprocessor has 4 schedulers; each issues one instruction of a warp in a cycle. A
             float64 instruction of a warp keeps its unit busy for c = 4 (A100) or 2 (H100) cycles.
    latency  trips x stalls / f
             A warp cannot issue the next instruction of a loop body before the stall count of the
             last one has passed, however many warps there are.
    memory   (bytes of similarities and columns - size of the L2 cache) / bandwidth

f is the highest clock. Only loop bodies count, every load is taken to hit a cache that answers at
once, and launches are free: real times are larger. The point is x and y of Algorithm 4 in float64
at its start, where no row ends early.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timing import main

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear.triton.settings import (
    BLOCK,
    Settings,
    calculate_settings,
    scan_unroll,
    tile_width,
)

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
KERNELS = ("summarise", "forward", "backward", "replay")
SHAPES = ((100, 400), (1000, 1000), (1000, 21000))
SAMPLES = 2  # x and y
ALIGNED = ("width", "chunk")  # multiples of 16
INSTRUCTION = re.compile(r"/\*(\w{4,})\*/\s*(.*?);\s*/\* 0x(\w{16}) \*/\s*/\* 0x(\w{16}) \*/", re.S)


@dataclass(frozen=True)
class Device:
    """Figures of a data sheet; always the largest of its variants."""

    name: str
    target: str
    multiprocessors: int
    clock: float
    bandwidth: float
    cache: float
    float64_cycles: int


DEVICES = (
    Device("A100", "sm_80", 108, 1.41e9, 2.039e12, 40e6, 4),
    Device("H100", "sm_90", 132, 1.98e9, 3.35e12, 50e6, 2),
)


@dataclass(frozen=True)
class Loop:
    """One innermost loop of compiled code; stalls are 0 where they cannot be read."""

    instructions: int
    float64: int
    stalls: int


@dataclass(frozen=True)
class Compiled:
    """What one compiled kernel takes.

    Attributes:
        kernel: name of the kernel.
        target: `sm_80`, `sm_90`, `gfx942`, ...
        k: states it is compiled for.
        registers: 32-bit registers of a thread (vector registers on AMD, both kinds).
        spills: bytes of a thread kept in memory for want of registers; the tests ask for 0.
        shared: bytes of shared memory of a program.
        loops: its innermost loops, in order.
    """

    kernel: str
    target: str
    k: int
    registers: int
    spills: int
    shared: int
    loops: tuple[Loop, ...]


def measure(
    kernels: Sequence[str] = KERNELS,
    targets: Sequence[str] = TARGETS,
    states: Sequence[int] = (5,),
    *,
    double: bool = True,
    single: bool = False,
) -> Iterator[Compiled]:
    """Compile each kernel for each number of states and each target.

    Args:
        kernels: names out of `KERNELS`.
        targets: `sm_<number>` or an AMD architecture such as `gfx942`.
        states: numbers of states (K).
        double: float64 states and probabilities, as in Algorithm 4, or float32.
        single: one vector x, for which the launcher compiles a variant of its own.

    Raises:
        InputError: where Triton is missing or set to interpret.
    """
    for kernel in kernels:
        for k in states:
            for target in targets:
                yield _compile(kernel, target, k, double=double, single=single)


def _compile(name: str, target: str, k: int, *, double: bool, single: bool) -> Compiled:
    triton = _triton()
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from fsl_basesel.multilinear.triton import scan
    from fsl_basesel.multilinear.triton.launch import compile_options

    words = 2 * k if double else k
    nvidia = target.startswith("sm_")
    gpu = GPUTarget("cuda", int(target[3:]), 32) if nvidia else GPUTarget("hip", target, 64)
    function = getattr(scan, f"{name}_kernel")
    constants = {
        "K": k,
        "TILE": tile_width(k, 8 if double else 4),
        "UNROLL": scan_unroll(words),
        "BLOCK": BLOCK if name in ("summarise", "replay") else gpu.warp_size,
    }
    if single:
        constants["n_samples"] = 1
    constants = {key: value for key, value in constants.items() if key in function.arg_names}
    signature = {key: _argument_type(key, constants, double) for key in function.arg_names}
    # What the launcher finds out: torch's allocations are aligned, and rows are padded.
    attributes = {
        (place,): [["tt.divisibility", 16]]
        for place, key in enumerate(function.arg_names)
        if key.endswith("_ptr") or key in ALIGNED
    }
    compiled = triton.compile(
        ASTSource(function, signature, constants, attributes),
        target=gpu,
        options=compile_options(name, words, gpu.warp_size),
    )
    read = _read_nvidia if nvidia else _read_amd
    registers, spills, loops = read(compiled.asm)
    if target not in ("sm_80", "sm_90"):  # stall counts of other targets are not decoded
        loops = tuple(Loop(loop.instructions, loop.float64, 0) for loop in loops)
    return Compiled(name, target, k, registers, spills, compiled.metadata.shared, loops)


def _triton() -> Any:
    try:
        import triton
    except ImportError as error:
        raise InputError(
            "Expected the package `triton` to be installed but it is not; "
            "it comes with torch on Linux"
        ) from error
    if triton.knobs.runtime.interpret:
        raise InputError(
            "Expected TRITON_INTERPRET to be unset but it asks for the interpreter; "
            "unset it to compile"
        )
    return triton


def _argument_type(name: str, constants: dict[str, Any], double: bool) -> str:
    if name in constants:
        return "constexpr"
    fixed = {"values_ptr": "*fp32", "order_ptr": "*i32", "live_ptr": "*i32", "eps": "fp32"}
    state = "*fp64" if double else "*fp32"
    return fixed.get(name, state if name.endswith("_ptr") else "i32")


def _read_nvidia(asm: dict[str, Any]) -> tuple[int, int, tuple[Loop, ...]]:
    """Registers, bytes of local memory of a thread, and loops, from the machine code itself."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(asm["cubin"])

        def dump(what: str) -> str:
            command = [knobs.nvidia.cuobjdump.path, what, str(path)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        used, code = dump("-res-usage"), dump("-sass")
    found = {key: int(number) for key, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", used)}
    lines = []
    for offset, text, _, control in INSTRUCTION.findall(code):
        jump = re.search(r"BRA(?:\.\w+)* (?:\w+, )*`?\(?(0x\w+)", text)
        target = int(jump.group(1), 16) if jump else None
        stall = int(control, 16) >> 41 & 0xF
        lines.append(
            (int(offset, 16), target, bool(re.search(r"\bD(FMA|ADD|MUL|SETP)", text)), stall)
        )
    return found["REG"], found["STACK"] + found["LOCAL"], _innermost(lines)


def _read_amd(asm: dict[str, Any]) -> tuple[int, int, tuple[Loop, ...]]:
    """Vector registers, spilled bytes of a thread, and loops, from the assembly and its notes."""
    keys = "vgpr_count|vgpr_spill_count|private_segment_fixed_size"
    found = dict(re.findall(rf"\.({keys}):\s*(\d+)", asm["amdgcn"]))
    # Scalar registers that do not fit are parked in lanes of a vector register, not in memory.
    spilled = max(4 * int(found["vgpr_spill_count"]), int(found["private_segment_fixed_size"]))
    labels: dict[str, int] = {}
    lines: list[tuple[int, int | None, bool, int]] = []
    jumps: list[str | None] = []
    for line in asm["amdgcn"].splitlines():
        if label := re.match(r"(\.?LBB\w+):", line):
            labels[label.group(1)] = len(lines)
        elif re.match(r"\s+[sv]_|\s+(global|ds|buffer|flat)_", line):
            jump = re.search(r"s_c?branch\w* (\.?LBB\w+)", line)
            jumps.append(jump.group(1) if jump else None)
            lines.append((len(lines), None, "_f64" in line, 0))
    linked = [
        (at, labels.get(jump) if jump else None, double, stall)
        for (at, _, double, stall), jump in zip(lines, jumps, strict=True)
    ]
    return int(found["vgpr_count"]), spilled, _innermost(linked)


def _innermost(lines: list[tuple[int, int | None, bool, int]]) -> tuple[Loop, ...]:
    """Loops without a loop inside, from (address, address jumped to, float64?, stall)."""
    spans = sorted(
        {(target, at) for at, target, _, _ in lines if target is not None and target < at}
    )
    inner = [
        (first, last)
        for first, last in spans
        if not any(first <= a and b < last for a, b in spans if (a, b) != (first, last))
    ]
    found = []
    for first, last in inner:
        body = [line for line in lines if first <= line[0] <= last]
        found.append(Loop(len(body), sum(line[2] for line in body), sum(line[3] for line in body)))
    return tuple(found)


def lower_bound(device: Device, kernels: dict[str, Compiled], n_rows: int, length: int) -> float:
    """Seconds that one gradient takes at least; see the formula above."""
    k = next(iter(kernels.values())).k
    settings = calculate_settings(SAMPLES, n_rows, length, k, itemsize=8)
    scan_seconds = [
        kernel_bound(device, compiled, settings, n_rows, length) for compiled in kernels.values()
    ]
    return sum(scan_seconds)


def kernel_bound(
    device: Device, compiled: Compiled, settings: Settings, n_rows: int, length: int
) -> float:
    """Seconds that one kernel takes at least over all its launches for a gradient."""
    over_chunks = compiled.kernel in ("forward", "backward")
    if over_chunks:
        lanes = n_rows * SAMPLES
        trips = settings.n_chunks // scan_unroll(2 * compiled.k)
        read = 0.0
    else:
        lanes = n_rows * math.ceil(length / settings.chunk) * SAMPLES
        trips = settings.chunk // settings.tile
        read = max(0.0, 8.0 * n_rows * length - device.cache)
    warps = lanes / 32
    rate = device.multiprocessors * 4 * device.clock
    issue = latency = 0.0
    for loop in compiled.loops:
        issue += trips * warps * max(loop.instructions, device.float64_cycles * loop.float64) / rate
        latency += trips * loop.stalls / device.clock
    return max(issue, latency, read / device.bandwidth)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.description = __doc__
    parser.add_argument("--k", type=int, default=5, help="K (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Print two Markdown tables."""
    found = list(measure(states=[args.k]))
    print(f"K = {args.k}, float64. For each innermost loop: instructions, float64 ones, stalls.\n")
    print("| kernel | target | registers | spills (B) | shared (B) | loop bodies |")
    print("|---|---|---|---|---|---|")
    for one in found:
        loops = "; ".join(
            f"{loop.instructions}, {loop.float64}, {loop.stalls or '-'}" for loop in one.loops
        )
        print(
            f"| {one.kernel} | {one.target} | {one.registers} | {one.spills} | {one.shared} "
            f"| {loops} |"
        )
    print("\nLower bound on one gradient of two points, ms; no row ends early.\n")
    print("| shape | " + " | ".join(device.name for device in DEVICES) + " |")
    print("|---|" + "---|" * len(DEVICES))
    for n_rows, length in SHAPES:
        cells = []
        for device in DEVICES:
            kernels = {one.kernel: one for one in found if one.target == device.target}
            cells.append(f"{1e3 * lower_bound(device, kernels, n_rows, length):.3g}")
        print(f"| {n_rows}x{length} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(add_arguments, run))
