"""`fsl-basesel compare`: several methods on the same problem."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import fsl_basesel as fb
from fsl_basesel.cli import output
from fsl_basesel.cli.problems import FILES, add_problem_arguments, build_inputs, defaults
from fsl_basesel.errors import InputError

if TYPE_CHECKING:
    from fsl_basesel.cli.screen import PlainConsole
    from fsl_basesel.controls import Control
    from fsl_basesel.problem import SelectionProblem
    from fsl_basesel.selection import Selection

EXAMPLES = """\
examples:
  every method that applies:
    fsl-basesel compare pool.npz --novel task.npz -m 100 -k 3
  two of them, as a file for a plot:
    fsl-basesel compare pool.npz --novel task.npz --methods auto,paper --out a.csv

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = (
        "Run several methods on the same problem and print value, share of the\n"
        "proven bound, gap and time (of the choice alone)."
    )
    parser.epilog = EXAMPLES + FILES
    add_problem_arguments(parser)
    add = parser.add_argument_group("search").add_argument
    listed = f"some of {', '.join(fb.methods())} (all that apply)"
    add("--methods", metavar="A,B,C", help=listed)
    add("--seed", type=int, default=0, help="seed of randomized methods (0)")
    output.add_output_arguments(parser, "the comparison")


def run(args: argparse.Namespace) -> int:
    """Compare, print, save."""
    from fsl_basesel.controls import controls, doubts
    from fsl_basesel.files.writing import csv_text

    out = output.check_out(args.out)
    with output.working("Reading the input, computing similarities"):
        inputs = build_inputs(args)
    problem = inputs.problem
    selections = compare(problem, chosen_methods(args.methods, problem), args.seed)
    found = controls(problem, *inputs.groups)
    best = max(selections, key=lambda selection: selection.value)

    def text(format: str) -> str:
        rows = [_row(selection) for selection in selections]
        return csv_text(rows) if format == "csv" else to_json(problem, rows, selections, found)

    def table(console: PlainConsole) -> None:
        from fsl_basesel.cli import screen

        screen.print_comparison(console, problem, selections)
        screen.print_controls(console, best.value, best.upper_bound, found)

    output.deliver(args, out, text, table)
    if args.format == "table":
        output.note([*doubts(problem, best, found[0], inputs.trained), *defaults(args)])
    return 0


def chosen_methods(listed: str | None, problem: SelectionProblem) -> list[str]:
    """The methods to run: those listed, or all that apply to the problem."""
    from fsl_basesel.selectors import selector_class

    known = fb.methods()
    if listed is None:
        return [
            name for name in known if problem.centroids or not selector_class(name).needs_centroids
        ]
    methods = list(dict.fromkeys(word.strip() for word in listed.split(",") if word.strip()))
    unknown = [name for name in methods if name not in known]
    if unknown or not methods:
        raise InputError(
            f"Expected --methods to list some of {', '.join(known)} but got "
            f"'{unknown[0] if unknown else listed}'; separate them by commas"
        )
    return methods


def compare(problem: SelectionProblem, methods: Sequence[str], seed: int) -> list[Selection]:
    """Run each method once; the bound is the best that any of them, or a certificate, proved."""
    with output.working("Loading the compiled kernels"):
        warm_up(problem, methods)
    selections = []
    for number, method in enumerate(methods, 1):
        with output.working(f"{method} ({number} of {len(methods)})"):
            selections.append(fb.select(problem, method, seed=seed, certify=False))
    bounds = [found.upper_bound for found in selections if found.upper_bound is not None]
    if not bounds:
        with output.working("Proving an upper bound"):
            bounds = [fb.upper_bound(problem)]
    return [found.certified(min(bounds)) for found in selections]


def warm_up(problem: SelectionProblem, methods: Sequence[str]) -> None:
    """Run the methods on two of the novel classes, so that times hold no compilation."""
    from fsl_basesel.problem import SelectionProblem
    from fsl_basesel.selectors import selector_class
    from fsl_basesel.selectors.paper_rule import recommended

    rows = problem.by_candidate[:, :2].T
    tiny = SelectionProblem(rows, m=min(2, problem.m), k=problem.k, lam=problem.lam)
    for method in methods:
        if not selector_class(method).needs_centroids:
            fb.select(tiny, recommended(problem) if method == "paper" else method, certify=False)


def _row(selection: Selection) -> dict[str, object]:
    """A line of the comparison."""
    return {
        "method": selection.method,
        "value": selection.value,
        "upper_bound": selection.upper_bound,
        "share_of_bound": selection.share_of_bound,
        "gap": selection.gap,
        "seconds": selection.seconds,
    }


def to_json(
    problem: SelectionProblem,
    rows: Sequence[dict[str, object]],
    selections: Sequence[Selection],
    found: Sequence[Control],
) -> str:
    """The comparison as JSON, every method with its picks."""
    shared = ("m", "k", "lam", "mu", "n_candidates", "n_novel")
    document = {
        "problem": {name: getattr(problem, name) for name in shared}
        | {"similarity": problem.similarity_name, "selected": list(problem.selected)},
        "upper_bound": selections[0].upper_bound,
        "methods": [
            row | {"indices": selection.indices, "names": selection.names}
            for row, selection in zip(rows, selections, strict=True)
        ],
        "controls": [
            {"kind": one.kind, "mean": one.mean, "best": one.best, "sets": len(one.values)}
            for one in found
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
