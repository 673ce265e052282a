"""`fsl-basesel suggest`: k and lam from the accuracies of models trained on random base sets."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from fsl_basesel.cli import output
from fsl_basesel.cli.screen import PlainConsole, new_table
from fsl_basesel.files.writing import csv_text

if TYPE_CHECKING:
    from fsl_basesel.study import ClassRegression, Suggestion

EXAMPLES = """\
examples:
  k and lam, saved for `select`:
    fsl-basesel suggest study.npz --out kl.json
    fsl-basesel select pool.npz --novel task.npz -m 100 --suggestion kl.json
  the figures of the paper and every regression behind them:
    fsl-basesel suggest study.npz --figures figures --csv regressions.csv

STUDY is a file of `fsl_basesel.study.Study.save`: similarities, random base sets
and the accuracy of every novel class on each of them. See docs/study.md."""

LEGEND = """\
R²: mean of the classes' regressions, beside what chance gives; unseen: of one
regression for all classes, for base sets left out of it; λ: -β2/β1 of that
regression."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add = parser.add_argument
    add("study", metavar="STUDY", help="the measurements (.npz)")
    add("--ks", metavar="A,B,C", help="values of K (1,2,3,5,7,10,... to half a base set)")
    add = output.add_output_arguments(parser, "the suggestion", ("json",)).add_argument
    add("--figures", metavar="DIR", help="draw the figures there, as PNG and SVG")
    add("--csv", metavar="FILE", help="write the regression of every novel class at every K (.csv)")


def run(args: argparse.Namespace) -> int:
    """Read, regress, print, save."""
    from fsl_basesel.study import Study

    output.check_out(args.out, ("json",))
    regressions = output.check_out(args.csv, ("csv",), "--csv")
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
    output.deliver(
        args,
        lambda format: suggestion.to_json() + "\n",
        lambda console: print_suggestion(console, suggestion),
        written,
    )
    return 0


def print_suggestion(console: PlainConsole, suggestion: Suggestion) -> None:
    """A line for every K, then the suggestion in words."""
    console.print(
        f"{suggestion.sets} base sets, {suggestion.novel} novel classes; accuracy = "
        "β1 x1 + β2 x2 + α"
    )
    heading, *rows = profile_table(suggestion)
    table = new_table(*heading)
    for row in rows:
        table.add_row(*row, style="bold" if row[0] == str(suggestion.k) else "")
    console.print(table)
    console.print(f"{LEGEND}\n", style="dim")
    for sentence in (*sentences(suggestion), *(f"note: {note}." for note in suggestion.notes)):
        console.print(sentence)


def profile_table(suggestion: Suggestion) -> list[list[str]]:
    """Headings, and a line for every K: what Figures 1 and 3 of the paper show, and lam."""
    lines = ["K,R²,chance,unseen,β1 > 0,β2/β1,95 %,λ,95 %".split(",")]
    for row in suggestion.profile:
        cells = [_number(share, ".3f") for share in (row.r2, row.r2_chance, row.pooled_r2)]
        cells.append(_number(row.positive, ".0%"))
        for value, (low, high) in ((row.ratio, row.ratio_interval), (row.lam, row.lam_interval)):
            known = not math.isnan(low)
            cells += [_number(value), f"{low:.2f}..{high:.2f}" if known else "-"]
        lines.append([str(row.k), *cells])
    return lines


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


def _number(value: float, style: str = ".2f") -> str:
    return "-" if math.isnan(value) else format(value, style)


def _flat(row: ClassRegression) -> dict[str, object]:
    """A line of a CSV file: an interval is two columns, NaN an empty cell."""
    cells: dict[str, object] = {}
    for name, value in vars(row).items():
        if isinstance(value, tuple):
            stem = name.removesuffix("_interval")
            cells |= {f"{stem}_low": value[0], f"{stem}_high": value[1]}
        else:
            cells[name] = value
    return {name: None if value != value else value for name, value in cells.items()}
