"""Interleaved timing: every contender once per round, medians with 20/80 quantiles, CSV."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

import fsl_basesel
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import csv_text, write_text
from fsl_basesel.parallel import thread_count

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


@dataclass(frozen=True)
class Timing:
    """Seconds of one contender in one setting, with where and with what they were measured."""

    setting: str
    name: str
    median: float
    low: float
    high: float
    rounds: int
    device: str
    version: str
    clock: str = "wall"

    def scaled(self, factor: float, name: str) -> Timing:
        """The timing of `factor` times the work, under a name that says so."""
        low, median, high = (factor * part for part in (self.low, self.median, self.high))
        return dataclasses.replace(self, name=name, low=low, median=median, high=high)


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    setting: str,
    patience: float = math.inf,
    clock: str = "wall",
    lot: float = 0.0,
) -> list[Timing]:
    """Run every contender once per round, so that a slow moment of the machine affects all.

    Args:
        contenders: What to time, by name.
        rounds: How often.
        setting: What the timings are of.
        patience: Seconds in all after which a contender sits out the remaining rounds.
        clock: `wall`, or `processor` for the time all threads of this process were running, which
            other programs on the machine hardly change.
        lot: Seconds a round of a contender lasts at least; short work is repeated and its mean
            taken, since a single call would be timed with cold caches.
    """
    now = CLOCKS[clock]
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    times = dict.fromkeys(contenders, 1)
    for number in range(rounds):
        for name, work in contenders.items():
            if times[name] * sum(seconds[name]) > patience:
                continue
            start = now()
            for _ in range(times[name]):
                work()
            taken = (now() - start) / times[name]
            seconds[name].append(taken)
            if number == 0 < rounds - 1 and taken < lot:
                times[name] = math.ceil(lot / max(taken, 1e-7))
                seconds[name].clear()
    return [
        Timing(
            setting=setting,
            name=name,
            median=float(np.median(taken)),
            low=float(np.quantile(taken, 0.2)),
            high=float(np.quantile(taken, 0.8)),
            rounds=len(taken),
            device=f"{platform.machine()} {os.cpu_count()} cores, {thread_count()} threads",
            version=fsl_basesel.__version__,
            clock=clock,
        )
        for name, taken in seconds.items()
    ]


def write_csv(path: str | os.PathLike[str], timings: list[Timing]) -> None:
    """One row per timing; the file is written atomically."""
    write_text(path, csv_text(asdict(timing) for timing in timings))


def main(
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
    words: Sequence[str] | None = None,
) -> int:
    """Run a benchmark with the words of the command line; bad input is one line and code 2."""
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    try:
        return run(parser.parse_args(words))
    except InputError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 2
