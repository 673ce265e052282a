"""Every Triton kernel compiles ahead of time for NVIDIA and AMD, without spills; no GPU needed."""

from __future__ import annotations

import pytest
from triton_resources import KERNELS, TARGETS, main, measure

pytest.importorskip("triton")


@pytest.mark.parametrize("target", TARGETS)
def test_no_kernel_spills(target: str) -> None:
    found = list(measure(KERNELS, [target], [5]))
    assert {resources.kernel: resources.spills for resources in found} == dict.fromkeys(KERNELS, 0)
    assert all(0 < resources.registers < 128 for resources in found)


@pytest.mark.parametrize("target", TARGETS)
def test_the_most_states_do_not_spill(target: str) -> None:
    # The replay takes long to compile with so many states: one target stands for all.
    kernels = ["summarise", *(["replay"] if target == "sm_80" else [])]
    for resources in measure(kernels, [target], [32]):
        assert resources.spills == 0, resources


def test_one_state_and_one_sample_compile() -> None:
    for resources in measure(KERNELS, ["sm_90"], [1], single=True):
        assert resources.spills == 0, resources


@pytest.mark.parametrize("target", TARGETS)
def test_doubles_in_ragged_rows_do_not_spill(target: str) -> None:
    variant = {"double": True, "padded": False}
    # Eight doubles a lane are 16 words: where Triton 3.8's assembler spills if it is not bounded.
    for resources in measure(["replay"], [target], [5, 8], **variant):
        assert resources.spills == 0, resources


def test_padded_rows_are_read_in_wide_pieces() -> None:
    (padded,) = measure(["summarise"], ["sm_80"], [5])
    (ragged,) = measure(["summarise"], ["sm_80"], [5], padded=False)
    # Ragged rows are exchanged between threads through shared memory, padded ones are not.
    assert padded.shared < 64 <= ragged.shared
    assert padded.warps_resident > ragged.warps_resident


def test_the_table_is_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "sm_80", "--kernel", "summarise", "--k", "5"]) == 0
    header, rule, row = capsys.readouterr().out.splitlines()
    assert header.count("|") == rule.count("|") == row.count("|")
    assert row.startswith("| summarise | 5 |")
