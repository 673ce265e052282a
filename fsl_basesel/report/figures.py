"""The charts of the report, drawn by matplotlib: as SVG inside the page, as files for papers.

A chart is a `Panel`: its natural size in CSS pixels and a function that draws it. The page shows
each panel by itself at that size, so that text is never scaled, and takes colours and font from its
style sheet. Papers get PNG and SVG files, panels of one kind side by side.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from fsl_basesel.controls import DOMAIN, RANDOM, Control
from fsl_basesel.files.writing import whole_file
from fsl_basesel.report import content as contents
from fsl_basesel.report.content import BEFORE, CHOSEN, NOVEL, REST, printable, thinned
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
RING: Any = {"facecolors": PAPER, "edgecolors": SOFT}
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
_NAMES = COLOUR | {"ink": INK, "soft": SOFT, "line": GRID, "panel": PAPER}
VARIABLES = {colour: f"var(--{name})" for name, colour in _NAMES.items()}
"""What the page puts in place of each colour, so that light and dark both work."""
_SVG, _HREF = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


class Marks(NamedTuple):
    """What the page adds to the marks of a chart: a title and `data-*` attributes for each one."""

    artist: Artist
    titles: Sequence[str]
    data: Sequence[Mapping[str, object]] = ()


class Panel(NamedTuple):
    """A chart: a function that draws it on axes and says what its marks are, and CSS pixels.

    `figure` is the name of the file in which papers show it. A `bare` picture has no text and may
    be scaled.
    """

    figure: str
    title: str
    draw: Callable[[Axes], list[Marks]]
    height: float
    width: float = WIDTH
    bare: bool = False


def save_figures(run: Run, folder: str | os.PathLike[str]) -> list[Path]:
    """Write every figure that the run has data for, as PNG and as SVG, to a folder that exists."""
    from matplotlib import rc_context

    written = []
    with rc_context(STYLE):
        for name, panels in groupby(_for_papers(run), key=lambda panel: panel.figure):
            written += save(_together(list(panels)), Path(folder) / name)
    return written


def figure_of(selection: Selection) -> Figure:
    """All charts that a selection alone has data for, as one figure."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        return _together(_for_papers(Run("selection", [Stage(1, selection)])))


def _for_papers(run: Run) -> list[Panel]:
    panels = all_panels(contents.content_of(run))
    return [one for kind in panels.values() for one in kind if one]


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as `path`.png and `path`.svg; the same figure gives the same files."""
    written = []
    for format, changing in (("png", "Software"), ("svg", "Date")):
        written.append(path.with_name(f"{path.name}.{format}"))
        with whole_file(written[-1]) as file:
            figure.savefig(file, format=format, dpi=200, metadata={changing: None})
    return written


def all_panels(
    content: contents.Content, where: Callable[[str, bool], str | None] | None = None
) -> dict[str, list[Panel | None]]:
    """The charts of a run by kind; a comparison of methods without common seeds has None.

    `where` gives the place of a class's thumbnail from its name and whether it is novel.
    """
    run, shown = content.run, content.map
    stages = run.informed
    return {
        "map": [] if shown is None else [_map(shown, where)],
        "changes": [] if run.last is None else _changes(content, run.last),
        "gains": [_gains(stage) for stage in stages if stage.selection.indices],
        "bounds": [_bounds(stages, content.controls)] if stages else [],
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


def svg(panel: Panel) -> str:
    """A panel as an element of the page."""
    from matplotlib import rc_context

    text = io.StringIO()
    # Hashes with this salt identify what a chart uses several times: other ones in each chart.
    salt = f"{panel.figure} {panel.title}"
    with rc_context(STYLE | {"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure, (axes,) = new_figure(panel.width, panel.height)
        named = panel.draw(axes)
        for i, marks in enumerate(named):
            marks.artist.set_gid(f"marks-{i}")
        figure.savefig(text, format="svg", transparent=True)
    root = ElementTree.fromstring(text.getvalue())
    groups = {element.get("id"): element for element in root.iter(f"{_SVG}g")}
    for i, marks in enumerate(named):
        _name_marks(groups[f"marks-{i}"], marks)
    _for_page(root)
    root.attrib.clear()
    width, height = f"{panel.width:g}", f"{panel.height:g}"
    root.attrib.update(width=width, height=height, viewBox=f"0 0 {width} {height}", role="img")
    root.set("class", "bare" if panel.bare else "chart")
    root.set("aria-label", printable(panel.title))
    ElementTree.register_namespace("", _SVG[1:-1])
    return ElementTree.tostring(root, encoding="unicode")


def _name_marks(group: ElementTree.Element, marks: Marks) -> None:
    """Give each mark its title and data; all have one style, which goes to their group."""
    drawn = [one for one in group.iter() if one.tag in (f"{_SVG}use", f"{_SVG}path")]
    for defs in group.iter(f"{_SVG}defs"):
        drawn = [one for one in drawn if one not in list(defs)]
    group.set("style", drawn[0].get("style", ""))
    for one, title in zip(drawn, marks.titles, strict=True):
        del one.attrib["style"]
        one.set("class", "mark")
        ElementTree.SubElement(one, f"{_SVG}title").text = printable(title)
    for one, data in zip(drawn, marks.data, strict=False):
        known = {key: value for key, value in data.items() if value not in (None, "")}
        one.attrib.update({f"data-{key}": str(value) for key, value in known.items()})


def _for_page(root: ElementTree.Element) -> None:
    """Without what one page cannot hold twice or need not hold: identifiers and fonts."""
    for element in list(root.iter()):
        attributes = element.attrib
        attributes.pop("clip-path", None)
        needless = "style" if element.tag == f"{_SVG}defs" else "id"  # every use has a style
        for child in list(element):
            child.attrib.pop(needless, None)
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style", f"{_SVG}clipPath"):
                element.remove(child)
        if _HREF in attributes:
            attributes["href"] = attributes.pop(_HREF)
        if "style" in attributes:
            style = re.sub(r"font: (\S+) [^;]*", r"font-size: \1", attributes["style"])
            attributes["style"] = re.sub(
                "#[0-9a-f]{6}", lambda found: VARIABLES.get(found[0], found[0]), style
            )


_KINDS = {
    REST: ("not chosen", "not chosen", 26, "o"),
    BEFORE: ("chosen earlier", "base class from the start", 85, "o"),
    CHOSEN: ("chosen", "chosen", 85, "o"),
    NOVEL: ("novel", "novel", 85, "^"),
}


def _map(content: contents.ClassMap, where: Callable[[str, bool], str | None] | None) -> Panel:
    """The map of all classes."""
    rise = max([0.35, *(abs(point.y) for point in content.points)])  # height over width

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
        axes.set_aspect("equal")
        axes.set_xlim(-1.05, 1.05)
        axes.set_ylim(-1.05 * rise, 1.05 * rise)
        axes.axis("off")
        return found

    title = f"Map of {len(content.points)} classes: novel, chosen and not chosen"
    return Panel("class-map", title, draw, 2 * WIDTH * rise, 2 * WIDTH, bare=True)


def _changes(content: contents.Content, last: Stage) -> list[Panel | None]:
    """Similarity to the nearest base classes and Similarity Ratio of each novel class."""
    k, served = last.selection.hyperparameters["k"], content.served
    draw = partial(_draw_changes, rows=[(row.name, row.nearest) for row in served])
    panels: list[Panel | None] = [Panel("similarity", f"similarity to {k} nearest", draw, 250)]
    if any(row.ratio.after is not None for row in served):  # signed similarities have none
        draw = partial(_draw_changes, rows=[(row.name, row.ratio) for row in served])
        panels.append(Panel("similarity-ratio", "Similarity Ratio", draw, 250))
    return panels


def _draw_changes(axes: Axes, rows: Sequence[tuple[str, contents.Change]]) -> list[Marks]:
    """Novel classes side by side, the highest first: before, after and for random choices."""
    known = [(name, one) for name, one in rows if one.after is not None]
    known.sort(key=lambda pair: -(pair[1].after or 0.0))
    shown = thinned(known, MOST)
    at = np.arange(1, len(shown) + 1)
    before, after, random = np.array([one for _, one in shown], float).T  # NaN for None
    if np.isfinite(before).any():
        axes.vlines(at, before, after, color=COLOUR[BEFORE], linewidth=1.2)
        axes.scatter(at, before, s=12, linewidths=0.9, label="before", **RING)
    drawn = axes.scatter(at, after, s=14, color=COLOUR[CHOSEN], label="after", zorder=4)
    if np.isfinite(random).any():
        axes.scatter(at, random, marker="_", s=18, color=SOFT, label="random choice")
    titles = []
    for name, one in shown:
        words = zip(("before", "after", "random choice"), one, strict=True)
        more = [f"{word} {value:.3f}" for word, value in words if value is not None]
        titles.append(f"{name}\n" + ", ".join(more))
    _counted(axes, len(shown), "novel classes, highest first")
    _legend(axes)
    return [Marks(drawn, titles)]


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


def _bounds(stages: Sequence[Stage], controls: Mapping[int, list[Control]]) -> Panel:
    """Each selection's value, the proven bound, and what random choices reach."""
    looks: dict[str, Any] = {
        RANDOM: {"s": 36, "zorder": 2, **RING},
        DOMAIN: {"s": 36, "zorder": 2, "color": SOFT, "marker": "x"},
        "this one": {"s": 48, "zorder": 3, "color": COLOUR[CHOSEN]},
        "proven bound": {"s": 220, "zorder": 4, "color": INK, "marker": "|"},
    }

    def draw(axes: Axes) -> list[Marks]:
        places: dict[str, list[tuple[float, int]]] = {}
        for i, stage in enumerate(reversed(stages)):
            selection = stage.selection
            reached = {one.kind: one.mean for one in controls[stage.number]}
            if RANDOM in reached:
                ends = [reached[RANDOM], selection.value]
                axes.plot(ends, [i, i], color=COLOUR[BEFORE], linewidth=2, zorder=1)
            reached["this one"] = selection.value
            if selection.upper_bound is not None:
                reached["proven bound"] = selection.upper_bound
            for word, value in reached.items():
                places.setdefault(word, []).append((value, i))
            total = len(stage.before) + len(selection.indices)
            words = contents.gap_in_words(selection.gap)
            name = f"stage {stage.number}, {total} classes: {words}"
            axes.text(0, i + 0.26, name, transform=axes.get_yaxis_transform(), color=INK)
        found = []
        for word, look in looks.items():
            if word in places:
                x, y = zip(*places[word], strict=True)
                drawn = axes.scatter(x, y, label=word, linewidths=1.6, **look)
                found.append(Marks(drawn, [f"{word} {value:.6f}" for value in x]))
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
                label=printable(head), zorder=4,
            )  # fmt: skip
            titles = [
                f"{head}\n{row.base_classes} base classes: {points(row.accuracy, digits=1)} %"
                for row in rows
            ]
            found.append(Marks(artist, titles))
        if protocol.ways:
            axes.axhline(100 / protocol.ways, color=SOFT, linestyle=":", label="chance")
        axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set_xlim(-0.4, len(sizes) - 0.6)
        axes.grid(axis="x", visible=False)
        axes.set_xlabel("base classes")
        _legend(axes, 2)
        return found

    title = f"{protocol.title}, accuracy in %"
    return Panel("accuracy", title, draw, 250 + 16 * (len(heads) // 2))


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
