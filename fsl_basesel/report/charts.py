"""The figures of the page, as SVG that takes its colours from the page's style."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fsl_basesel.report.atlas import Atlas
from fsl_basesel.report.content import (
    BEFORE,
    CHOSEN,
    COLUMNS,
    NOVEL,
    REST,
    Change,
    ClassMap,
    Point,
    Served,
    thinned,
)
from fsl_basesel.report.paired import Line
from fsl_basesel.report.run import Protocol, Stage
from fsl_basesel.report.svg import Scale, drawing, escaped, number, tag, ticks, x_label, y_axis

WIDTH = 1000.0
LEFT = 56.0
RIGHT = WIDTH - 12
BARS = 500
"""Classes in the figure of a stage's gains, at most."""

_WORDS = {
    NOVEL: "novel",
    CHOSEN: "chosen",
    BEFORE: "base class from the start",
    REST: "not chosen",
}


def class_map(content: ClassMap, atlas: Atlas) -> str:
    """The map of all classes; each point has its name as a title."""
    edge, rise = 28.0, max((abs(point.y) for point in content.points), default=1.0)
    rise = max(rise, 0.35)
    height = WIDTH * rise + 2 * edge * (1 - rise)  # as much across as up for the same distance
    x, y = Scale(-1, 1, edge, WIDTH - edge), Scale(-rise, rise, height - edge, edge)
    parts = []
    for i, point in enumerate(content.points):
        words = _WORDS[point.kind]
        if point.stage:
            words = f"chosen in stage {point.stage}"
        group = f" · {point.group}" if point.group else ""
        title = tag("title", escaped(f"{point.name}\n{words}{group}"))
        more = {
            "data_i": i,
            "data_p": atlas.where(point.name, point.kind == NOVEL),
            "data_n": " ".join(map(str, point.links)) or None,
        }
        parts.append(_mark(point, x(point.x), y(point.y), title, **more))
    order = {REST: 0, BEFORE: 1, CHOSEN: 2, NOVEL: 3}
    drawn = sorted(range(len(parts)), key=lambda i: order[content.points[i].kind])
    lines = tag("g", class_="links")
    label = f"Map of {len(parts)} classes: novel, chosen and not chosen"
    return drawing(WIDTH, height, label, [lines, *(parts[i] for i in drawn)], id="map")


def _mark(point: Point, x: float, y: float, title: str, **more: object) -> str:
    if point.kind == NOVEL:
        path = f"M{x:.1f} {y - 5.6:.1f}l5.4 9.4h-10.8z"
        return tag("path", title, d=path, class_=f"p {point.kind}", **more)
    radius = 3.2 if point.kind == REST else 5.4
    return tag("circle", title, cx=x, cy=y, r=radius, class_=f"p {point.kind}", **more)


def stage_maps(content: ClassMap, stages: Sequence[Stage]) -> str:
    """The same map once a stage, small: what there was, what came."""
    side = 180.0
    x, y = Scale(-1, 1, 6, side - 6), Scale(-1, 1, side - 6, 6)
    shown = []
    for stage in stages:
        if stage.number > content.stage.number:
            continue
        parts: dict[str, list[str]] = {kind: [] for kind in (REST, NOVEL, BEFORE, CHOSEN)}
        for point in content.points:
            kind = point.kind
            if point.stage:  # chosen at some time: by now, just now, or not yet
                kind = BEFORE if point.stage < stage.number else CHOSEN
                kind = REST if point.stage > stage.number else kind
            parts[kind].append(f"M{x(point.x):.1f} {y(point.y):.1f}h0")  # a round dot
        paths = [
            tag("path", d="".join(found), class_=f"dots {kind}")
            for kind, found in parts.items()
            if found
        ]
        how = "at random" if not stage.informed else f"by {stage.selection.method}"
        title = f"Stage {stage.number}: {len(stage.selection.indices)} classes {how}"
        caption = tag("figcaption", escaped(title))
        shown.append(tag("figure", drawing(side, side, title, paths), caption, class_="small"))
    return tag("div", *shown, class_="multiples")


def changes(
    rows: Sequence[Served], figure: Callable[[Served], Change], title: str, before: str
) -> str:
    """Novel classes side by side, sorted: before, after and for random choices."""
    known = sorted(
        (row for row in rows if figure(row).after is not None),
        key=lambda row: -(figure(row).after or 0.0),
    )
    known = [known[i] for i in thinned(len(known), COLUMNS)]
    height, top, bottom = 300.0, 34.0, 270.0
    values = [
        value
        for row in known
        for value in (figure(row).before, figure(row).after, figure(row).random)
        if value is not None
    ]
    y = Scale.around(values, bottom, top)
    step = (RIGHT - LEFT) / max(1, len(known))
    parts = [y_axis(y, LEFT, RIGHT, title)]
    half = max(1.0, min(5.0, step * 0.36))
    for i, row in enumerate(known):
        change, x = figure(row), LEFT + (i + 0.5) * step
        after = change.after or 0.0
        marks = [tag("title", escaped(_told(row.name, change, before)))]
        marks.append(
            tag("rect", x=x - step / 2, y=top, width=step, height=bottom - top, class_="hit")
        )
        if change.before is not None:
            marks.append(tag("line", x1=x, x2=x, y1=y(change.before), y2=y(after), class_="stem"))
            marks.append(tag("circle", cx=x, cy=y(change.before), r=half * 0.8, class_="was"))
        if change.random is not None:
            at = y(change.random)
            marks.append(tag("line", x1=x - half, x2=x + half, y1=at, y2=at, class_="random"))
        marks.append(tag("circle", cx=x, cy=y(after), r=half, class_="after"))
        parts.append(tag("g", *marks, class_="col"))
    parts.append(x_label(f"{len(known)} novel classes, highest first", LEFT, 292, "start", "axis"))
    return drawing(WIDTH, height, f"{title} of {len(known)} novel classes", parts)


def _told(name: str, change: Change, before: str) -> str:
    told = [f"{name}\nafter {change.after:.3f}"]
    if change.before is not None:
        told.append(f"{before} {change.before:.3f}")
    if change.random is not None:
        told.append(f"random choice {change.random:.3f}")
    return ", ".join(told)


def gains(stage: Stage, width: float) -> str:
    """What each class added when it was chosen, in order."""
    height, top, bottom, right = 230.0, 34.0, 196.0, width - 12
    rows = stage.selection.explanation.chosen
    shown = [rows[i] for i in thinned(len(rows), BARS)]
    values = [value for row in shown for value in (row.gain, row.loss)]
    y = Scale.around(values, bottom, top, zero=True)
    step = (right - LEFT) / max(1, len(shown))
    gap = min(1.5, step * 0.2)
    parts = [y_axis(y, LEFT, right, "h gained")]
    for place, row in enumerate(shown):
        x = LEFT + place * step
        serves = f"serves {len(row.serves)} novel classes"
        words = f"{row.name}\ngained {row.gain:.5f}, {row.loss:.5f} lost without it, {serves}"
        low, high = sorted((y(0), y(row.gain)))
        size = {"width": max(0.6, step - gap), "height": max(0.5, high - low)}
        marks = [
            tag("title", escaped(words)),
            tag("rect", x=x, y=top, width=step, height=bottom - top, class_="hit"),
            tag("rect", x=x + gap / 2, y=low, **size, class_="bar"),
            tag("line", x1=x, x2=x + step, y1=y(row.loss), y2=y(row.loss), class_="loss"),
        ]
        parts.append(tag("g", *marks, class_="col"))
    parts.append(x_label("chosen first", LEFT, bottom + 22, "start", "axis"))
    parts.append(x_label("last", right, bottom + 22, "end", "axis"))
    title = f"Gains of the {len(rows)} classes of stage {stage.number} in order of choice"
    return drawing(width, height, title, parts)


def bounds(stages: Sequence[Stage], randoms: Sequence[float | None]) -> str:
    """Each selection's value, the proven bound, and what random choices come to."""
    row, top = 46.0, 40.0
    height = top + row * len(stages) + 30
    values = [stage.selection.value for stage in stages]
    values += [v for stage in stages if (v := stage.selection.upper_bound) is not None]
    values += [value for value in randoms if value is not None]
    left, right = 190.0, WIDTH - 190
    x = Scale.around(values, left, right)
    bottom = height - 30
    parts = []
    for value in ticks(x.low, x.high):
        parts.append(tag("line", x1=x(value), x2=x(value), y1=top - 10, y2=bottom, class_="grid"))
        parts.append(x_label(number(value), x(value), bottom + 18))
    for i, (stage, random) in enumerate(zip(stages, randoms, strict=True)):
        y = top + row * (i + 0.5)
        selection, bound = stage.selection, stage.selection.upper_bound
        total = len(stage.before) + len(selection.indices)
        name = f"Stage {stage.number}" if len(stages) > 1 else "Selection"
        parts.append(tag("text", escaped(f"{name}, {total} classes"), x=0, y=y + 4, class_="row"))
        at = x(selection.value)
        if random is not None:
            parts.append(tag("line", x1=x(random), x2=at, y1=y, y2=y, class_="stem"))
            title = tag("title", f"random choice {random:.6f}")
            parts.append(tag("circle", title, cx=x(random), cy=y, r=5.0, class_="was"))
        title = tag("title", f"value {selection.value:.6f}")
        parts.append(tag("circle", title, cx=at, cy=y, r=6.5, class_="after"))
        words = "not certified"
        if bound is not None:
            title = tag("title", f"certified bound {bound:.6f}")
            end = tag("line", title, x1=x(bound), x2=x(bound), y1=y - 14, y2=y + 14, class_="bound")
            parts.append(end)
            words = gap_in_words(selection.gap or 0.0)
        parts.append(tag("text", escaped(words), x=right + 16, y=y + 4, class_="row"))
    return drawing(WIDTH, height, "Value of each selection against its certified bound", parts)


def gap_in_words(gap: float) -> str:
    """How far from the best a selection may be.

    Example:
        >>> gap_in_words(0.0), gap_in_words(0.0123)
        ('proven optimal', 'at most 1.23 % below')
    """
    if gap == 0:
        return "proven optimal"
    return f"at most {100 * gap:.2g} % below" if gap < 0.01 else f"at most {100 * gap:.3g} % below"


def accuracy(protocol: Protocol) -> str:
    """Accuracy by the number of base classes, a line for each head."""
    width, height, top, bottom = 500.0, 320.0, 40.0, 270.0
    left, right = 56.0, width - 140
    rows = protocol.rows
    ends = [row.mean + sign * row.half_width for row in rows for sign in (-1, 1)]
    chance = 1 / protocol.ways if protocol.ways else 0.0
    y = Scale.around([*ends, chance], bottom, top)
    sizes = sorted({row.base_classes for row in rows})
    place = Scale(0, max(1, len(sizes) - 1), left + 16, right - 16)
    at = {size: place(i) if len(sizes) > 1 else (left + right) / 2 for i, size in enumerate(sizes)}
    parts = [y_axis(y, left, right, "accuracy", percent=True)]
    parts += [x_label(str(size), at[size], bottom + 20) for size in sizes]
    parts.append(x_label("base classes", (left + right) / 2, bottom + 40, kind="axis"))
    parts.append(tag("line", x1=left, x2=right, y1=y(chance), y2=y(chance), class_="chance"))
    parts.append(x_label("chance", right + 6, y(chance) + 4, "start"))
    heads = list(dict.fromkeys(row.head for row in rows))
    labels: list[tuple[float, str, int]] = []
    for i, head in enumerate(heads):
        mine = sorted((row for row in rows if row.head == head), key=lambda row: row.base_classes)
        shift = (i - (len(heads) - 1) / 2) * 5
        marks = [
            tag(
                "polyline",
                points=" ".join(
                    f"{at[row.base_classes] + shift:.1f},{y(row.mean):.1f}" for row in mine
                ),
                class_="head",
            )
        ]
        for row in mine:
            x = at[row.base_classes] + shift
            low, high = y(row.mean - row.half_width), y(row.mean + row.half_width)
            words = f"{head}, {row.base_classes} base classes: {percent(row.mean, row.half_width)}"
            marks.append(tag("line", x1=x, x2=x, y1=low, y2=high, class_="whisker"))
            marks.append(tag("circle", tag("title", escaped(words)), cx=x, cy=y(row.mean), r=4.5))
        parts.append(tag("g", *marks, class_=f"head{i % 4}"))
        labels.append((y(mine[-1].mean), head, i))
    floor = -1e9
    for where, head, i in sorted(labels):
        floor = max(where, floor + 16)
        parts.append(
            tag("text", escaped(spaced(head)), x=right + 6, y=floor + 4, class_=f"row head{i % 4}")
        )
    return drawing(width, height, f"Accuracy by stage and head, {protocol.title}", parts)


def spaced(head: str) -> str:
    """Words of a class name.

    Example:
        >>> spaced("NearestCentroid"), spaced("MAML")
        ('Nearest centroid', 'MAML')
    """
    words = "".join(
        f" {c.lower()}" if c.isupper() and i and head[i - 1].islower() else c
        for i, c in enumerate(head)
    )
    return words


def percent(mean: float, half_width: float | None) -> str:
    """A share with its interval.

    Example:
        >>> percent(0.5, 0.0123), percent(0.5, None)
        ('50.0 ± 1.2 %', '50.0 %')
    """
    if half_width is None:
        return f"{100 * mean:.1f} %"
    return f"{100 * mean:.1f} ± {100 * half_width:.1f} %"


def points(mean: float, half_width: float | None) -> str:
    """A difference of shares in percentage points.

    Example:
        >>> points(0.021, 0.004), points(-0.02, None)
        ('+2.1 ± 0.4', '−2.0')
    """
    text = f"{100 * mean:+.1f}" + ("" if half_width is None else f" ± {100 * half_width:.1f}")
    return text.replace("-", "−")


def difference(line: Line, scale: Scale) -> str:
    """A difference to the reference and its interval, to stand in a cell of the table."""
    width, height = 220.0, 22.0
    zero = scale(0)
    parts = [tag("line", x1=zero, x2=zero, y1=0, y2=height, class_="zero")]
    found = line.difference
    if found is None:
        return drawing(width, height, "", parts, class_="forest")
    if found.low is not None and found.high is not None:
        low, high = scale(found.low), scale(found.high)
        parts.append(tag("line", x1=low, x2=high, y1=11, y2=11, class_="whisker"))
    kind = "sure" if found.excludes_zero else "unsure"
    parts.append(tag("circle", cx=scale(found.mean), cy=11, r=4.5, class_=kind))
    words = f"difference {points(found.mean, found.half_width)} percentage points"
    return drawing(width, height, words, parts, class_="forest")


def difference_scale(lines: Sequence[Line]) -> Scale:
    """One scale for all differences, so that tables can be compared."""
    values = [
        value
        for line in lines
        if line.difference is not None
        for value in (line.difference.low, line.difference.mean, line.difference.high)
        if value is not None
    ]
    return Scale.around([*values, 0.0], 6, 214)
