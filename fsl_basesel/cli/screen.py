"""Tables that people read: a selection, its reasons, and a comparison of methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from fsl_basesel.controls import Control
    from fsl_basesel.problem import SelectionProblem
    from fsl_basesel.selection import Selection, ServedClass


class PlainConsole(Console):
    """A console that leaves names alone: no markup, no emoji codes, no highlighting."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def on_broken_pipe(self) -> None:
        """Let `main` decide what a reader that left means."""
        raise BrokenPipeError


def new_table(*headings: str, left: Sequence[str] = ()) -> Table:
    """A table of the project's look; columns of numbers on the right, those of `left` not."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right")
    return table


def seconds(duration: float) -> str:
    """A duration in seconds or milliseconds."""
    return f"{duration:.2f} s" if duration >= 0.1 else f"{1000 * duration:.1f} ms"


def percent(share: float | None) -> str:
    """A share in per cent, with enough digits to distinguish it from 0 and 1.

    Example:
        >>> percent(0.99987), percent(0.00002), percent(0.5), percent(0.0), percent(None)
        ('99.987 %', '0.0020 %', '50.00 %', '0 %', '-')
        >>> percent(1e-9), percent(1 - 1e-9)
        ('< 0.0001 %', '> 99.9999 %')
    """
    if share is None:
        return "-"
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    edge = min(abs(share), abs(1 - share))
    if edge < 1e-6:
        return "> 99.9999 %" if share > 0.5 else "< 0.0001 %"
    digits = min(4, max(2, math.ceil(-math.log10(edge)) - 1))
    return f"{share:.{digits}%}".replace("%", " %")


def describe(problem: SelectionProblem) -> str:
    """The problem in one line."""
    count = f"{problem.m} of {problem.n_candidates - len(problem.selected)} candidates"
    if problem.budget is not None:
        count = f"at most {count} within a budget of {problem.budget:g}"
    words = f"{count} for {problem.n_novel} novel classes, k = {problem.k}, lam = {problem.lam:g}"
    if problem.mu:
        words += f", mu = {problem.mu:g}"
    if problem.selected:
        words += f", {len(problem.selected)} already selected"
    if problem.similarity_name not in ("matrix", "function"):
        words += f", {problem.similarity_name}"
    if problem.weights is not None:
        words += ", novel classes weighted"
    return words


def print_facts(console: Console, problem: SelectionProblem, selection: Selection) -> None:
    """The problem, then method, value, bound and gap."""
    console.print(describe(problem), style="bold")
    seed = "" if selection.seed is None else f", seed {selection.seed}"
    _fact(console, "method", f"{selection.method}{seed}, {seconds(selection.seconds)}")
    _fact(console, "value", f"{selection.value:.6f}")
    if selection.upper_bound is None:
        _fact(console, "bound", "not computed")
    else:
        _fact(console, "bound", f"{selection.upper_bound:.6f}  no choice can be better")
        proof = "  this choice is optimal" if selection.gap == 0 else ""
        _fact(console, "gap", f"{percent(selection.gap)}{proof}")
    if selection.spent is not None:
        budget = problem.budget or 0.0
        left = f"{budget - selection.spent:g} of {budget:g} left, which buys nothing more"
        _fact(console, "spent", f"{selection.spent:g}  {left}")
        if selection.nu is not None:
            words = f"one more raises the bound by at most {selection.nu:.2g}"
            _fact(console, "unit", words)


def _fact(console: Console, title: str, words: str) -> None:
    console.print(Text.assemble((f"{title:<8}", "dim"), words))


def print_controls(
    console: Console, value: float, upper_bound: float | None, found: Sequence[Control]
) -> None:
    """What sets reach that look at no similarity, and how far from them the choice is."""
    from fsl_basesel.controls import standing

    for one in found:
        _fact(console, one.kind, f"{one.mean:.6f}  {one.words}")
    share = standing(value, upper_bound, found[0])
    if share is not None:
        _fact(console, "worth", f"{percent(share)} of the way from random choices to the bound")


def print_chosen(console: Console, selection: Selection, top: int, *, whole: bool = False) -> None:
    """The first `top` chosen classes, their gain and loss, and the novel classes they serve."""
    chosen = selection.explain().chosen
    k = selection.hyperparameters["k"]
    table = new_table()
    table.add_column("#", justify="right", style="dim", no_wrap=True)
    table.add_column("class", style="cyan", overflow="ellipsis", no_wrap=not whole, max_width=28)
    table.add_column("gain", justify="right", no_wrap=True)
    table.add_column("if dropped", justify="right", no_wrap=True)
    table.add_column("serves")
    for rank, row in enumerate(chosen[:top], 1):
        serves = f"{len(row.serves)}: {', '.join(row.serves)}" if row.serves else "none"
        if not row.serves and row.gain == 0 and row.adds_from is not None:
            serves += f" at K = {k}, adds from K = {row.adds_from}"
        table.add_row(
            str(rank),
            Text(row.name),
            f"{row.gain:.5f}",
            f"{-row.loss:+.5f}",
            Text(serves, overflow="ellipsis", no_wrap=not whole),
        )
    if top:
        console.print(table)
    spare = sum(row.gain == 0 for row in chosen)
    if spare:
        console.print(f"{spare} of {len(chosen)} add nothing at K = {k}", style="dim")


def print_novel(console: Console, rows: Sequence[ServedClass]) -> None:
    """Every novel class with its nearest base classes and its Similarity Ratio."""
    before = any(row.ratio_before is not None for row in rows)
    ratios = ["ratio before", "ratio after"] if before else ["similarity ratio"]
    left = ("novel class", "nearest base classes (similarity)")
    table = new_table(*left, *ratios, left=left)
    for row in rows:
        near = ", ".join(f"{name} ({value:.3f})" for name, value in row.neighbours)
        values = [row.ratio_before, row.ratio_after] if before else [row.ratio_after]
        cells = ["-" if ratio is None else f"{ratio:.3f}" for ratio in values]
        table.add_row(Text(row.name), Text(near), *cells)
    console.print(table)
    if all(row.ratio_after is None for row in rows):
        words = "No similarity ratio: it says nothing about similarities below zero."
        console.print(words, style="dim")


def print_comparison(
    console: Console, problem: SelectionProblem, selections: Sequence[Selection]
) -> None:
    """Methods from the best value down: value, share of the bound, gap, seconds."""
    console.print(describe(problem), style="bold")
    table = new_table("method", "value", "share of bound", "gap", "time", left=("method",))
    ranked = sorted(selections, key=lambda selection: -selection.value)
    for one in ranked:
        table.add_row(
            one.method,
            f"{one.value:.6f}",
            percent(one.share_of_bound),
            percent(one.gap),
            seconds(one.seconds),
            style="bold" if one.value == ranked[0].value else "",
        )
    console.print(table)
    words = f"Proven upper bound {ranked[0].upper_bound:.6f}: no choice can be better."
    console.print(Text(words, style="dim"))
