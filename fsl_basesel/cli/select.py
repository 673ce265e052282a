"""`fsl-basesel select`: choose the base classes for a task."""

from __future__ import annotations

import argparse
from dataclasses import replace

import fsl_basesel as fb
from fsl_basesel.cli import output, tables
from fsl_basesel.cli.problems import FILES, add_problem_arguments, build_problem
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import csv_text
from fsl_basesel.selection import Selection
from fsl_basesel.selectors import Selector, selector_class, selector_of

EXAMPLES = """\
examples:
  100 classes of a pool for the classes of a task, saved for later:
    fsl-basesel select pool.npz --novel task.npz -m 100 -k 3 --out chosen.json
  no task known yet (General Selection), with a diversity term:
    fsl-basesel select pool.csv -m 50 --lam 0.2
  25 more, given those already there:
    fsl-basesel select pool.npz --novel task.npz -m 25 --selected chosen.json
  for another program:
    fsl-basesel select pool.npz --novel task.npz --format csv > chosen.csv

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = (
        "Choose m base classes, say how good the choice provably is\nand why each was chosen."
    )
    parser.epilog = EXAMPLES + FILES
    add_problem_arguments(parser)
    search = parser.add_argument_group("search")
    search.add_argument(
        "--method",
        default="auto",
        choices=fb.methods(),
        metavar="NAME",
        help=f"one of {', '.join(fb.methods())} (%(default)s)",
    )
    search.add_argument("--seed", type=int, default=0, help="seed of randomized methods (0)")
    search.add_argument(
        "--gap",
        type=float,
        metavar="X",
        help="auto, dual: stop when proven within this share of the optimum (0.001 is 0.1 %%)",
    )
    search.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="where the climb of double-greedy runs: cpu, cuda or auto (%(default)s)",
    )
    search.add_argument(
        "--no-certify", action="store_true", help="do not compute an upper bound afterwards"
    )
    group = output.add_output_arguments(parser, "the selection")
    group.add_argument(
        "--top",
        type=output.row_count,
        default=10,
        metavar="N",
        help="rows of the table (%(default)s)",
    )
    group.add_argument(
        "--explain",
        action="store_true",
        help="every chosen class with all it serves, and every novel class with its neighbours "
        "(table; json always has it)",
    )


def run(args: argparse.Namespace) -> int:
    """Select, print, save."""
    out = output.check_out(args.out)
    with output.working("Reading files, computing similarities"):
        problem = build_problem(args)
    selector = selector_with(args.method, args.gap)
    with output.working(f"Choosing {problem.m} of {len(problem.unselected)} classes"):
        selection = fb.select(
            problem,
            selector,
            seed=args.seed,
            certify=not args.no_certify,
            device=args.device,
        )
    if out is not None:
        is_csv = out.suffix.lower() == ".csv"
        output.save_text(out, chosen_csv(selection) if is_csv else selection.to_json() + "\n")
    if args.format == "json":
        output.print_text(selection.to_json() + "\n")
    elif args.format == "csv":
        output.print_text(chosen_csv(selection))
    else:
        screen = output.PlainConsole()
        tables.print_facts(screen, problem, selection)
        if args.explain:
            tables.print_chosen(screen, selection, problem.m, whole=True)
            tables.print_novel(screen, selection.explain().novel)
        else:
            tables.print_chosen(screen, selection, args.top)
        if out is not None:
            screen.print(f"Saved to {out}", style="dim", soft_wrap=True)
    return 0


def selector_with(method: str, gap: float | None) -> Selector:
    """The selector of a name, told at which gap to stop.

    Raises:
        InputError: A gap for a method that proves nothing while it searches.
    """
    if gap is None:
        return selector_of(method)
    able = [name for name in fb.methods() if "gap" in selector_class(name).__dataclass_fields__]
    if method not in able:
        raise InputError(
            f"Expected --gap with one of the methods {', '.join(able)}, which stop at a gap, but "
            f"got --method {method}; leave --gap out"
        )
    return replace(selector_of(method), gap=gap)  # type: ignore[call-arg]


def chosen_csv(selection: Selection) -> str:
    """One line a chosen class, in order of choice; `--selected` reads it back."""
    return csv_text(
        {
            "rank": rank,
            "index": row.index,
            "name": row.name,
            "gain": row.gain,
            "loss": row.loss,
            "serves": "|".join(row.serves),
        }
        for rank, row in enumerate(selection.explain().chosen, 1)
    )
