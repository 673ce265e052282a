"""Tables that people read: a selection, its reasons, and a comparison of methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fsl_basesel.problem import SelectionProblem
from fsl_basesel.report.paired import percent
from fsl_basesel.selection import Selection, ServedClass, relative_gap, share_of_bound

# Methods that go on with a larger K once no class adds anything (`fsl_basesel.selectors.greedy`).
BY_LARGER_K = ("auto", "dual", "greedy-target")


@dataclass(frozen=True)
class Outcome:
    """One method's line in a comparison.

    Attributes:
        selection: What it chose.
        upper_bound: The best bound any method of the comparison proved, or None.
    """

    selection: Selection
    upper_bound: float | None

    @property
    def share(self) -> float | None:
        """Value over bound, both above the floor; None where there is no bound above it."""
        if self.upper_bound is None:
            return None
        floor = self.selection.hyperparameters.get("floor", 0.0)
        return share_of_bound(self.selection.value, self.upper_bound, floor)

    @property
    def gap(self) -> float | None:
        """How far from the optimum the value may be, relative to the bound."""
        if self.upper_bound is None:
            return None
        floor = self.selection.hyperparameters.get("floor", 0.0)
        return relative_gap(self.selection.value, self.upper_bound, floor)


def new_table() -> Table:
    """A table of the project's look."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")


def seconds(duration: float) -> str:
    """A duration with two or three digits.

    Example:
        >>> seconds(0.00321), seconds(0.5), seconds(83.2)
        ('3.2 ms', '0.50 s', '83.2 s')
    """
    if duration < 0.1:
        return f"{1000 * duration:.2g} ms" if duration < 0.01 else f"{1000 * duration:.0f} ms"
    return f"{duration:.2f} s" if duration < 10 else f"{duration:.1f} s"


def describe(problem: SelectionProblem) -> str:
    """The problem in one line."""
    words = [
        f"{problem.m} of {problem.n_candidates - len(problem.selected)} candidates",
        f"for {problem.n_novel} novel classes,",
        f"k = {problem.k}, lam = {problem.lam:g}",
    ]
    if problem.mu:
        words.append(f", mu = {problem.mu:g}")
    if problem.selected:
        words.append(f", {len(problem.selected)} already selected")
    if problem.similarity_name not in ("matrix", "function"):
        words.append(f", {problem.similarity_name}")
    return " ".join(words).replace(" ,", ",")


def print_facts(console: Console, problem: SelectionProblem, selection: Selection) -> None:
    """The problem, then method, value, bound and gap."""
    console.print(Text(describe(problem), style="bold"))
    seed = "" if selection.seed is None else f", seed {selection.seed}"
    facts = [("method", f"{selection.method}{seed}, {seconds(selection.seconds)}")]
    facts.append(("value", f"{selection.value:.6f}"))
    if selection.upper_bound is None:
        facts.append(("bound", "not computed"))
    else:
        facts.append(("bound", f"{selection.upper_bound:.6f}  no choice can be better"))
        proof = "  this choice is optimal" if selection.gap == 0 else ""
        facts.append(("gap", f"{percent(selection.gap)}{proof}"))
    for title, fact in facts:
        console.print(Text.assemble((f"{title:<8}", "dim"), fact))


def print_chosen(console: Console, selection: Selection, top: int, *, whole: bool = False) -> None:
    """The first `top` chosen classes, their gain and loss, and whom they serve."""
    chosen = selection.explain().chosen
    k = selection.hyperparameters["k"]
    table = new_table()
    table.add_column("#", justify="right", style="dim", no_wrap=True)
    table.add_column("class", style="cyan", overflow="ellipsis", no_wrap=not whole, max_width=28)
    table.add_column("gain", justify="right", no_wrap=True)
    table.add_column("if dropped", justify="right", no_wrap=True)
    table.add_column("serves")
    for rank, row in enumerate(chosen[:top], 1):
        serves = f"{len(row.serves)}: {', '.join(row.serves)}" if row.serves else "nobody"
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
    if len(chosen) > top:
        console.print(Text(f"... and {len(chosen) - top} more (--top N shows N)", style="dim"))
    spare = sum(row.gain == 0 for row in chosen)
    if spare:
        why = ", chosen for a larger K" if selection.method in BY_LARGER_K else ""
        words = f"{spare} of {len(chosen)} add nothing at K = {k}{why}"
        console.print(Text(words, style="dim"))


def print_novel(console: Console, rows: Sequence[ServedClass]) -> None:
    """Every novel class with its nearest base classes and its Similarity Ratio."""
    before = any(row.ratio_before is not None for row in rows)
    table = new_table()
    table.add_column("novel class", style="cyan")
    table.add_column("nearest base classes (similarity)")
    if before:
        table.add_column("ratio before", justify="right")
    table.add_column("ratio after" if before else "similarity ratio", justify="right")
    for row in rows:
        near = ", ".join(f"{name} ({value:.3f})" for name, value in row.neighbours)
        ratios = [row.ratio_before, row.ratio_after] if before else [row.ratio_after]
        cells = ["-" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
        table.add_row(Text(row.name), Text(near), *cells)
    console.print(table)
    if all(row.ratio_after is None for row in rows):
        words = "No similarity ratio: it says nothing about similarities below zero."
        console.print(Text(words, style="dim"))


def print_comparison(
    console: Console, problem: SelectionProblem, outcomes: Sequence[Outcome], title: str = ""
) -> None:
    """Methods from the best value down: value, share of the bound, gap, seconds."""
    console.print(Text(title or describe(problem), style="bold"))
    table = new_table()
    table.add_column("method", style="cyan")
    for heading in ("value", "share of bound", "gap", "time"):
        table.add_column(heading, justify="right")
    best = max((outcome.selection.value for outcome in outcomes), default=0.0)
    for outcome in sorted(outcomes, key=lambda outcome: -outcome.selection.value):
        value = outcome.selection.value
        table.add_row(
            outcome.selection.method,
            f"{value:.6f}",
            percent(outcome.share),
            percent(outcome.gap),
            seconds(outcome.selection.seconds),
            style="bold" if value == best else "",
        )
    console.print(table)
    bound = outcomes[0].upper_bound if outcomes else None
    if bound is not None:
        console.print(
            Text(f"Proven upper bound {bound:.6f}: no choice can be better.", style="dim")
        )
