"""The charts of the report, drawn by matplotlib: as SVG inside the page, as files for papers.

A chart is a `Panel`: its natural size in CSS pixels and a function that draws it. The page shows
each panel by itself at that size, so that text is never scaled, and takes colours and font from its
style sheet. Papers get PNG and SVG files, panels of one kind side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fsl_basesel.report import content as contents
from fsl_basesel.report.content import BEFORE, CHOSEN, NOVEL, REST, printable, spaced, thinned
from fsl_basesel.report.paired import REFERENCE, Line, points
from fsl_basesel.report.run import Protocol, Run, Stage
from fsl_basesel.selection import Selection

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 360
"""CSS pixels of a chart's width: a telephone shows it whole, wide screens show several in a row."""
MOST = 120
"""Classes side by side in one chart, at most."""
COLOUR = {NOVEL: "#bd4815", CHOSEN: "#1f6fb2", BEFORE: "#7fb2dc", REST: "#c3c7cc"}
INK, SOFT, GRID, PAPER = "#1d2126", "#59616b", "#e3e4e0", "#ffffff"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": "medium",
    "text.color": INK,
    "text.parse_math": False,  # a class may be called "$x$"
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.titlecolor": SOFT,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.4,
    "svg.hashsalt": "fsl-basesel",  # the same file for the same run
    "figure.constrained_layout.use": True,
}
"""The look of all figures of the project, for `matplotlib.rc_context`."""


class Marks(NamedTuple):
    """What the page adds to the marks of a chart: a title and `data-*` attributes for each one.

    With `dots` the marks are one path of dots of this diameter, without titles: small.
    """

    artist: Artist
    titles: Sequence[str] = ()
    data: Sequence[Mapping[str, object]] = ()
    dots: float = 0.0


class Panel(NamedTuple):
    """A chart.

    Attributes:
        figure: Name of the file in which papers show it.
        title: What it shows.
        draw: Draws it on axes and says what its marks are.
        height: CSS pixels.
        width: CSS pixels.
        bare: A picture without text, which may be scaled.
    """

    figure: str
    title: str
    draw: Callable[[Axes], list[Marks]]
    height: float
    width: float = WIDTH
    bare: bool = False


def save_figures(run: Run, folder: str | os.PathLike[str], dpi: int = 200) -> list[Path]:
    """Write every figure that the run has data for, as PNG and as SVG, to a folder that exists."""
    from matplotlib import rc_context

    written = []
    with rc_context(STYLE):
        for name, panels in groupby(_for_papers(run), key=lambda panel: panel.figure):
            written += save(_together(list(panels)), Path(folder) / name, dpi)
    return written


def figure_of(selection: Selection) -> Figure:
    """All charts that a selection alone has data for, as one figure."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        return _together(_for_papers(Run("selection", [Stage(1, selection)])))


def _for_papers(run: Run) -> list[Panel]:
    panels = all_panels(contents.content_of(run))
    return [one for kind in panels.values() for one in kind if one and one.figure != "stages"]


def save(figure: Figure, path: Path, dpi: int = 200) -> list[Path]:
    """Write a figure as `path`.png and `path`.svg; the same figure gives the same files."""
    written = []
    for ending, options in ((".png", {"Software": None}), (".svg", {"Date": None})):
        target = path.with_name(path.name + ending)
        figure.savefig(target, dpi=dpi, metadata=options)
        written.append(target)
    return written


def all_panels(
    content: contents.Content, where: Callable[[str, bool], str | None] | None = None
) -> dict[str, list[Panel | None]]:
    """The charts of a run by kind; a comparison of methods without common seeds has None.

    Args:
        content: What to show.
        where: The place of a class's thumbnail, from its name and whether it is novel.
    """
    run, shown = content.run, content.map
    stages = run.informed
    return {
        "map": [] if shown is None else [_map(shown, where)],
        "stages": [] if shown is None else _stage_maps(shown, run.stages),
        "changes": [] if run.last is None else _changes(content, run.last),
        "gains": [_gains(stage) for stage in stages if stage.selection.indices],
        "bounds": [_bounds(stages, content.references)] if stages else [],
        "accuracy": [_accuracy(protocol) for protocol in run.protocols],
        "methods": [_methods(lines) for lines in content.comparisons],
    }


def _together(panels: Sequence[Panel]) -> Figure:
    """One figure of several panels, two in a row."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    height = max(panel.height for panel in panels) + 24
    figure, places = new_figure(columns * panels[0].width, rows * height, rows, columns)
    for axes, panel in zip(places, panels, strict=False):
        panel.draw(axes)
        legend = axes.get_legend()
        lines = 0 if legend is None else -(-len(legend.get_texts()) // 3)
        axes.set_title(printable(panel.title), pad=6 + 16 * lines)  # above the legend
        if panel.bare:
            figure.legend(loc="outside lower center", ncols=4)
    for axes in places[len(panels) :]:
        axes.axis("off")
    return figure


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Any]]:
    """A figure of so many CSS pixels, which no window and no other plot of the process knows of."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


_KINDS = {
    REST: ("not chosen", "not chosen", 26, "o"),
    BEFORE: ("chosen earlier", "base class from the start", 85, "o"),
    CHOSEN: ("chosen", "chosen", 85, "o"),
    NOVEL: ("novel", "novel", 85, "^"),
}


def _map(content: contents.ClassMap, where: Callable[[str, bool], str | None] | None) -> Panel:
    """The map of all classes."""

    def draw(axes: Axes) -> list[Marks]:
        found = []
        for kind, (label, words, size, marker) in _KINDS.items():
            chosen = [(i, point) for i, point in enumerate(content.points) if point.kind == kind]
            if not chosen:
                continue
            artist = axes.scatter(
                [point.x for _, point in chosen], [point.y for _, point in chosen], s=size,
                marker=marker, color=COLOUR[kind], edgecolors=PAPER, linewidths=0.8,
                label=f"{label} ({len(chosen)})", zorder=3,
            )  # fmt: skip
            titles, data = [], []
            for i, point in chosen:
                how = f"chosen in stage {point.stage}" if point.stage else words
                titles.append(f"{point.name}\n{how}" + (f" · {point.group}" if point.group else ""))
                picture = where(point.name, kind == NOVEL) if where else None
                data.append({"i": i, "p": picture, "n": " ".join(map(str, point.links))})
            found.append(Marks(artist, titles, data))
        _frame(axes, rise)
        return found

    rise, width = _rise(content), 2 * WIDTH
    title = f"Map of {len(content.points)} classes: novel, chosen and not chosen"
    return Panel("class-map", title, draw, width * rise, width, bare=True)


def _rise(content: contents.ClassMap) -> float:
    """Height over width."""
    return max([0.35, *(abs(point.y) for point in content.points)])


def _frame(axes: Axes, rise: float) -> None:
    axes.set_aspect("equal")
    axes.set_xlim(-1.05, 1.05)
    axes.set_ylim(-1.05 * rise, 1.05 * rise)
    axes.axis("off")


def _stage_maps(content: contents.ClassMap, stages: Sequence[Stage]) -> list[Panel | None]:
    """The same map once for each stage, small: what was there, what was added."""
    rise = _rise(content)

    def draw(axes: Axes, number: int) -> list[Marks]:
        now: dict[str, list[tuple[float, float]]] = {
            kind: [] for kind in (REST, NOVEL, BEFORE, CHOSEN)
        }
        for point in content.points:
            kind = point.kind
            if point.stage:  # chosen at some time: by now, just now, or not yet
                kind = BEFORE if point.stage < number else CHOSEN if point.stage == number else REST
            now[kind].append((point.x, point.y))
        found = []
        for kind, places in now.items():
            if places:
                size = 2.4 if kind in (REST, NOVEL) else 5.0
                across, up = zip(*places, strict=True)
                artist = axes.scatter(across, up, s=size**2, color=COLOUR[kind], linewidths=0)
                found.append(Marks(artist, dots=size))
        _frame(axes, rise)
        return found

    panels: list[Panel | None] = []
    for stage in stages:
        if stage.number <= content.stage.number:
            how = "at random" if not stage.informed else f"by {stage.selection.method}"
            title = f"Stage {stage.number}: {len(stage.selection.indices)} classes {how}"
            panel = partial(draw, number=stage.number)
            panels.append(Panel("stages", title, panel, 170 * rise, 170, bare=True))
    return panels


def _changes(content: contents.Content, last: Stage) -> list[Panel | None]:
    """Similarity to the nearest base classes and Similarity Ratio of each novel class.

    Signed similarities have no ratio.
    """
    k, served = last.selection.hyperparameters["k"], content.served
    kinds = {
        "similarity": (f"similarity to {k} nearest", [(row.name, row.nearest) for row in served]),
        "similarity-ratio": ("Similarity Ratio", [(row.name, row.ratio) for row in served]),
    }
    return [
        Panel(name, title, partial(_draw_changes, rows=rows), 250)
        for name, (title, rows) in kinds.items()
        if name == "similarity" or any(change.after is not None for _, change in rows)
    ]


def _draw_changes(axes: Axes, rows: Sequence[tuple[str, contents.Change]]) -> list[Marks]:
    """Novel classes side by side, the highest first: before, after and for random choices."""
    known = [(name, one) for name, one in rows if one.after is not None]
    known.sort(key=lambda pair: -(pair[1].after or 0.0))
    shown = thinned(known, MOST)
    at = range(1, len(shown) + 1)
    changes = [(x, one) for x, (_, one) in zip(at, shown, strict=True)]
    both = [(x, one.before, one.after) for x, one in changes if one.before is not None]
    if both:
        x, low, high = zip(*both, strict=True)
        axes.vlines(x, low, high, color=COLOUR[BEFORE], linewidth=1.2)
        _rings(axes, x, low, s=12, linewidths=0.9, label="before")
    titles = []
    for name, one in shown:
        figures = (("after", one.after), ("before", one.before), ("random choice", one.random))
        more = [f"{word} {value:.3f}" for word, value in figures if value is not None]
        titles.append(f"{name}\n" + ", ".join(more))
    reached = [one.after or 0.0 for _, one in shown]
    after = axes.scatter(at, reached, s=14, color=COLOUR[CHOSEN], label="after", zorder=4)
    drawn = [(x, one.random) for x, one in changes if one.random is not None]
    if drawn:
        x, y = zip(*drawn, strict=True)
        axes.scatter(x, y, marker="_", s=18, color=SOFT, linewidths=1.2, label="random choice")
    _counted(axes, len(shown), "novel classes, highest first")
    _legend(axes)
    return [Marks(after, titles)]


def _rings(axes: Axes, x: Any, y: Any, **options: Any) -> Artist:
    return axes.scatter(x, y, facecolors=PAPER, edgecolors=SOFT, **options)


def _ticks(axis: Any, count: int, **options: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(count, steps=[1, 2, 5, 10], **options))
    axis.set_major_formatter("{x:.6g}")  # no common factor, which would stand in the legend


def _counted(axes: Axes, count: int, label: str) -> None:
    _ticks(axes.xaxis, 6, integer=True, min_n_ticks=1)
    _ticks(axes.yaxis, 5)
    axes.grid(axis="x", visible=False)
    axes.set_xlim(0.2, max(count, 1) + 0.8)
    axes.set_xlabel(label)


def _legend(axes: Axes, columns: int = 3) -> None:
    """Above the chart, where no mark is hidden by it."""
    space = {"borderaxespad": 0.2, "borderpad": 0.1}
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, **space)


def _gains(stage: Stage) -> Panel:
    """What each class added when it was chosen, in order."""

    def draw(axes: Axes) -> list[Marks]:
        shown = thinned(list(enumerate(stage.selection.explanation.chosen, 1)), MOST)
        at, rows = [rank for rank, _ in shown], [row for _, row in shown]
        gains, width = [row.gain for row in rows], 0.8 * (at[-1] / len(at))
        bars = axes.bar(at, gains, width, color=COLOUR[CHOSEN], label="gained when chosen")
        axes.scatter(
            at, [row.loss for row in rows], marker="_", s=max(6.0, min(90.0, (200 / len(at)) ** 2)),
            color=INK, linewidths=1.2, label="lost without it", zorder=3,
        )  # fmt: skip
        axes.axhline(0, color=SOFT, linewidth=0.8)
        _counted(axes, at[-1], "order of choice")
        _legend(axes)
        titles = [
            f"{row.name}\ngained {row.gain:.5f}, {row.loss:.5f} lost without it, "
            f"serves {len(row.serves)} novel classes"
            for row in rows
        ]
        return [Marks(bar, [title]) for bar, title in zip(bars, titles, strict=True)]

    return Panel("gains", f"h gained, stage {stage.number}", draw, 210)


def _bounds(stages: Sequence[Stage], references: Mapping[int, contents.Reference | None]) -> Panel:
    """Each selection's value, the proven bound, and what random choices reach."""

    def draw(axes: Axes) -> list[Marks]:
        found = []
        for i, stage in enumerate(reversed(stages)):
            selection, reference = stage.selection, references.get(stage.number)
            label = (lambda text: text) if i == 0 else (lambda _: None)
            if reference is not None:
                mean = reference.control.mean
                axes.plot([mean, selection.value], [i, i], color=COLOUR[BEFORE], lw=2, zorder=1)
                look = {"s": 36, "linewidths": 1.4, "zorder": 2, "label": label("random choice")}
                found.append(Marks(_rings(axes, mean, i, **look), [f"random choice {mean:.6f}"]))
            value = axes.scatter(
                selection.value, i, s=48, color=COLOUR[CHOSEN], label=label("this one"), zorder=3
            )
            found.append(Marks(value, [f"value {selection.value:.6f}"]))
            if selection.upper_bound is not None:
                bound = axes.scatter(
                    selection.upper_bound, i, marker="|", s=220, color=INK, linewidths=2,
                    label=label("proven bound"), zorder=4,
                )  # fmt: skip
                found.append(Marks(bound, [f"proven bound {selection.upper_bound:.6f}"]))
            total = len(stage.before) + len(selection.indices)
            words = contents.gap_in_words(selection.gap)
            name = f"stage {stage.number}, {total} classes: {words}"
            axes.text(0, i + 0.26, name, transform=axes.get_yaxis_transform(), color=INK)
        axes.set_ylim(-0.5, len(stages) - 0.35)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        _ticks(axes.xaxis, 5)
        axes.margins(x=0.08)
        _legend(axes)
        return found

    return Panel("value-and-bound", "h of each selection", draw, 76 + 44 * len(stages))


_LINES = (("o-", INK, INK), ("o--", SOFT, PAPER), ("s:", INK, INK), ("s-.", SOFT, PAPER))


def _accuracy(protocol: Protocol) -> Panel:
    """Accuracy by the number of base classes, a line for each head."""
    heads = list(dict.fromkeys(row.head for row in protocol.rows))

    def draw(axes: Axes) -> list[Marks]:
        sizes = sorted({row.base_classes for row in protocol.rows})
        found = []
        for i, head in enumerate(heads):
            rows = [row for row in protocol.rows if row.head == head]
            rows.sort(key=lambda row: row.base_classes)
            style, colour, inside = _LINES[i % len(_LINES)]
            shift = (i - (len(heads) - 1) / 2) * 0.06
            at = [sizes.index(row.base_classes) + shift for row in rows]
            means = [100 * row.accuracy.mean for row in rows]
            widths = [100 * (row.accuracy.half_width or 0.0) for row in rows]
            axes.errorbar(at, means, widths, fmt=style[1:], color=colour, linewidth=1.4, label="_")
            artist = axes.scatter(
                at, means, s=26, marker=style[0], color=inside, edgecolors=colour, linewidths=1.4,
                label=printable(spaced(head)), zorder=4,
            )  # fmt: skip
            titles = [f"{row.base_classes} base classes: {points(row.accuracy, digits=1)} %"
                      for row in rows]  # fmt: skip
            found.append(Marks(artist, [f"{spaced(head)}\n{title}" for title in titles]))
        if protocol.ways:
            axes.axhline(100 / protocol.ways, color=SOFT, linestyle=(0, (2, 4)), linewidth=1)
            axes.annotate(
                "chance", (1, 100 / protocol.ways), (0, 3), xycoords=("axes fraction", "data"),
                textcoords="offset points", ha="right", color=SOFT,
            )  # fmt: skip
        axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set_xlim(-0.4, len(sizes) - 0.6)
        axes.grid(axis="x", visible=False)
        axes.set_xlabel("base classes")
        _legend(axes, 2)
        return found

    title = f"{protocol.title}, accuracy in %"
    return Panel("accuracy", title, draw, 250 + 16 * (len(heads) // 3))


def _methods(lines: Sequence[Line]) -> Panel | None:
    """Differences to the reference with their intervals; None where no seed is common."""
    known = [(line.label, one) for line in lines if (one := line.difference) is not None]

    def draw(axes: Axes) -> list[Marks]:
        found = []
        axes.axvline(0, color=SOFT, linewidth=1)
        for i, (label, one) in enumerate(reversed(known)):
            mean, width = 100 * one.mean, 100 * (one.half_width or 0.0)
            axes.plot([mean - width, mean + width], [i, i], color=SOFT, linewidth=1.4)
            sure = one.excludes_zero
            mark = axes.scatter(
                mean, i, s=32, color=COLOUR[CHOSEN] if sure else PAPER,
                edgecolors=COLOUR[CHOSEN] if sure else SOFT, linewidths=1.4, zorder=3,
            )  # fmt: skip
            found.append(Marks(mark, [f"{label}\n{points(one, sign=True, digits=1)} points"]))
        labels = [printable(label) for label, _ in reversed(known)]
        short = [label if len(label) <= 22 else f"{label[:21]}…" for label in labels]
        axes.set_yticks(range(len(known)), short)
        axes.set_ylim(-0.6, len(known) - 0.4)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="y", visible=False)
        _ticks(axes.xaxis, 5)
        axes.set_xlabel(f"accuracy minus {REFERENCE}, points, 95 %")
        return found

    if not known:
        return None
    return Panel("methods", contents.comparison_title(lines[0]), draw, 58 + 22 * len(known))
