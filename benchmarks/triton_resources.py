"""Compile the Triton kernels ahead of time and print what they take: no GPU is needed.

python benchmarks/triton_resources.py --target sm_90 --k 5 --k 10
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsl_basesel.errors import InputError

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
KERNELS = ("summarise", "forward", "backward", "replay")
STATE_COUNTS = (1, 3, 5, 10, 32)
ALIGNED = ("width", "values_stride", "order_stride", "chunk")  # multiples of 16 in padded rows


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes.

    Attributes:
        kernel: name of the kernel.
        target: `sm_80`, `sm_90`, `gfx942`, ...
        k: states it is compiled for.
        registers: 32-bit registers a thread (vector registers on AMD, both kinds).
        spills: bytes a thread keeps in memory for want of registers; the tests ask for 0.
        shared: bytes of shared memory a program.
        warps: warps a program.
        warps_resident: warps that fit on one multiprocessor (SIMD on AMD) with these registers.
    """

    kernel: str
    target: str
    k: int
    registers: int
    spills: int
    shared: int
    warps: int
    warps_resident: int


def measure(
    kernels: Sequence[str] = KERNELS,
    targets: Sequence[str] = TARGETS,
    states: Sequence[int] = STATE_COUNTS,
    *,
    double: bool = False,
    padded: bool = True,
    single: bool = False,
) -> Iterator[Resources]:
    """Compile each kernel for each number of states and each target.

    Args:
        kernels: names out of `KERNELS`.
        targets: `sm_<number>` or an AMD architecture such as `gfx942`.
        states: numbers of states (K).
        double: float64 states and probabilities.
        padded: rows as `place_rows` leaves them, or rows of any length.
        single: one vector x, for which the launcher compiles a variant of its own.

    Raises:
        InputError: where Triton is missing or set to interpret.
    """
    for kernel in kernels:
        for k in states:
            for target in targets:
                yield _compile(kernel, target, k, double=double, padded=padded, single=single)


def _compile(
    name: str, target: str, k: int, *, double: bool, padded: bool, single: bool
) -> Resources:
    triton = _triton()
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from fsl_basesel.multilinear.triton import scan
    from fsl_basesel.multilinear.triton.launch import compile_options
    from fsl_basesel.multilinear.triton.settings import BLOCK, scan_unroll, tile_width

    if name not in KERNELS:
        raise InputError(f"Expected a kernel out of {', '.join(KERNELS)} but got {name!r}")
    words = 2 * k if double else k
    nvidia = target.startswith("sm_")
    gpu = GPUTarget("cuda", int(target[3:]), 32) if nvidia else GPUTarget("hip", target, 64)
    function = getattr(scan, f"{name}_kernel")
    # The scans over chunks take a row for each thread and one warp for each program.
    lanes = BLOCK if name in ("summarise", "replay") else gpu.warp_size
    constants = {
        "K": k,
        "TILE": tile_width(k, 8 if double else 4),
        "UNROLL": scan_unroll(words),
        "BLOCK": lanes,
        "DTYPE": triton.language.float64 if double else triton.language.float32,
    }
    if single:
        constants["n_samples"] = 1
    constants = {key: value for key, value in constants.items() if key in function.arg_names}
    signature = {key: _argument_type(key, constants, double) for key in function.arg_names}
    # What the launcher finds out: torch's allocations are aligned, and rows may be padded.
    attributes = {
        (place,): [["tt.divisibility", 16]]
        for place, key in enumerate(function.arg_names)
        if key.endswith("_ptr") or (padded and key in ALIGNED)
    }
    options = compile_options(name, words, gpu.warp_size)
    warps = options["num_warps"]
    compiled = triton.compile(
        ASTSource(function, signature, constants, attributes),
        target=gpu,
        options=options,
    )
    read = _read_nvidia if nvidia else _read_amd
    registers, spills = read(compiled.asm)
    resident = _warps_resident(registers, compiled.metadata.shared, warps, nvidia)
    return Resources(name, target, k, registers, spills, compiled.metadata.shared, warps, resident)


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


def _read_nvidia(asm: dict[str, Any]) -> tuple[int, int]:
    """Registers and bytes of local memory a thread, from the machine code itself."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(asm["cubin"])
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {key: int(number) for key, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    return found["REG"], found["STACK"] + found["LOCAL"]


def _read_amd(asm: dict[str, Any]) -> tuple[int, int]:
    """Vector registers and spilled bytes a thread, from the notes of the assembly."""
    keys = "vgpr_count|vgpr_spill_count|private_segment_fixed_size"
    found = dict(re.findall(rf"\.({keys}):\s*(\d+)", asm["amdgcn"]))
    # Scalar registers that do not fit are parked in lanes of a vector register, not in memory.
    spilled = max(4 * int(found["vgpr_spill_count"]), int(found["private_segment_fixed_size"]))
    return int(found["vgpr_count"]), spilled


def _warps_resident(registers: int, shared: int, warps: int, nvidia: bool) -> int:
    """Warps that fit by registers, shared memory and the limits on warps and programs.

    NVIDIA, per multiprocessor: 64K registers given out in units of 8 a thread, 64 warps, 32
    programs, 164 KB of shared memory (sm_80; sm_90 has 228 KB). AMD gfx942, per SIMD: 512 registers
    a lane in units of 8, 8 waves, a quarter of 64 KB of shared memory.
    """
    per_thread = -(-max(1, registers) // 8) * 8
    if nvidia:
        limits = (65536 // (per_thread * 32) // warps, 64 // warps, 32)
        by_shared = 164 * 1024 // (shared + 1024)
    else:
        limits = (512 // per_thread // warps, 8 // warps, 8)
        by_shared = 16 * 1024 // max(1, shared)
    return min(*limits, by_shared) * warps


def _row(found: Sequence[Resources]) -> str:
    """One kernel with one K on every target: registers, and resident warps in brackets."""
    kernel, k = found[0].kernel, found[0].k
    cells = (f"{one.registers} ({one.warps_resident})" for one in found)
    most = max(one.spills for one in found), max(one.shared for one in found)
    return f"| {kernel} | {k} | {' | '.join(cells)} | {most[0]} | {most[1]} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a Markdown table: registers a thread and, in brackets, resident warps, per target."""
    parser = argparse.ArgumentParser(prog="python benchmarks/triton_resources.py")
    parser.add_argument("--target", action="append", help=f"default: {', '.join(TARGETS)}")
    parser.add_argument("--kernel", action="append", choices=KERNELS, help="default: all")
    parser.add_argument("--k", action="append", type=int, help=f"default: {STATE_COUNTS}")
    parser.add_argument("--double", action="store_true", help="float64 states")
    parser.add_argument("--unpadded", action="store_true", help="rows of any length")
    args = parser.parse_args(arguments)
    targets = args.target or list(TARGETS)
    print(f"| kernel | K | {' | '.join(targets)} | spills (B) | shared (B) |")
    print(f"|---|---|{'---|' * len(targets)}---|---|")
    found: list[Resources] = []
    for resources in measure(
        args.kernel or KERNELS,
        targets,
        args.k or STATE_COUNTS,
        double=args.double,
        padded=not args.unpadded,
    ):
        found.append(resources)
        if len(found) == len(targets):
            print(_row(found), flush=True)
            found = []
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
