"""Blocks side by side: results in order, errors passed on, no deadlock."""

from __future__ import annotations

import threading
import time

import pytest

from fsl_basesel.parallel import map_blocks


@pytest.fixture(params=["1", "2", "5"])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", request.param)


@pytest.mark.usefixtures("_threads")
def test_results_come_in_the_order_of_the_blocks() -> None:
    def work(start: int, stop: int) -> tuple[int, int]:
        time.sleep(0.001 * (start % 3))
        return start, stop

    assert map_blocks(work, 20, 3) == [(a, min(a + 3, 20)) for a in range(0, 20, 3)]
    assert map_blocks(work, 0, 3) == []


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("bad", [0, 4, 9])
def test_an_error_of_any_block_reaches_the_caller(bad: int) -> None:
    def work(start: int, stop: int) -> int:
        if start == bad:
            raise IndexError("of the block itself")
        return stop

    with pytest.raises(IndexError, match="of the block itself"):
        map_blocks(work, 10, 1)


@pytest.mark.usefixtures("_threads")
def test_blocks_within_blocks_and_callers_side_by_side_do_not_wait_for_each_other() -> None:
    def outer(start: int, _: int) -> int:
        return sum(map_blocks(lambda a, b: b - a, 10 + start, 2))

    results: list[list[int]] = []
    callers = [
        threading.Thread(target=lambda: results.append(map_blocks(outer, 8, 1))) for _ in range(6)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=30)
        assert not caller.is_alive()
    assert results == [[10 + start for start in range(8)]] * 6
