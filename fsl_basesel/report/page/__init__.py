"""The page: one HTML file that needs nothing else, from what a run's folder holds.

`page.html` is the template, `style.css` and the `*.js` files are put into it as they are.

The page can choose again under other limits. "Save" writes `limits.json`, which
`fsl-basesel select --limits limits.json` takes: an object with

    format      "fsl-basesel limits 1"
    m           how many classes to choose
    budget      what they may cost together
    cost        what each class costs, by name: {"cat": 3, "dog": 1.5}
    exclude     names of classes that cannot be had
    include     names of classes that must be in
    groups      the group of each class, by name: {"cat": "animal", "car": "vehicle"}
    at_most     most classes of a group: one number for all groups, or by name of the group
    at_least    fewest classes of a group, likewise
    classes     names of the classes that the page chose, in order

Every key but `format` may be missing: then nothing is said about it. All classes are named, not
numbered. `classes` is the page's answer, not a limit: a rerun starts from it, so that its choice is
never worse, and proves how good it is.
"""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import count as counter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fsl_basesel.controls import doubts
from fsl_basesel.report import content as contents
from fsl_basesel.report import figures
from fsl_basesel.report.atlas import Atlas
from fsl_basesel.report.content import Content, content_of, count, printable, short, thinned
from fsl_basesel.report.page.deciding import deciding
from fsl_basesel.report.paired import REFERENCE, points
from fsl_basesel.report.run import Run, Stage
from fsl_basesel.report.svg import svg
from fsl_basesel.selection import Selection, library_version

if TYPE_CHECKING:
    from jinja2 import Template

CARDS, CARDS_OPEN = 200, 24
"""Novel classes shown with their neighbours, at most, and those shown at once."""
SCRIPTS = ("choose.js", "decide.js", "page.js")
PARTS = {
    "chosen": "Chosen classes",
    "classes": "The class map",
    "ratio": "What each novel class got",
    "neighbours": "Nearest base classes",
    "gains": "Gains by order of choice",
    "bound": "Value against the certified bound",
    "accuracy": "Accuracy on the novel classes",
    "methods": "Methods compared",
    "configuration": "Configuration",
}


def html_table(selection: Selection) -> str:
    """The chosen classes as an HTML table, for notebooks."""
    words = contents.gap_in_words(selection.gap)
    return _template("table.html").render(selection=selection, words=words)


def html_page(run: Run) -> str:
    """The report of a run as one HTML page."""
    content = content_of(run)
    names = (f"chart{i}" for i in counter())
    functions = {
        "svg": lambda panel: Markup(svg(panel, next(names))),
        "points": points,
        "count": count,
        "spaced": contents.spaced,
        "gap_in_words": contents.gap_in_words,
        "comparison_title": contents.comparison_title,
    }
    template = _template("page.html")
    return template.render(**functions, **_words(content), **_shown(content)) + "\n"


def _template(name: str) -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_finalize,
    )
    return environment.from_string(_file(name))


def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _finalize(value: object) -> object:
    """What the template prints: text without control characters."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)


def _shown(content: Content) -> dict[str, Any]:
    """Numbers and charts."""
    from jinja2.utils import htmlsafe_json_dumps

    run, last, served = content.run, content.last, content.served
    first = [name for stage in reversed(run.stages) for name in stage.selection.names]
    atlas = Atlas(run.pictures, first + [name for row in served for name, _ in row.neighbours])
    cards = sorted(served, key=lambda row: row.nearest.after or 0.0)
    cards = [cards[i] for i in thinned(len(cards), CARDS)]
    informed = content.informed
    facts: dict[str, Any] = {}
    reasons: list[str] = []
    if last is not None:
        reference, problem = content.references[last.number], content.problems[last.number]
        control = None if reference is None else reference.control
        facts = deciding(last, problem, control, atlas)
        if problem is not None and control is not None:
            reasons = doubts(problem, last.selection, control)
    return {
        "run": run,
        "atlas": atlas,
        "style": Markup(_file("style.css") + atlas.style()),
        "script": Markup("".join(_file(name) for name in SCRIPTS)),
        "deciding": facts,
        "doubts": reasons,
        "deciding_json": htmlsafe_json_dumps(facts, dumps=_compact),
        "earlier": [] if last is None else _earlier(last),
        "version": library_version(),
        "parts": PARTS,
        "map": content.map,
        "map_panel": content.map and figures.map_panel(content.map, atlas.where),
        "stage_panels": figures.stage_panels(content.map, run.stages) if content.map else [],
        "last": last,
        "settings": {} if last is None else last.selection.hyperparameters,
        "served": served,
        "change_panels": [] if last is None else figures.change_panels(content),
        "random_draws": contents.RANDOM_DRAWS,
        "most": figures.MOST,
        "cards": cards,
        "cards_open": CARDS_OPEN,
        "pictured": any(
            atlas.where(row.name, last is not None and not last.general) for row in cards
        ),
        "short": _shorter(content),
        "informed": informed,
        "gain_panels": figures.gain_panels(informed),
        "most_gains": max((len(stage.selection.indices) for stage in informed), default=0),
        "references": content.references,
        "bound_panel": figures.bound_panel(informed, content.references) if informed else None,
        "accuracy_panels": [figures.accuracy_panel(protocol) for protocol in run.protocols],
        "comparisons": content.comparisons,
        "method_panels": [figures.method_panel(lines) for lines in content.comparisons],
        "reference": REFERENCE,
    }


def _compact(value: Any, **options: Any) -> str:
    return printable(json.dumps(value, separators=(",", ":"), ensure_ascii=False, **options))


def _earlier(last: Stage) -> list[str]:
    """Names of the classes that were there before the last selection, where they are known."""
    names = last.candidates.names if last.candidates is not None else ()
    return [names[u] for u in last.before] if names else []


def _shorter(content: Content) -> Any:
    """A function from (name, whether novel) to the name without its family."""
    family: dict[tuple[bool, str], str] = {}
    last = content.last
    both = () if last is None else ((True, last.novel), (False, last.candidates))
    for novel, classes in both:
        if classes is not None and classes.groups is not None:
            pairs = zip(classes.names, classes.groups, strict=True)
            family.update({(novel, name): group for name, group in pairs})
    return lambda name, novel: short(name, family.get((novel, name), ""))


def _words(content: Content) -> dict[str, Any]:
    """The header: sentences and figures that tell the most."""
    run, last = content.run, content.last
    facts: list[tuple[str, str]] = []
    sentences = []
    settings: dict[str, Any] = {}
    if run.stages:
        stage = run.stages[-1]
        chosen = len(stage.before) + len(stage.selection.indices)
        candidates = stage.selection.hyperparameters.get("n_candidates", 0)
        facts = [(str(chosen), "base classes"), (str(candidates), "candidates")]
        target = "tasks not known yet"
        if last is not None and last.general:
            target = "no particular task"
        elif last is not None:
            novel = last.selection.hyperparameters.get("n_novel", 0)
            target = count(novel, "novel class")
            facts.append((str(novel), "novel classes"))
        stages = f" in {count(len(run.stages), 'stage')}" if len(run.stages) > 1 else ""
        sentences.append(
            f"{chosen} of {count(candidates, 'candidate class')} are base classes now, chosen"
            f"{stages} for {target}."
        )
        selection = (last or stage).selection
        settings = {
            name: value
            for name, value in selection.hyperparameters.items()
            if name != "selected" and value is not None
        } | {"method": selection.method, "seed": selection.seed}
    if last is not None:
        selection = last.selection
        about = selection.hyperparameters
        facts.append((f"K = {about['k']}", f"λ = {about['lam']:g}, by {selection.method}"))
        if selection.gap is not None:
            proof = f"proves that no choice is better by more than {100 * selection.gap:.2g} %"
            certain = "proves it optimal" if selection.gap == 0 else proof
            sentences.append(f"The certificate of the last choice {certain}.")
    for protocol in run.protocols[:1]:
        end = max(row.stage for row in protocol.rows)
        rows = [row for row in protocol.rows if row.stage == end]
        best = max(rows, key=lambda row: row.accuracy.mean)
        figure = f"{points(best.accuracy, digits=1)} %"
        title = f"{protocol.title}, {contents.spaced(best.head)}"
        facts.append((f"{100 * best.accuracy.mean:.1f} %", title))
        sentences.append(f"A learner on these classes reaches {figure} in {protocol.title} tasks.")
    key = []
    if content.map is not None:
        kinds = [point.kind for point in content.map.points]
        later = content.map.stage.number > 1 and "before" in kinds
        labels = {
            "novel": "novel",
            "chosen": f"chosen in stage {content.map.stage.number}" if later else "chosen",
            "before": "chosen in earlier stages" if later else "base classes before",
            "rest": "not chosen",
        }
        key = [
            (kind, f"{label} ({kinds.count(kind)})")
            for kind, label in labels.items()
            if kind in kinds
        ]
    return {"sentences": sentences, "facts": facts, "last_settings": settings, "map_key": key}
