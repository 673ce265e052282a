"""`fsl-basesel reproduce`: the tables and figures of the paper, on its data or on the glyphs."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from fsl_basesel.cli import EXIT_FAILED, output
from fsl_basesel.cli.screen import PlainConsole

if TYPE_CHECKING:
    from lightning_modules.experiments.plan import Experiment, TableRow
    from lightning_modules.experiments.runner import TrialOutcome
    from lightning_modules.experiments.store import ResultStore

EXAMPLES = """\
examples:
  the list of experiments:
    fsl-basesel reproduce --list
  Tables 2-4 on the embedded glyphs, two networks at a time:
    fsl-basesel reproduce pretrained-glyphs --jobs 2
  the paper's own settings, on its data (folders in configs/reproduce):
    fsl-basesel reproduce pretrained --data-root data
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = (
        "Run an experiment: choose base classes, train on them, judge the networks on\n"
        "novel classes. Every trained network is kept as a row, so that an interrupted\n"
        "command can be continued, experiments share rows, and two commands can work\n"
        "side by side."
    )
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="an experiment, or a YAML file")
    add("--list", action="store_true", help="list the experiments and leave")
    add("--out-dir", default="runs/reproduce", metavar="DIR", help="where results go (%(default)s)")
    add("--jobs", type=int, default=1, help="networks side by side (%(default)s)")
    add("--repeats", type=int, metavar="N", help="number of seeds to run (as the experiment says)")
    add("--data-root", metavar="DIR", help="folder with the paper's data sets")
    add("--only", metavar="A,B", help="only these data sets of the experiment, by name")
    add("--m", metavar="A,B", help="only these numbers of base classes of the experiment")
    rows = "take up rows that an earlier run left in FILE, and add all finished rows to it"
    add("--rows", metavar="FILE", help=rows)
    dry = "print the number of networks and how many are finished, then exit"
    add("--dry-run", action="store_true", help=dry)


def run(args: argparse.Namespace) -> int:
    """Run what has no result yet, then write and print the tables."""
    from lightning_modules.experiments import plan
    from lightning_modules.experiments.store import ResultStore

    console = PlainConsole()
    if args.list or args.name is None:
        for name in plan.names():
            experiment = plan.load(name, ".")
            count = len(plan.each_trial(experiment.rows()))
            console.print(f"{name:<28}{count:>6} networks  {experiment.title}", soft_wrap=True)
        return 0
    experiment = plan.load(args.name, args.data_root)
    asked = (args.repeats, args.only, args.m)
    rows = asked_rows(args.name, args.data_root, *asked)
    store = ResultStore(args.out_dir)
    trials = plan.each_trial(rows)
    if args.rows is not None:
        # The file has keys as for data in ".", so that rows are found wherever the data are.
        there = plan.each_trial(asked_rows(args.name, ".", *asked))
        by_key = {one.key: trial for one, trial in zip(there, trials, strict=True)}
        store.take_up(args.rows, by_key)
    done = sum(store.load(trial) is not None for trial in trials)
    console.print(f"{experiment.title}: {len(trials)} networks, {done} there already.")
    if args.dry_run:
        return 0
    failures = work(rows, store, args.jobs)
    if args.rows is not None:
        store.keep(args.rows, by_key)
    return finish(experiment, rows, store, failures, console)


def asked_rows(
    name: str,
    data_root: str | None = None,
    repeats: int | None = None,
    only: str | None = None,
    m: str | None = None,
) -> list[TableRow]:
    """Rows of an experiment: so many repeats, only these data sets and numbers of base classes."""
    from lightning_modules.experiments import plan

    rows = plan.load(name, data_root, repeats=repeats).rows()
    if only is not None:
        known = list(dict.fromkeys(row.dataset for row in rows))
        wanted = output.listed(only, known, "--only")
        rows = [row for row in rows if row.dataset in wanted]
    if m is not None:
        known = list(dict.fromkeys(str(row.trial.m) for row in rows))
        wanted = output.listed(m, known, "--m")
        rows = [row for row in rows if str(row.trial.m) in wanted]
    return rows


def work(rows: list[TableRow], store: ResultStore, jobs: int) -> list[TrialOutcome]:
    """Run what has no result yet and say how far it is; the failures."""
    from lightning_modules.experiments import plan, runner

    trials = plan.each_trial(rows)
    labels = {row.trial.key: f"{row.dataset}, {row.label}, m={row.trial.m}" for row in rows}
    there = sum(store.load(trial) is not None for trial in trials)
    start, done = time.perf_counter(), there

    def report(outcome: TrialOutcome) -> None:
        nonlocal done
        done += 1
        left = (len(trials) - done) * (time.perf_counter() - start) / max(1, done - there)
        text = f"{labels[outcome.trial.key]}, repeat {outcome.trial.seed}: {outcome.state}"
        reason = f" ({outcome.problem})" if outcome.problem else ""
        shown = f"[{done}/{len(trials)}, {left / 60:.0f} min left] {text}{reason}"
        print(shown, file=sys.stderr)

    return runner.run_all(trials, store, jobs, report)


def finish(
    experiment: Experiment,
    rows: list[TableRow],
    store: ResultStore,
    failures: list[TrialOutcome],
    console: PlainConsole,
) -> int:
    """Write and print the results so far; the exit code."""
    from lightning_modules.experiments.products import write_products

    with output.working("Tables and figures"):
        text, written = write_products(experiment, rows, store)
    console.print(text, soft_wrap=True)
    for path in written:
        console.print(f"Saved {path}", style="dim", soft_wrap=True)
    if not failures:
        return 0
    again = "the same command tries them again"
    print(f"fsl-basesel: {len(failures)} networks failed; {again}", file=sys.stderr)
    return EXIT_FAILED
