"""`fsl-basesel frontier`: value and bound against the budget, or the number of classes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import fsl_basesel as fb
from fsl_basesel.cli import output
from fsl_basesel.cli.problems import FILES, add_problem_arguments, build_inputs
from fsl_basesel.cli.screen import PlainConsole, new_table, percent

if TYPE_CHECKING:
    from fsl_basesel.problem import SelectionProblem
    from fsl_basesel.selection import Selection

EXAMPLES = f"""\
examples:
  what do 100, 200, ... 800 labels buy, if every class needs 50?
    fsl-basesel frontier photos/pool --novel photos/task -k 1 \\
      --images-per-class 50 --budgets 100,200,400,800 --out frontier.csv
  how many classes are enough?
    fsl-basesel frontier pool.npz --novel task.npz -k 1 --ms 5,10,20,50,100 \\
      --figure frontier.png

{FILES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_problem_arguments(parser)
    curve = parser.add_argument_group("curve")
    limit = curve.add_mutually_exclusive_group(required=True).add_argument
    limit("--budgets", metavar="A,B,C", help="budgets to try")
    limit("--ms", metavar="A,B,C", help="numbers of classes to try instead")
    curve.add_argument("--method", default="auto", metavar="NAME", help="as for select (auto)")
    curve.add_argument("--seed", type=int, default=0, help="as for select (0)")
    group = output.add_output_arguments(parser, "the curve")
    group.add_argument("--figure", metavar="FILE", help="draw it (.png, .svg or .pdf)")


def run(args: argparse.Namespace) -> int:
    """Choose along the curve, print, save, draw."""
    output.check_out(args.out)
    figure = output.check_out(args.figure, ("png", "svg", "pdf"), "--figure")
    budgets = output.numbers(args.budgets, float, "--budgets")
    ms = output.numbers(args.ms, int, "--ms")
    limits = budgets or ms or []
    if budgets:
        args.budget = max(budgets)
    elif args.m is None and args.budget is None:
        args.m = max(limits)
    with output.working("Reading the input, computing similarities"):
        problem = build_inputs(args).problem
    with output.working(f"Choosing {len(limits)} times"):
        rows = fb.frontier(problem, budgets, ms, args.method, args.seed)
    columns = ("spent", "value", "upper_bound", "gap", "nu")
    lines: list[dict[str, object]] = [
        {"limit": limit, "classes": len(row.indices)}
        | {name: getattr(row, name) for name in columns}
        for limit, row in rows.items()
    ]
    named = [line | {"names": row.names} for line, row in zip(lines, rows.values(), strict=True)]
    title = "budget" if budgets else "number of classes"
    if figure is not None:
        with output.working("Drawing"):
            draw(figure, rows, title)
    output.deliver(
        args,
        lambda format: output.as_text(format, lines, {"rows": named}),
        lambda console: print_rows(console, problem, rows, "budget" if budgets else "m"),
        [] if figure is None else [f"Saved to {figure}"],
    )
    return 0


def print_rows(
    console: PlainConsole, problem: SelectionProblem, rows: Mapping[float, Selection], title: str
) -> None:
    """A line for each limit."""
    console.print(
        f"{len(problem.unselected)} candidates for {problem.n_novel} novel classes, k = {problem.k}"
    )
    table = new_table(title, "classes", "spent", "value", "bound", "gap", "next unit")
    for limit, row in rows.items():
        table.add_row(
            f"{limit:g}",
            str(len(row.indices)),
            "-" if row.spent is None else f"{row.spent:g}",
            f"{row.value:.6f}",
            "-" if row.upper_bound is None else f"{row.upper_bound:.6f}",
            percent(row.gap),
            "-" if row.nu is None else f"{row.nu:.2g}",
        )
    console.print(table)
    if title == "budget":
        console.print("next unit: the most by which one more unit of the budget raises the bound")


def draw(path: Path, rows: Mapping[float, Selection], title: str) -> None:
    """Value and bound against the limit."""
    from matplotlib import rc_context

    from fsl_basesel.files.writing import whole_file
    from fsl_basesel.report.content import CHOSEN
    from fsl_basesel.report.figures import COLOUR, INK, STYLE, new_figure

    with rc_context(STYLE):
        figure, (axes,) = new_figure(360, 240)
        bounds = [(limit, row.upper_bound) for limit, row in rows.items() if row.upper_bound]
        values = [row.value for row in rows.values()]
        axes.plot(list(rows), values, "o-", color=COLOUR[CHOSEN], label="value")
        if bounds:
            axes.plot(*zip(*bounds, strict=True), "_", ms=12, color=INK, label="proven bound")
        axes.set_xlabel(title)
        axes.set_ylabel("h")
        axes.legend(loc="lower right")
        with output.writing(path), whole_file(path) as file:
            figure.savefig(file, format=path.suffix[1:].lower(), dpi=200)
