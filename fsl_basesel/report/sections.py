"""The parts of the page that show selections and accuracies."""

from __future__ import annotations

from collections.abc import Sequence

from fsl_basesel.report import charts
from fsl_basesel.report.atlas import LIMIT, Atlas
from fsl_basesel.report.content import (
    COLUMNS,
    RANDOM_DRAWS,
    ClassMap,
    Reference,
    Served,
    reference_of,
    short,
    thinned,
)
from fsl_basesel.report.parts import absent, count, key, says, wide
from fsl_basesel.report.run import Run, Stage
from fsl_basesel.report.svg import escaped, tag

CARDS, CARDS_OPEN = 200, 24
"""Novel classes shown with their neighbours, at most, and those shown at once."""


def the_map(run: Run, content: ClassMap | None, atlas: Atlas) -> list[str]:
    """Where all classes lie, and when those chosen were."""
    if content is None:
        return absent(
            "The map needs the class centroids, <code>classes-stage-i.npz</code>, which "
            "<code>SelectBaseClasses</code> and <code>ColdStartSelection</code> write with every "
            "selection they make, and <code>fsl_basesel.report.save_classes</code> for "
            "selections of your own."
        )
    kinds = [point.kind for point in content.points]
    stage = content.stage
    where = f" that chose stage {stage.number}" if len(run.stages) > 1 else ""
    text = (
        f"Each mark is a class, placed by the features of the model{where}: classes that are "
        "alike are neighbours (t-SNE on cosine distances; how far apart groups lie means little). "
        "Point at a mark for its name"
    )
    text += " and picture." if len(atlas) else "; there are no pictures in this run's folder."
    if len(content.points) < content.total:
        text += (
            f" To stay readable the map shows {len(content.points)} of {content.total} classes, "
            "evenly taken."
        )
    if atlas.total > len(atlas):
        text += f" Pictures are kept for {LIMIT} of {atlas.total} classes, the chosen ones first."
    words = {"novel": "novel", "chosen": "chosen", "before": "base classes before"}
    if "before" in kinds and stage.number > 1:
        words["chosen"] = f"chosen in stage {stage.number}"
        words["before"] = "chosen in earlier stages"
    words["rest"] = "not chosen"
    legend = key(
        *(
            (kind, f"{text_} ({kinds.count(kind)})")
            for kind, text_ in words.items()
            if kind in kinds
        )
    )
    parts = [says(escaped(text)), legend, tag("div", id="map-tools")]
    parts.append(wide(charts.class_map(content, atlas)))
    if sum(one.number <= stage.number for one in run.stages) > 1:
        parts.append(tag("h3", "The same map, stage by stage"))
        parts.append(
            says(
                "Strong blue: classes that came in at the start of the stage. Light blue: those "
                "there were. Orange: novel classes."
            )
        )
        parts.append(charts.stage_maps(content, run.stages))
    return parts


_NEEDS_SIMILARITIES = (
    "This needs a selection made with known similarities; so far the classes of this run were "
    "chosen at random, as in the first stage of a cold start."
)


def _no_selection(run_has_stages: bool) -> list[str]:
    if run_has_stages:
        return absent(_NEEDS_SIMILARITIES)
    return absent(
        "There is no <code>selection-stage-1.json</code> in this folder; "
        "<code>fsl-basesel fit</code> and <code>Selection.save</code> write selections."
    )


def changes(last: Stage | None, served: Sequence[Served]) -> list[str]:
    """Similarity and Similarity Ratio of each novel class, before and after."""
    if last is None:
        return _no_selection(True)
    k = last.selection.hyperparameters["k"]
    before = "before" if not last.before else f"with the {len(last.before)} classes before"
    entries = [("after", "after this selection")]
    if any(row.ratio.before is not None for row in served):
        entries.insert(0, ("was", before))
    if any(row.ratio.random is not None for row in served):
        entries.append(
            ("random", f"random classes instead, mean of {RANDOM_DRAWS} choices of as many")
        )
    shown = min(len(served), COLUMNS)
    note = "" if shown == len(served) else f" Shown are {shown} of {len(served)}, evenly taken."
    return [
        says(
            f"Above, how similar each novel class is to its K = {k} nearest base classes: what the "
            "objective averages. Below, its Similarity Ratio: that figure over its mean similarity "
            "to all base classes. The ratio falls where classes close to many novel ones are "
            "added, since they raise the mean as well; it tells how much a class's neighbours "
            "stand out, not how near they are." + note
        ),
        key(*entries),
        wide(charts.changes(served, lambda row: row.nearest, f"similarity to {k} nearest", before)),
        wide(charts.changes(served, lambda row: row.ratio, "Similarity Ratio", before)),
        _served_table(served),
    ]


def _served_table(served: Sequence[Served]) -> str:
    def cell(value: float | None) -> str:
        return tag("td", "" if value is None else f"{value:.4f}", class_="n", data_v=value or 0)

    rows = [
        tag(
            "tr",
            tag("td", escaped(row.name)),
            cell(row.nearest.after),
            cell(row.ratio.before),
            cell(row.ratio.after),
        )
        for row in served[:2000]
    ]
    heads = ("novel class", "similarity to nearest", "ratio before", "ratio after")
    head = tag("tr", *(tag("th", h, class_="n" if i else None) for i, h in enumerate(heads)))
    note = "" if len(served) <= 2000 else f" (the first 2000 of {len(served)})"
    return tag(
        "details",
        tag("summary", f"The numbers as a table{note}"),
        tag("table", tag("thead", head), tag("tbody", *rows), class_="sortable"),
    )


def neighbours(last: Stage | None, served: Sequence[Served], atlas: Atlas) -> list[str]:
    """Each novel class with its nearest base classes, as pictures."""
    if last is None:
        return _no_selection(True)
    group: dict[tuple[bool, str], str] = {}
    for novel, classes in ((True, last.novel), (False, last.candidates)):
        if classes is not None and classes.groups is not None:
            pairs = zip(classes.names, classes.groups, strict=True)
            group.update({(novel, name): family for name, family in pairs})
    general = last.general
    ordered = sorted(served, key=lambda row: row.nearest.after or 0.0)
    ordered = [ordered[i] for i in thinned(len(ordered), CARDS)]
    pictured = any(atlas.where(row.name, not general) for row in ordered)
    cards = []
    for row in ordered:
        name = short(row.name, group.get((True, row.name), ""))
        inside = [tag("p", escaped(name), class_="name", title=row.name)]
        if pictured:
            pictures = [tag("span", atlas.picture(row.name, not general), "&nbsp;")]
            pictures.append(tag("span", "→", class_="arrow", aria_hidden="true"))
            pictures += [
                tag("span", atlas.picture(other, False), f"{similarity:.3f}")
                for other, similarity in row.neighbours
            ]
            inside.append(tag("div", *pictures, class_="row"))
        else:
            items = [
                tag(
                    "li", escaped(f"{short(other, group.get((False, other), ''))} {similarity:.3f}")
                )
                for other, similarity in row.neighbours
            ]
            inside.append(tag("ol", *items))
        cards.append(tag("li", *inside))
    k = last.selection.hyperparameters["k"]
    text = (
        f"Every novel class with the K = {k} base classes most similar to it and their "
        "similarities; the worst served come first."
    )
    if not pictured:
        text += " Pictures appear where the run's folder has <code>pictures.npz</code>, which the "
        text += "selection callbacks and <code>fsl_basesel.report.save_pictures</code> write."
    if len(ordered) < len(served):
        text += f" Shown are {len(ordered)} of {len(served)}, evenly taken."
    parts = [says(text), tag("ul", *cards[:CARDS_OPEN], class_="cards")]
    if len(cards) > CARDS_OPEN:
        more = tag("summary", f"The other {len(cards) - CARDS_OPEN}")
        parts.append(tag("details", more, tag("ul", *cards[CARDS_OPEN:], class_="cards")))
    return parts


def gains(run: Run) -> list[str]:
    """What each chosen class brought."""
    stages = [stage for stage in run.stages if stage.informed and stage.selection.indices]
    if not stages:
        return _no_selection(bool(run.stages))
    most = max(len(stage.selection.indices) for stage in stages)
    text = (
        "How much the objective h rose when each class was added to those chosen before it, and "
        "how much would be lost now without it: classes that back each other up lose little."
    )
    if len(stages) > 1:
        text += " Each stage has a scale of its own."
    if len(stages) < len(run.stages):
        text += " The random classes of the first stage have no gains."
    if most > charts.BARS:
        text += f" At most {charts.BARS} classes of a stage are shown, evenly taken."
    parts = [says(text), key(("bar", "gained when chosen"), ("loss", "lost without it"))]
    if len(stages) == 1:
        return [*parts, wide(charts.gains(stages[0], charts.WIDTH))]
    figures = []
    for stage in stages:
        title = f"Stage {stage.number}: {count(len(stage.selection.indices), 'class')}"
        figures.append(tag("figure", tag("h3", title), charts.gains(stage, charts.WIDTH / 2)))
    return [*parts, tag("div", *figures, class_="pair")]


def bounds(run: Run) -> list[str]:
    """How good each selection is, and provably could be."""
    stages = [stage for stage in run.stages if stage.informed]
    if not stages:
        return _no_selection(bool(run.stages))
    references: list[Reference | None] = [reference_of(stage) for stage in stages]
    randoms = [None if one is None else one.value for one in references]
    entries = [("after", "this selection"), ("bound", "proven upper bound on any choice")]
    if any(value is not None for value in randoms):
        entries.append(("was", f"random choice, mean of {RANDOM_DRAWS}"))
    text = "The objective h of each selection against a bound that no choice of classes can exceed."
    if len(stages) > 1:
        text += " Stages do not compare with each other: each has features of its own."
    return [says(text), key(*entries), wide(charts.bounds(stages, randoms))]


def accuracies(run: Run) -> list[str]:
    """What learners on the chosen classes reach."""
    if not run.protocols:
        return absent(
            "There are no accuracies in this folder; the callback <code>NovelEvaluation</code> "
            "writes them to <code>novel_&lt;protocol&gt;.csv</code>."
        )
    figures = []
    for protocol in run.protocols:
        rows = [
            tag(
                "tr",
                tag("td", str(row.stage), class_="n"),
                tag("td", str(row.base_classes), class_="n"),
                tag("td", escaped(charts.spaced(row.head))),
                tag("td", charts.percent(row.mean, row.half_width), class_="n"),
            )
            for row in protocol.rows
        ]
        heads = (("stage", "n"), ("base classes", "n"), ("head", None), ("accuracy", "n"))
        table = tag(
            "table",
            tag("thead", tag("tr", *(tag("th", name, class_=kind) for name, kind in heads))),
            tag("tbody", *rows),
        )
        figures.append(
            tag(
                "figure",
                tag("h3", escaped(f"{protocol.title}, {count(protocol.episodes, 'episode')}")),
                charts.accuracy(protocol),
                tag("details", tag("summary", "The numbers as a table"), table),
            )
        )
    return [
        says(
            "Mean accuracy of few-shot learners on the features of each stage's model, with "
            "95 % intervals over episodes."
        ),
        tag("div", *figures, class_="pair"),
    ]
