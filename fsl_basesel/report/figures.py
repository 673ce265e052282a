"""The figures of the report as PNG and SVG files for papers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsl_basesel.report import charts
from fsl_basesel.report.content import (
    BEFORE,
    CHOSEN,
    COLUMNS,
    NOVEL,
    REST,
    Change,
    ClassMap,
    Served,
    map_of,
    reference_of,
    served_by,
    thinned,
)
from fsl_basesel.report.paired import REFERENCE, Line
from fsl_basesel.report.run import Protocol, Run, Stage
from fsl_basesel.report.tables import comparison_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOUR = {NOVEL: "#bd4815", CHOSEN: "#1f6fb2", BEFORE: "#7fb2dc", REST: "#c3c7cc"}
INK, SOFT, GRID = "#1d2126", "#59616b", "#e3e4e0"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "text.color": INK,
    "text.parse_math": False,  # a class may be called "$x$"
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "svg.hashsalt": "fsl-basesel",  # the same file for the same run
    "figure.constrained_layout.use": True,
}


def save_figures(run: Run, folder: str | os.PathLike[str], dpi: int = 200) -> list[Path]:
    """Write every figure that the run has data for, as PNG and as SVG.

    Args:
        run: What `read_run` returned.
        folder: Where; it must exist.
        dpi: Dots per inch of the PNG files.

    Returns:
        The files.
    """
    import matplotlib

    written = []
    with matplotlib.rc_context(STYLE):
        for name, figure in _figures(run):
            for kind in ("png", "svg"):
                path = Path(folder) / f"{name}.{kind}"
                metadata = {"Date": None} if kind == "svg" else {"Software": None}
                figure.savefig(path, dpi=dpi, metadata=metadata)
                written.append(path)
    return written


def _figures(run: Run) -> Iterator[tuple[str, Figure]]:
    content, last = map_of(run), run.last
    if content is not None:
        yield "class-map", _map(content)
    stages = [stage for stage in run.stages if stage.informed]
    if last is not None:
        served = served_by(last, reference_of(last))
        k = last.selection.hyperparameters["k"]
        yield "similarity", _changes(served, lambda row: row.nearest, f"similarity to {k} nearest")
        yield "similarity-ratio", _changes(served, lambda row: row.ratio, "Similarity Ratio")
        if any(stage.selection.indices for stage in stages):
            yield "gains", _gains([stage for stage in stages if stage.selection.indices])
        yield "value-and-bound", _bounds(stages)
    if run.protocols:
        yield "accuracy", _accuracy(run.protocols)
    if any(line.difference is not None for line in run.methods):
        yield "methods", _methods(run.methods)


def _new(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Any]]:
    """A figure of its own, which no window and no other plot of the process knows of."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _map(content: ClassMap) -> Figure:
    figure, (axes,) = _new(6.8, 5.2)
    labels = {REST: "not chosen", BEFORE: "chosen earlier", CHOSEN: "chosen", NOVEL: "novel"}
    for kind, label in labels.items():
        points = [point for point in content.points if point.kind == kind]
        if points:
            axes.scatter(
                [point.x for point in points],
                [point.y for point in points],
                s=9 if kind == REST else 24,
                marker="^" if kind == NOVEL else "o",
                color=COLOUR[kind],
                edgecolors="white",
                linewidths=0.4,
                label=f"{label} ({len(points)})",
            )
    axes.set_aspect("equal")
    axes.axis("off")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _changes(served: Sequence[Served], change: Callable[[Served], Change], title: str) -> Figure:
    figure, (axes,) = _new(6.8, 2.4)
    known = [one for row in served if (one := change(row)).after is not None]
    known.sort(key=lambda one: -(one.after or 0.0))
    known = [known[i] for i in thinned(len(known), COLUMNS)]
    both = [(i, one) for i, one in enumerate(known) if one.before is not None]
    axes.vlines(
        [i for i, _ in both],
        [one.before for _, one in both],
        [one.after for _, one in both],
        color=COLOUR[BEFORE],
        linewidth=0.9,
    )
    if both:
        axes.scatter(
            [i for i, _ in both],
            [one.before for _, one in both],
            s=7,
            facecolors="white",
            edgecolors=SOFT,
            linewidths=0.7,
            label="before",
            zorder=3,
        )
    axes.scatter(
        range(len(known)),
        [one.after for one in known],
        s=9,
        color=COLOUR[CHOSEN],
        label="after",
        zorder=4,
    )
    drawn = [(i, one.random) for i, one in enumerate(known) if one.random is not None]
    if drawn:
        x, y = zip(*drawn, strict=True)
        axes.scatter(x, y, marker="_", s=12, color=SOFT, label="random choice", linewidths=0.9)
    axes.set_ylabel(title)
    axes.set_xlabel("novel classes, highest first")
    axes.grid(axis="x", visible=False)
    axes.legend(loc="best", ncols=3)
    return figure


def _gains(stages: Sequence[Stage]) -> Figure:
    columns = min(2, len(stages))
    rows = -(-len(stages) // columns)
    figure, places = _new(6.8, 1.9 * rows, rows, columns)
    for axes, stage in zip(places, stages, strict=False):
        chosen = stage.selection.explanation.chosen
        axes.bar(range(1, len(chosen) + 1), [row.gain for row in chosen], color=COLOUR[CHOSEN])
        axes.scatter(
            range(1, len(chosen) + 1),
            [row.loss for row in chosen],
            marker="_",
            color=INK,
            s=14,
            linewidths=0.9,
            label="lost without it",
        )
        axes.grid(axis="x", visible=False)
        axes.set_title(f"stage {stage.number}", loc="left", fontsize=8, color=SOFT)
        axes.set_xlabel("order of choice")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel("h gained")
    places[0].legend(loc="upper right")
    for axes in places[len(stages) :]:
        axes.axis("off")
    return figure


def _bounds(stages: Sequence[Stage]) -> Figure:
    figure, (axes,) = _new(6.8, 1.0 + 0.32 * len(stages))
    labels = []
    for i, stage in enumerate(reversed(stages)):
        selection, reference = stage.selection, reference_of(stage)
        if reference is not None:
            axes.plot([reference.value, selection.value], [i, i], color=COLOUR[BEFORE], zorder=1)
            axes.scatter(
                reference.value, i, s=22, facecolors="white", edgecolors=SOFT, linewidths=0.9
            )
        axes.scatter(selection.value, i, s=30, color=COLOUR[CHOSEN], zorder=3)
        gap = "not certified"
        if selection.upper_bound is not None:
            axes.scatter(
                selection.upper_bound, i, marker="|", s=160, color=INK, linewidths=1.4, zorder=4
            )
            gap = charts.gap_in_words(selection.gap or 0.0)
        labels.append(f"stage {stage.number}, {gap}")
    axes.set_yticks(range(len(stages)), labels)
    axes.set_ylim(-0.6, len(stages) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("h: random choice (open), this selection (filled), proven bound (bar)")
    return figure


def _accuracy(protocols: Sequence[Protocol]) -> Figure:
    columns = min(2, len(protocols))
    rows = -(-len(protocols) // columns)
    figure, places = _new(3.4 * columns, 2.5 * rows, rows, columns)
    for axes, protocol in zip(places, protocols, strict=False):
        for i, head in enumerate(dict.fromkeys(row.head for row in protocol.rows)):
            mine = [row for row in protocol.rows if row.head == head]
            axes.errorbar(
                [row.base_classes for row in mine],
                [100 * row.mean for row in mine],
                yerr=[100 * row.half_width for row in mine],
                fmt="o-" if i % 2 == 0 else "s--",
                markersize=3.5,
                color=INK if i % 2 == 0 else SOFT,
                markerfacecolor=INK if i % 2 == 0 else "white",
                capsize=2,
                linewidth=1,
                label=charts.spaced(head),
            )
        axes.set_title(protocol.title, loc="left", fontsize=8, color=SOFT)
        axes.set_xlabel("base classes")
        axes.set_ylabel("accuracy (%)")
        axes.legend(loc="best")
    for axes in places[len(protocols) :]:
        axes.axis("off")
    return figure


def _methods(lines: Sequence[Line]) -> Figure:
    groups: dict[str, list[Line]] = {}
    for line in lines:
        if line.difference is not None:
            groups.setdefault(comparison_title(line), []).append(line)
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    longest = max(len(group) for group in groups.values())
    figure, places = _new(3.6 * columns, (0.9 + 0.2 * longest) * rows, rows, columns)
    for axes, (title, group) in zip(places, groups.items(), strict=False):
        for i, line in enumerate(reversed(group)):
            found = line.difference
            assert found is not None
            if found.half_width is not None:
                ends = (
                    100 * (found.mean - found.half_width),
                    100 * (found.mean + found.half_width),
                )
                axes.plot(ends, [i, i], color=SOFT, linewidth=1)
            colour = COLOUR[CHOSEN] if found.excludes_zero else "white"
            axes.scatter(100 * found.mean, i, s=18, color=colour, edgecolors=SOFT, zorder=3)
        axes.axvline(0, color=SOFT, linewidth=0.8)
        axes.set_yticks(range(len(group)), [line.label for line in reversed(group)])
        axes.set_ylim(-0.6, len(group) - 0.4)
        axes.grid(axis="y", visible=False)
        axes.set_title(title.replace(" · m =", "\nm ="), loc="left", fontsize=7, color=SOFT)
        axes.set_xlabel(f"accuracy minus {REFERENCE} (points, 95 %)")
    for axes in places[len(groups) :]:
        axes.axis("off")
    return figure
