"""`fsl-basesel compare`: several methods on the same problem."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

import fsl_basesel as fb
from fsl_basesel.cli import output, screen
from fsl_basesel.cli.problems import FILES, add_problem_arguments, build_inputs, defaults
from fsl_basesel.errors import InputError
from fsl_basesel.selectors import selector_class, selector_of

if TYPE_CHECKING:
    from fsl_basesel.problem import SelectionProblem
    from fsl_basesel.selection import Selection

EXAMPLES = f"""\
examples:
  every method that applies:
    fsl-basesel compare pool.npz --novel task.npz -m 100 -k 3
  two of them, as a file for a plot:
    fsl-basesel compare pool.npz --novel task.npz --methods auto,paper --out a.csv

{FILES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_problem_arguments(parser)
    add = parser.add_argument_group("search").add_argument
    add("--methods", metavar="A,B,C", help=f"of {', '.join(fb.methods())} (all that apply)")
    add("--seed", type=int, default=0, help="seed of randomized methods (0)")
    output.add_output_arguments(parser, "the comparison")


def run(args: argparse.Namespace) -> int:
    """Compare, print, save."""
    from fsl_basesel.controls import controls, doubts

    output.check_out(args.out)
    with output.working("Reading the input, computing similarities"):
        inputs = build_inputs(args)
    problem = inputs.problem
    known, named = fb.methods(), args.methods is not None
    methods = output.listed(args.methods, known, "--methods") if named else known
    for name in methods if named else ():
        selector_of(name).require(problem)
    selections, refused = compare(problem, methods, args.seed)
    if named and refused:
        raise next(iter(refused.values()))
    found = controls(problem, *inputs.groups)
    best = max(selections, key=lambda selection: selection.value)
    columns = ("method", "value", "upper_bound", "share_of_bound", "gap", "seconds")
    rows = [{name: getattr(one, name) for name in columns} for one in selections]

    shared = ("m", "k", "lam", "mu", "n_candidates", "n_novel")
    document = {
        "problem": {name: getattr(problem, name) for name in shared}
        | {"similarity": problem.similarity_name, "selected": list(problem.selected)},
        "upper_bound": best.upper_bound,
        "methods": [
            row | {"indices": selection.indices, "names": selection.names}
            for row, selection in zip(rows, selections, strict=True)
        ],
        "controls": [
            {name: getattr(one, name) for name in ("kind", "title", "mean", "best")}
            | {"sets": len(one.values)}
            for one in found
        ],
    }

    def table(console: screen.PlainConsole) -> None:
        screen.print_comparison(console, problem, selections)
        screen.print_controls(console, best.value, best.upper_bound, found)
        notes = [*doubts(problem, best, found[0], inputs.trained), *defaults(args, problem)]
        if refused:
            left = ", ".join(refused)
            notes.append(f"left out, as they do not apply (--methods NAME says why): {left}")
        output.note(notes)

    output.deliver(args, lambda format: output.as_text(format, rows, document), table)
    return 0


def compare(
    problem: SelectionProblem, methods: Sequence[str], seed: int
) -> tuple[list[Selection], dict[str, InputError]]:
    """Run each method once, and what those said that refused the problem.

    The bound is the best that any of them, or a certificate, proved.
    """
    with output.working("Loading the compiled kernels"):
        warm_up(problem, methods)
    selections, refused = [], {}
    for number, method in enumerate(methods, 1):
        with output.working(f"{method} ({number} of {len(methods)})"):
            try:
                selections.append(fb.select(problem, method, seed=seed, certify=False))
            except InputError as error:
                refused[method] = error
    bounds = [found.upper_bound for found in selections if found.upper_bound is not None]
    if not bounds:
        with output.working("Proving an upper bound"):
            bounds = [fb.upper_bound(problem)]
    return [found.certified(min(bounds)) for found in selections], refused


def warm_up(problem: SelectionProblem, methods: Sequence[str]) -> None:
    """Run the methods on two of the novel classes, so that times hold no compilation."""
    from fsl_basesel.selectors.paper_rule import recommended

    rows = problem.by_candidate[:, :2].T
    tiny = fb.SelectionProblem(rows, m=min(2, problem.m), k=problem.k, lam=problem.lam)
    for method in methods:
        if not selector_class(method).needs_centroids:
            fb.select(tiny, recommended(problem) if method == "paper" else method, certify=False)
