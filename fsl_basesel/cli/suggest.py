"""`fsl-basesel suggest`: k and lam from the accuracies of models trained on random base sets."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from fsl_basesel.cli import output
from fsl_basesel.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from fsl_basesel.study import ClassRegression, ProfileRow, Study, Suggestion

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
    parser.add_argument("study", metavar="STUDY", help="the measurements (.npz)")
    parser.add_argument(
        "--ks", metavar="A,B,C", help="values of K to compare (1,2,3,5,7,10,... to half a base set)"
    )
    parser.add_argument(
        "--resamples",
        type=int,
        default=1000,
        metavar="N",
        help="bootstrap resamples of the base sets behind the intervals (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the resamples (0)")
    group = output.add_output_arguments(parser, "the suggestion, or the rows of every K,")
    group.add_argument("--figures", metavar="DIR", help="draw the figures there, as PNG and SVG")
    group.add_argument(
        "--csv", metavar="FILE", help="write the regression of every novel class at every K (.csv)"
    )


def run(args: argparse.Namespace) -> int:
    """Read, regress, print, save."""
    from fsl_basesel.cli.screen import PlainConsole
    from fsl_basesel.study import Study

    out, table = output.check_out(args.out), _check_csv(args.csv)
    study = Study.load(args.study)
    with output.working(f"Regressions on {len(study.member)} base sets"):
        suggestion = study.suggest(_ks(args.ks), resamples=args.resamples, seed=args.seed)
    rows = profile_csv(suggestion)
    if out is not None:
        is_csv = out.suffix.lower() == ".csv"
        output.save_text(out, rows if is_csv else suggestion.to_json() + "\n")
    written = [] if out is None else [out]
    if table is not None:
        with output.working("Regressions of every class"):
            output.save_text(table, regressions_csv(study, suggestion))
        written.append(table)
    if args.figures is not None:
        with output.working("Drawing"):
            written += _draw(study, suggestion, Path(args.figures))
    if args.format == "json":
        output.print_text(suggestion.to_json() + "\n")
    elif args.format == "csv":
        output.print_text(rows)
    else:
        screen = PlainConsole()
        print_suggestion(screen, suggestion)
        for path in written:
            screen.print(f"Saved to {path}", style="dim", soft_wrap=True)
    return 0


def _check_csv(text: str | None) -> Path | None:
    if text is not None and Path(text).suffix.lower() != ".csv":
        raise InputError(f"Expected --csv to end in .csv but got '{text}'; rename it")
    return output.check_out(text)


def _ks(text: str | None) -> list[int] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"Expected --ks to be numbers as in 1,3,5 but got '{text}'")
    return [int(word) for word in words]


def _draw(study: Study, suggestion: Suggestion, folder: Path) -> list[Path]:
    try:
        return study.figures(folder, suggestion)
    except OSError as error:
        raise output.cannot_write(folder, error) from error


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
    others = sorted(
        (row for row in suggestion.profile if row.k != suggestion.k and row.chosen >= 0.05),
        key=lambda row: -row.chosen,
    )
    rivals = "".join(f", {row.k} in {row.chosen:.0%}" for row in others)
    found = [
        f"Suggestion: k = {suggestion.k} (best in {suggestion.chosen.chosen:.0%} of "
        f"resamples{rivals}) and {suggestion.reason}.",
    ]
    explained = f"x1 and x2 explain {max(suggestion.r2, 0):.1%} of the spread of accuracy between "
    explained += "unseen base sets"
    # Below what is explained, the limit says nothing: the noise is less than it allows for.
    if suggestion.signal_share is not None and suggestion.signal_share > suggestion.r2:
        explained += f"; at least {suggestion.signal_share:.0%} of it is no noise of testing"
    return [*found, explained + "."]


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


def profile_csv(suggestion: Suggestion) -> str:
    """One line for every K; an interval is two columns, NaN an empty cell."""
    from fsl_basesel.files.writing import csv_text

    return csv_text(_flat(row) for row in suggestion.profile)


def regressions_csv(study: Study, suggestion: Suggestion) -> str:
    """One line for every K and novel class."""
    from fsl_basesel.files.writing import csv_text

    return csv_text(
        {"k": row.k, **_flat(found)}
        for row in suggestion.profile
        for found in study.regressions(row.k)
    )


def _flat(row: ProfileRow | ClassRegression) -> dict[str, object]:
    cells: dict[str, object] = {}
    for name, value in vars(row).items():
        if isinstance(value, tuple):
            stem = name.removesuffix("_interval")
            cells[f"{stem}_low"], cells[f"{stem}_high"] = map(_cell, value)
        else:
            cells[name] = _cell(value)
    return cells


def _cell(value: object) -> object:
    return None if isinstance(value, float) and math.isnan(value) else value
