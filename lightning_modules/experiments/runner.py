"""Run trials that have no result yet, side by side if asked, whoever else is at work on them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from fsl_basesel import checks
from fsl_basesel.errors import InputError
from lightning_modules.experiments.plan import Trial
from lightning_modules.experiments.store import ResultStore


@dataclass(frozen=True)
class TrialOutcome:
    """What became of a trial: "done", "busy" in another process, or "failed" with a problem."""

    trial: Trial
    state: str
    problem: str = ""


def run_all(
    trials: Sequence[Trial],
    store: ResultStore,
    jobs: int = 1,
    report: Callable[[TrialOutcome], None] = lambda outcome: None,
) -> list[TrialOutcome]:
    """Work until every trial has a result or has failed, and return the failures.

    Trials that have a result are not run. More than one of the `jobs` run side by side, each in a
    process of its own; `report` is called after each trial that is done or has failed.
    """
    checks.integer(jobs, "--jobs", 1)
    left = [trial for trial in trials if store.load(trial) is None]
    failures = []
    outcomes = _in_turn(left, store) if jobs == 1 else _side_by_side(left, store, jobs)
    for outcome in outcomes:
        if outcome.state == "failed":
            failures.append(outcome)
        report(outcome)
    return failures


def attempt(trial: Trial, folder: Path, wait: bool) -> TrialOutcome:
    """Run a trial unless it has a result by now; `wait` for another process that runs it."""
    from lightning_modules.experiments.trial import run_trial

    store = ResultStore(folder)
    with store.claim(trial.key, wait) as mine:
        if not mine:
            return TrialOutcome(trial, "busy")
        if store.load(trial) is not None:
            return TrialOutcome(trial, "done")
        try:
            store.save(trial, run_trial(trial, store))
        except Exception as error:  # the others go on, and what went wrong is told at the end
            return TrialOutcome(trial, "failed", f"{type(error).__name__}: {error}")
    return TrialOutcome(trial, "done")


def _in_turn(left: Sequence[Trial], store: ResultStore) -> Iterator[TrialOutcome]:
    queue = [(trial, False) for trial in left]
    for trial, patient in queue:  # those that are busy come again at its end
        outcome = attempt(trial, store.folder, patient)
        if outcome.state == "busy":
            queue.append((trial, True))
        else:
            yield outcome


def _side_by_side(left: Sequence[Trial], store: ResultStore, jobs: int) -> Iterator[TrialOutcome]:
    threads = max(1, (os.cpu_count() or 1) // jobs)
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare, (threads,))
    try:
        queue, running = [(trial, False) for trial in left], set[Future[TrialOutcome]]()
        while queue or running:
            while queue and len(running) < jobs:
                trial, patient = queue.pop(0)
                running.add(pool.submit(attempt, trial, store.folder, patient))
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for outcome in (future.result() for future in finished):
                if outcome.state == "busy":
                    queue.append((outcome.trial, True))
                else:
                    yield outcome
    except BrokenProcessPool as error:
        raise InputError(
            "Expected the processes of --jobs to finish but one was killed, perhaps for want of "
            "memory; the same command goes on with what is left."
        ) from error
    finally:
        # Not `with`: that would wait for trials under way after Ctrl-C.
        pool.shutdown(wait=False, cancel_futures=True)


def _prepare(threads: int) -> None:
    """In a new process of --jobs: take a share of the threads, and end when the command does."""
    import torch
    from threadpoolctl import threadpool_limits

    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    torch.set_num_threads(threads)
    threadpool_limits(threads)  # numpy's, in softmax regression


def _end_with(sentinel: int) -> None:
    """End this process when the command is gone; one that is killed cannot say so itself."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
