"""The stages of a cold start as pure functions: how many classes, for how many epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from fsl_basesel import checks
from fsl_basesel.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """Number of base classes, rising, and of epochs at most in each stage.

    Example:
        >>> Schedule.of((6, 12, 25), 10).epochs
        (10, 10, 10)
    """

    sizes: tuple[int, ...]
    epochs: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sequence[int], epochs_per_stage: int | Sequence[int]) -> Schedule:
        """A schedule that has been checked; one number of epochs serves all stages."""
        stages = tuple(checks.integer(size, "schedule", 1) for size in sizes)
        if not stages or any(b <= a for a, b in pairwise(stages)):
            raise InputError(
                "Expected `schedule` to be rising numbers of classes, as in (6, 12, 25, 50, 100), "
                f"but got {sizes!r}."
            )
        each = epochs_per_stage
        each = each if isinstance(each, Sequence) else [each] * len(stages)
        epochs = tuple(checks.integer(value, "epochs_per_stage", 1) for value in each)
        if len(epochs) != len(stages):
            raise InputError(
                f"Expected `epochs_per_stage` to be one number or one for each of the "
                f"{len(stages)} stages but got {epochs_per_stage!r}."
            )
        return cls(stages, epochs)

    def __len__(self) -> int:
        return len(self.sizes)


class StageState(NamedTuple):
    """Where in its schedule a run is."""

    stage: int  # from 0
    start: int  # epoch in which the stage began
    over: int | None = None  # epoch after which the stage is to end before its time


def next_stage_is_due(schedule: Schedule, state: StageState, epoch: int) -> bool:
    """Whether `epoch` belongs to the stage after `state.stage`.

    Example:
        >>> schedule = Schedule.of((2, 4), (3, 1))
        >>> [next_stage_is_due(schedule, StageState(0, 0), epoch) for epoch in range(4)]
        [False, False, False, True]
        >>> next_stage_is_due(schedule, StageState(0, 0, over=0), 1)
        True
    """
    if state.stage + 1 >= len(schedule):
        return False
    ended = state.over is not None and epoch > state.over
    return ended or epoch >= state.start + schedule.epochs[state.stage]


def last_epoch(schedule: Schedule, state: StageState) -> int:
    """How many epochs the whole run has, if no further stage ends before its time.

    Example:
        >>> last_epoch(Schedule.of((2, 4), 5), StageState(1, start=3))
        8
    """
    ending = state.start + schedule.epochs[state.stage]
    if state.over is not None and state.stage + 1 < len(schedule):
        ending = min(ending, state.over + 1)
    return ending + sum(schedule.epochs[state.stage + 1 :])
