"""`fsl-basesel demo`: base models trained on selected classes, judged, explained, reported."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsl_basesel.cli import output, reproduce
from fsl_basesel.cli.screen import PlainConsole, new_table, print_chosen, print_novel

if TYPE_CHECKING:
    from lightning_modules.callbacks import ColdStartSelection, NovelEvaluation
    from lightning_modules.experiments.plan import Experiment, TableRow

EXAMPLES = """\
examples:
  fsl-basesel demo
  fsl-basesel demo --domain plain --repeats 5
"""

SCHEDULE = (6, 12, 25, 50, 100)
SHOWN = 3  # classes whose reasons are printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = (
        "Which 100 of 400 written characters should a network be trained on, to tell 100\n"
        "others apart from 5 images each? Trains a network on the choice of every method,\n"
        "compares them, selects in stages without a first model (cold start), and writes\n"
        "a report. The images are made on the spot from fonts; nothing is downloaded. A\n"
        "second call continues the first."
    )
    add = parser.add_argument
    domain = (
        "novel characters at random (plain), of scripts that no candidate has (transfer), or "
        "accented Latin letters (fine, the default)"
    )
    add("--domain", choices=("plain", "transfer", "fine"), default="fine", help=domain)
    add("--repeats", type=int, metavar="N", help="seeds (3)")
    jobs = min(2, os.cpu_count() or 1)
    add("--jobs", type=int, default=jobs, help="networks side by side (%(default)s)")
    add("--out-dir", default="runs/demo", metavar="DIR", help="where results go (%(default)s)")
    add("--config", metavar="FILE", default="demo", help="another experiment than this one")


def run(args: argparse.Namespace) -> int:
    """Train, compare, cold start, explain, report."""
    import yaml

    from fsl_basesel.data.glyphs import glyph_codes
    from fsl_basesel.files.writing import csv_text
    from fsl_basesel.selection import Selection
    from lightning_modules.experiments import plan
    from lightning_modules.experiments.result_tables import COLUMNS, result_rows
    from lightning_modules.experiments.store import ResultStore
    from lightning_modules.experiments.trial import cold_start_run

    start = time.perf_counter()
    console = PlainConsole()
    experiment = plan.load(args.config)
    rows = reproduce.asked_rows(args.config, repeats=args.repeats, only=args.domain)
    folder = Path(args.out_dir) / args.domain
    store = ResultStore(folder)
    trials = plan.each_trial(rows)
    first, repeats = trials[0], len({trial.seed for trial in trials})
    console.print(experiment.title, style="bold")
    console.print(
        f"{len(trials)} networks to train for {len({row.label for row in rows})} methods and "
        f"{repeats} repeats ({args.domain}), then a cold start. Each repeat has classes, a first "
        "model and test images of its own, shared by all methods.\n"
    )
    glyph_codes()  # on a new machine this draws the characters; once, and not in every process
    failures = reproduce.work(rows, store, args.jobs)
    if failures:
        return reproduce.finish(experiment, rows, store, failures, console)
    results = result_rows(experiment, rows, store)
    _print_comparison(console, experiment, rows, results)
    schedule = (*(size for size in SCHEDULE if size < first.m), first.m)
    with output.working(f"Cold start {'-'.join(map(str, schedule))}"):
        staged = replace(first, schedule=schedule, method="auto", k=3, lam=0.0, similarity="cosine")
        stages = cold_start_run(staged, folder)
    _print_stages(console, *stages)
    selection = Selection.load(folder / f"selection-stage-{len(schedule)}.json")
    console.print("Why these classes?", style="bold")
    print_chosen(console, selection, SHOWN)
    console.print("What do the novel classes get?", style="bold")
    print_novel(console, selection.explain().novel[:SHOWN])
    output.save_text(folder / "results.csv", csv_text(results, COLUMNS))
    datasets = {args.domain: experiment.datasets[args.domain]}
    ran = asdict(replace(experiment, datasets=datasets, repeats=repeats))
    plain = json.loads(json.dumps(ran))  # tuples as lists, for YAML
    settings = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    output.save_text(folder / "settings.yaml", settings)
    page, _ = output.save_page(folder)
    seconds = time.perf_counter() - start
    words = f"\nReport: {page}   ({seconds / 60:.1f} minutes)"
    console.print(words, style="bold", soft_wrap=True)
    return 0


def _print_comparison(
    console: PlainConsole,
    experiment: Experiment,
    rows: list[TableRow],
    results: list[dict[str, Any]],
) -> None:
    """Accuracy of each method, its paired difference, and how good its selections provably are."""
    from fsl_basesel.report.paired import points, summarise
    from lightning_modules.experiments.result_tables import similarities

    shots = experiment.shots
    pairs = [title for count in shots for title in (f"{count}-shot, %", "vs Random")]
    table = new_table("method", *pairs, "optimal to", left=("method",))
    lines = {
        (one.label, one.key["shots"]): one
        for one in summarise(results)
        if one.key["head"] == experiment.heads[0]
    }
    for label in dict.fromkeys(row.label for row in rows):
        cells = []
        for line in (lines[label, count] for count in shots):
            cells.append(points(line.accuracy, digits=1))
            cells.append(points(line.difference, sign=True, digits=1))
        gaps = [row["gap"] for row in results if row["label"] == label and row["gap"] is not None]
        cells.append(f"{100 * (1 - max(gaps)):.3f} %" if gaps else "")
        table.add_row(label, *cells)
    console.print(table)
    repeats = len({row.trial.seed for row in rows})
    console.print(
        f"Networks trained on the {experiment.m[0]} classes of each method, chosen by "
        f"{similarities(results)} similarity; accuracy on "
        f"{rows[0].trial.data['init_args']['novel_classes']} novel classes by nearest centroid, "
        f"mean of {repeats} repeats with 95 % intervals, differences paired. The last column is "
        "proven by the Lagrangian dual: the worst repeat's share of the best possible value. A "
        "choice has to beat all candidates with as many images (Whole pool) and, if some share "
        "the task's groups, random classes with those first (Own groups first).\n",
        style="dim",
    )


def _print_stages(
    console: PlainConsole, selection: ColdStartSelection, evaluation: NovelEvaluation
) -> None:
    """The cold start, stage by stage."""
    from lightning_modules.experiments.result_tables import HEADS

    console.print("Cold start: every stage is chosen with the model of the stage before")
    heads = dict.fromkeys(row["head"] for row in evaluation.rows)
    titles = [f"{HEADS.get(name, name)}, %" for name in heads]
    table = new_table("stage", "classes", "h", "optimal to", *titles)
    for number, record in enumerate(selection.records, 1):
        mine = [row for row in evaluation.rows if row["stage"] == number]
        gap = record.get("gap")
        known = number > 1 and gap is not None
        table.add_row(
            str(number),
            str(selection.schedule.sizes[number - 1]),
            f"{record['value']:.4f}" if known else "random",
            f"{100 * (1 - float(gap or 0)):.3f} %" if known else "",
            *(f"{100 * row['accuracy']:.1f} ± {100 * row['ci95']:.1f}" for row in mine),
        )
    console.print(table)
