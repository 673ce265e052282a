"""`fsl-basesel suggest`: k and lam from the accuracies of models trained on random base sets."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from fsl_basesel.cli import output

if TYPE_CHECKING:
    from rich.console import Console

    from fsl_basesel.study import ClassRegression, ProfileRow, Suggestion

EXAMPLES = """\
examples:
  k and lam, saved for `select`:
    fsl-basesel suggest study.npz --out kl.json
    fsl-basesel select pool.npz --novel task.npz -m 100 --suggestion kl.json
  the figures of the paper and every regression behind them:
    fsl-basesel suggest study.npz --figures figures --csv regressions.csv

STUDY is a file of `fsl_basesel.study.Study.save`: similarities, random base sets
and the accuracy of every novel class on each of them. See docs/study.md."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = (
        "Regress the accuracy of every novel class on its similarity to the nearest\n"
        "(x1) and to all (x2) classes of random base sets, and suggest k and lam."
    )
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("study", metavar="STUDY", help="the measurements (.npz)")
    ks = "values of K to compare (1,2,3,5,7,10,... to half a base set)"
    add("--ks", metavar="A,B,C", help=ks)
    add = output.add_output_arguments(
        parser, "the suggestion, or the rows of every K,"
    ).add_argument
    add("--figures", metavar="DIR", help="draw the figures there, as PNG and SVG")
    add("--csv", metavar="FILE", help="write the regression of every novel class at every K (.csv)")


def run(args: argparse.Namespace) -> int:
    """Read, regress, print, save."""
    from fsl_basesel.files.writing import csv_text
    from fsl_basesel.study import Study

    out, regressions = output.check_out(args.out), output.check_out(args.csv, ("csv",), "--csv")
    ks = output.numbers(args.ks, int, "--ks")
    study = Study.load(args.study)
    with output.working(f"Regressions on {len(study.member)} base sets"):
        suggestion = study.suggest(ks)
    written = []
    if regressions is not None:
        rows = (
            {"k": row.k, **_flat(found)}
            for row in suggestion.profile
            for found in study.regressions(row.k)
        )
        with output.working("Regressions of every class"):
            output.save_text(regressions, csv_text(rows))
        written.append(f"Saved to {regressions}")
    if args.figures is not None:
        folder = Path(args.figures)
        with output.working("Drawing"), output.writing(folder):
            written += [f"Saved to {path}" for path in study.figures(folder, suggestion)]

    def text(format: str) -> str:
        rows = map(_flat, suggestion.profile)
        return csv_text(rows) if format == "csv" else suggestion.to_json() + "\n"

    output.deliver(args, out, text, lambda console: print_suggestion(console, suggestion), written)
    return 0


def print_suggestion(screen: Console, suggestion: Suggestion) -> None:
    """A line for every K, then the suggestion in words."""
    from fsl_basesel.cli.screen import new_table

    screen.print(
        f"{suggestion.sets} base sets, {suggestion.novel} novel classes; accuracy = "
        "β1 x1 + β2 x2 + α"
    )
    headings = "K,R²,chance,unseen,β1,β2,β2/β1,β1>0,lam,95 %,best"
    table = new_table(*headings.split(","))
    for row in suggestion.profile:
        table.add_row(*_cells(row), style="bold" if row.k == suggestion.k else "")
    screen.print(table)
    screen.print(
        "R²: mean of the classes' regressions, beside what chance gives; unseen: of one\n"
        "regression for all classes, for base sets left out of it; lam: -β2/β1 of that\n"
        "regression; best: share of resamples in which the K predicts best.\n",
        style="dim",
    )
    for sentence in sentences(suggestion):
        screen.print(sentence)
    for note in suggestion.notes:
        screen.print(f"note: {note}.")


def sentences(suggestion: Suggestion) -> list[str]:
    """The suggestion, its reason, and how much accuracy it is about, in plain words."""
    rows = sorted(suggestion.profile, key=lambda row: -row.chosen)
    others = [row for row in rows if row.k != suggestion.k and row.chosen >= 0.05]
    rivals = "".join(f", {row.k} in {row.chosen:.0%}" for row in others)
    return [
        f"Suggestion: k = {suggestion.k} (best in {suggestion.chosen.chosen:.0%} of "
        f"resamples{rivals}) and {suggestion.reason}.",
        f"x1 and x2 explain {max(suggestion.r2, 0):.1%} of the spread of accuracy between unseen "
        "base sets.",
    ]


def _cells(row: ProfileRow) -> list[str]:
    low, high = row.lam_interval
    return [
        str(row.k),
        _number(row.r2, 3),
        _number(row.r2_chance, 3),
        _number(row.pooled_r2, 3),
        _number(row.beta1),
        _number(row.beta2),
        _number(row.ratio),
        "-" if math.isnan(row.positive) else f"{row.positive:.0%}",
        _number(row.lam),
        "-" if math.isnan(low) else f"{_number(low)}..{_number(high)}",
        f"{row.chosen:.0%}",
    ]


def _number(value: float, digits: int = 2) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _flat(row: ProfileRow | ClassRegression) -> dict[str, object]:
    """A line of a CSV file: an interval is two columns, NaN an empty cell."""
    cells: dict[str, object] = {}
    for name, value in vars(row).items():
        if isinstance(value, tuple):
            stem = name.removesuffix("_interval")
            cells |= {f"{stem}_low": value[0], f"{stem}_high": value[1]}
        else:
            cells[name] = value
    return {name: None if value != value else value for name, value in cells.items()}
