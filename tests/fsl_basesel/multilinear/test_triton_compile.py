"""Every Triton kernel compiles ahead of time for NVIDIA and AMD, without spills; no GPU needed."""

from __future__ import annotations

import pytest
from triton_bounds import DEVICES, KERNELS, TARGETS, lower_bound, measure

pytest.importorskip("triton")


@pytest.mark.parametrize(
    ("target", "double"), [*((name, True) for name in TARGETS), ("sm_80", False)]
)
def test_no_kernel_spills(target: str, double: bool) -> None:
    found = list(measure(KERNELS, [target], [5], double=double))
    assert {one.kernel: one.spills for one in found} == dict.fromkeys(KERNELS, 0)
    assert all(0 < one.registers < 160 for one in found)
    assert all(one.loops for one in found)


@pytest.mark.parametrize("target", TARGETS)
def test_the_most_states_do_not_spill(target: str) -> None:
    # The replay takes long to compile with so many states: one target stands for all.
    kernels = ["summarise", *(["replay"] if target == "sm_80" else [])]
    for compiled in measure(kernels, [target], [32], double=False):
        assert compiled.spills == 0, compiled


def test_one_state_and_one_sample_compile() -> None:
    for compiled in measure(KERNELS, ["sm_90"], [1], double=False, single=True):
        assert compiled.spills == 0, compiled


@pytest.mark.parametrize("target", TARGETS)
def test_eight_doubles_do_not_spill(target: str) -> None:
    # Eight doubles per lane are 16 words: where Triton 3.8's assembler spills if it is not bounded.
    for compiled in measure(["replay"], [target], [8]):
        assert compiled.spills == 0, compiled


def test_padded_rows_are_read_in_wide_pieces() -> None:
    # A thread reads its own tile of doubles; else tiles are exchanged through shared memory.
    (compiled,) = measure(["summarise"], ["sm_80"], [5])
    assert compiled.shared < 64


def test_the_loop_that_is_read_is_the_loop_that_is_written() -> None:
    """Four elements per tile, K + 1 steps of p, K of W, each a subtraction and a fused product."""
    for compiled in measure(["summarise"], ["sm_80", "sm_90"], [5]):
        (loop,) = compiled.loops
        assert loop.float64 == 4 * 2 * (5 + 1 + 5)
        assert loop.stalls >= loop.instructions > loop.float64
    (compiled,) = measure(["summarise"], ["gfx942"], [5])
    assert compiled.loops[0].stalls == 0


def test_the_lower_bound_grows_with_the_work() -> None:
    a100 = DEVICES[0]
    kernels = {one.kernel: one for one in measure(targets=[a100.target])}
    small, large = (lower_bound(a100, kernels, 1000, length) for length in (1000, 21000))
    assert 0 < 10 * small < large
    # Float64 alone: every element in summarise (22 instructions) and replay, two points.
    least = 2 * 1000 * 21000 * 22 / 32 * 4 / (108 * 4 * 1.41e9)
    assert least < large < 10 * least
