"""`fsl-basesel select`: choose the base classes for a task."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import fsl_basesel as fb
from fsl_basesel.checks import integer
from fsl_basesel.cli import output, screen
from fsl_basesel.cli.problems import (
    FILES,
    Inputs,
    add_problem_arguments,
    build_inputs,
    defaults,
    embedding_jobs,
    improved_by_page,
)
from fsl_basesel.distributed import all_or_none, is_first, launched, together
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import csv_text
from fsl_basesel.memory import gigabytes
from fsl_basesel.selectors import selector_of

if TYPE_CHECKING:
    from fsl_basesel.photographs import EmbeddingJob
    from fsl_basesel.selection import Selection

FORMATS = ("json", "csv", "txt")
EXAMPLES = f"""\
examples:
  10 classes of the folders in photos/pool for those in photos/task, with a page:
    fsl-basesel select photos/pool --novel photos/task -m 10 -k 1 --report chosen
  100 classes of a pool for the classes of a task, saved for later:
    fsl-basesel select pool.npz --novel task.npz -m 100 -k 3 --out chosen.json
  25 more, given those already selected:
    fsl-basesel select pool.npz --novel task.npz -m 25 --selected chosen.json
  novel classes spread over two processes (docs/scaling.md):
    torchrun --nproc-per-node 2 -m fsl_basesel select pool.npz --novel task.npz
  for another program:
    fsl-basesel select pool.npz --novel task.npz --format txt > chosen.txt

{FILES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_problem_arguments(parser)
    add = parser.add_argument_group("search").add_argument
    listed = f"one of {', '.join(fb.methods())} (%(default)s)"
    add("--method", default="auto", choices=fb.methods(), metavar="NAME", help=listed)
    add("--seed", type=int, default=0, help="seed of methods and of the images looked at (0)")
    add("--no-certify", action="store_true", help="do not compute an upper bound afterwards")
    add = output.add_output_arguments(parser, "the selection", FORMATS).add_argument
    add("--top", type=int, default=10, metavar="N", help="rows of the table (%(default)s)")
    add("--explain", action="store_true", help="all chosen and all novel classes, with reasons")
    add("--report", metavar="DIR", help="write selection.json, pictures and report.html there")
    add("--link", metavar="DIR", help="make DIR with a link to the folder of each chosen class")
    dry = "print number of images, time, memory and disk, then exit"
    add("--dry-run", action="store_true", help=dry)


def run(args: argparse.Namespace) -> int:
    """Select, print, save; of the processes of torchrun all select, and the first one prints."""
    with together(), open(os.devnull, "w") as nowhere, contextlib.ExitStack() as quiet:
        if not is_first():
            quiet.enter_context(contextlib.redirect_stdout(nowhere))
            quiet.enter_context(contextlib.redirect_stderr(nowhere))
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    all_or_none(lambda: _check(args))
    if args.dry_run:
        print_estimates(embedding_jobs(args))
        return 0
    with output.working("Reading the input, computing similarities"):
        inputs = build_inputs(args)
    problem, selector = inputs.problem, selector_of(args.method)
    certify = not args.no_certify
    with output.working(f"Choosing from {len(problem.unselected)} classes"):
        # With pictures --device is for the network, whatever the method.
        device = args.device if selector.uses_device() or not inputs.pictures else "auto"
        selection = fb.select(problem, selector, args.seed, certify, device=device)
        selection = improved_by_page(inputs, selection)
    output.deliver(
        args,
        lambda format: as_text(selection, format),
        lambda console: print_table(console, args, inputs, selection),
        links_and_report(args, inputs, selection),
    )
    return 0


def links_and_report(
    args: argparse.Namespace, inputs: Inputs, selection: Selection
) -> Iterator[str]:
    """Write them if asked for; a line about each."""
    if args.link is not None:
        link_classes(Path(args.candidates), selection.names, Path(args.link))
        yield f"Linked {len(selection.names)} folders in {args.link}"
    if args.report is not None:
        with output.working("Writing the report"):
            page = write_report(Path(args.report), inputs, selection, args)
        yield f"Report: {page}"


def print_table(
    console: screen.PlainConsole, args: argparse.Namespace, inputs: Inputs, selection: Selection
) -> None:
    """The facts, what they are worth, and the chosen classes."""
    from fsl_basesel.controls import controls, doubts

    screen.print_facts(console, inputs.problem, selection)
    found = controls(inputs.problem, *inputs.groups)
    screen.print_controls(console, selection.value, selection.upper_bound, found)
    top = len(selection.names) if args.explain else args.top
    screen.print_chosen(console, selection, top, whole=args.explain)
    if args.explain:
        screen.print_novel(console, selection.explain().novel)
    elif len(selection.names) > top:
        console.print(f"... and {len(selection.names) - top} more (--top N shows N)", style="dim")
    reasons = doubts(inputs.problem, selection, found[0], inputs.trained)
    output.note([*reasons, *defaults(args, inputs.problem)])


def as_text(selection: Selection, format: str) -> str:
    """The selection as json, csv, or txt: one name per line."""
    if format == "json":
        return selection.to_json() + "\n"
    if format == "txt":
        broken = [name for name in selection.names if len(name.splitlines()) != 1]
        if broken:
            raise InputError(
                f"Expected names of one line for txt but a chosen class is called {broken[0]!r}; "
                "use json or csv"
            )
        return "\n".join(selection.names) + "\n"
    from fsl_basesel.selection import COLUMNS

    rows = (row | {"serves": "|".join(row["serves"])} for row in selection.rows())
    return csv_text(rows, COLUMNS)


def _check(args: argparse.Namespace) -> None:
    """Refuse before the work what would fail after it."""
    output.check_out(args.out, FORMATS)
    integer(args.top, "--top", 0)
    if launched() and (args.report or args.link or args.dry_run):
        raise InputError(
            "Expected --report, --link and --dry-run on one process but torchrun started several; "
            "save the selection by --out and do the rest afterwards"
        )
    if args.link is not None:
        if args.candidates is None or not Path(args.candidates).is_dir():
            raise InputError("Expected CANDIDATES to be a folder for --link; leave --link out")
        if Path(args.link).exists() and any(Path(args.link).iterdir()):
            raise InputError(f"Expected --link to be a new folder but {args.link} is not empty")
    if args.report is not None:
        output.check_folder(Path(args.report))


def print_estimates(jobs: dict[str, EmbeddingJob]) -> None:
    """What embedding the folders would take."""
    if not jobs:
        raise InputError("Expected a folder of pictures for --dry-run; leave --dry-run out")
    table = screen.new_table(
        *("input", "classes", "images", "in the cache", "time", "memory", "disk"), left=("input",)
    )
    for side, job in jobs.items():
        found = job.estimate()
        cells = (len(job.names), found.images, found.cached)
        sizes = (gigabytes(found.memory), gigabytes(found.disk))
        table.add_row(side, *map(str, cells), screen.seconds(found.seconds), *sizes)
    console = screen.PlainConsole()
    console.print(f"{job.backbone.name}, {job.backbone.preprocessing}", soft_wrap=True)
    console.print(table)


def link_classes(root: Path, names: list[str], target: Path) -> None:
    """Make `target` with a link to the folder of each class."""
    with output.writing(target):
        for name in names:
            folder = (root / name).resolve()
            if not folder.is_dir():
                raise InputError(f"Expected a folder {root / name} for --link but there is none")
            link = target / name
            link.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(folder, link, target_is_directory=True)


def write_report(
    folder: Path, inputs: Inputs, selection: Selection, args: argparse.Namespace
) -> Path:
    """A folder that `fsl-basesel report` reads: selection, centroids, pictures, and the page."""
    from fsl_basesel.data.pool import ClassPool
    from fsl_basesel.data.sources import as_source
    from fsl_basesel.report.record import save_stage

    classes = None if inputs.candidates is None else (inputs.candidates, inputs.novel)
    images = None
    if "candidates" in inputs.pictures:
        pool = ClassPool(as_source(args.candidates, args.seed))
        novel = ClassPool(as_source(args.novel, args.seed)) if "novel" in inputs.pictures else None
        images = pool, novel
    with output.writing(folder):
        save_stage(folder, 1, selection, classes, inputs.problem, images, file="selection.json")
    return output.save_page(folder)[0]
