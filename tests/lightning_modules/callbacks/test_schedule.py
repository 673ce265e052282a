"""The schedule of a cold start, on its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsl_basesel.errors import InputError
from lightning_modules.callbacks.schedule import Schedule, StageState, last_epoch, next_stage_is_due


@given(
    steps=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    epochs=st.lists(st.integers(1, 4), min_size=6, max_size=6),
)
def test_a_run_goes_through_all_stages_for_their_epochs(
    steps: list[int], epochs: list[int]
) -> None:
    sizes = [sum(steps[: i + 1]) for i in range(len(steps))]
    schedule = Schedule.of(sizes, epochs[: len(sizes)])
    state, epoch, lasted = StageState(0, 0), 0, [0] * len(sizes)
    total = last_epoch(schedule, state)
    while epoch < last_epoch(schedule, state):
        if next_stage_is_due(schedule, state, epoch):
            state = StageState(state.stage + 1, epoch)
        lasted[state.stage] += 1
        epoch += 1
    assert tuple(lasted) == schedule.epochs
    assert epoch == total == sum(schedule.epochs)


@given(over=st.integers(0, 4))
def test_a_stage_that_ends_early_shortens_the_run_by_what_it_had_left(over: int) -> None:
    schedule = Schedule.of((2, 4, 6), 5)
    state = StageState(0, 0, over)
    assert [next_stage_is_due(schedule, state, epoch) for epoch in range(6)] == [
        epoch > over for epoch in range(6)
    ]
    assert last_epoch(schedule, state) == over + 1 + 10


def test_the_last_stage_has_none_after_it() -> None:
    schedule = Schedule.of((2, 4), 1)
    assert not next_stage_is_due(schedule, StageState(1, 1), 99)


@pytest.mark.parametrize("sizes", [(), (0, 5), (6, 6), (12, 6), (6, 12, 10), (6.5, 12), ("a", "b")])
def test_a_schedule_that_does_not_rise_is_refused(sizes: Any) -> None:
    with pytest.raises(InputError, match="Expected `schedule` to be"):
        Schedule.of(sizes, 5)


@pytest.mark.parametrize("epochs", [0, (1, 2, 3), (1, 0), 1.5, ()])
def test_epochs_that_do_not_fit_the_schedule_are_refused(epochs: Any) -> None:
    with pytest.raises((InputError), match="Expected `epochs_per_stage` to be"):
        Schedule.of((2, 4), epochs)
