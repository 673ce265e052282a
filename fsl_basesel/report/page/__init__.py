"""The page: one HTML file that needs nothing else, from what a run's folder holds.

`page.html` is the template, `style.css` and the `*.js` files are put into it as they are.
The page can choose again under other limits; "Save" writes them as `docs/budgets.md` says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from itertools import count as counter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

import fsl_basesel
from fsl_basesel.controls import doubts
from fsl_basesel.report import content as contents
from fsl_basesel.report import figures
from fsl_basesel.report.atlas import Atlas
from fsl_basesel.report.content import Content, content_of, count, printable, short, thinned
from fsl_basesel.report.page.deciding import deciding
from fsl_basesel.report.paired import REFERENCE, points
from fsl_basesel.report.run import Run, Stage
from fsl_basesel.report.svg import svg
from fsl_basesel.selection import Selection

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
    names = (f"chart{i}" for i in counter())
    functions = {
        "svg": lambda panel: Markup(svg(panel, next(names))),
        "points": points,
        "count": count,
        "spaced": contents.spaced,
        "gap_in_words": contents.gap_in_words,
        "comparison_title": contents.comparison_title,
    }
    return _template("page.html").render(**functions, **_shown(content_of(run))) + "\n"


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

    run, served = content.run, content.served
    last = run.last
    first = [name for stage in reversed(run.stages) for name in stage.selection.names]
    atlas = Atlas(run.pictures, first + [name for row in served for name, _ in row.neighbours])
    cards = thinned(sorted(served, key=lambda row: row.nearest.after or 0.0), CARDS)
    facts: dict[str, Any] = {}
    reasons: list[str] = []
    if last is not None:
        reference, problem = content.references[last.number], content.problems[last.number]
        control = None if reference is None else reference.control
        facts = deciding(last, problem, control, atlas)
        if problem is not None and control is not None:
            reasons = doubts(problem, last.selection, control)
    kinds = [] if content.map is None else [point.kind for point in content.map.points]
    return {
        "run": run,
        "last": last,
        "settings": {} if last is None else last.selection.hyperparameters,
        "atlas": atlas,
        "style": Markup(_file("style.css") + atlas.style()),
        "script": Markup("".join(_file(name) for name in SCRIPTS)),
        "deciding": facts,
        "doubts": reasons,
        "deciding_json": htmlsafe_json_dumps(facts, dumps=_compact),
        "earlier": [] if last is None else _earlier(last),
        "version": fsl_basesel.__version__,
        "parts": PARTS,
        "panels": figures.all_panels(content, atlas.where),
        "map": content.map,
        "kinds": {kind: kinds.count(kind) for kind in contents.KINDS if kind in kinds},
        "served": served,
        "draws": (contents.RANDOM_DRAWS, contents.RATIO_DRAWS),
        "most": figures.MOST,
        "cards": cards,
        "cards_open": CARDS_OPEN,
        "pictured": any(
            atlas.where(row.name, last is not None and not last.general) for row in cards
        ),
        "short": _shorter(last),
        "references": content.references,
        "comparisons": content.comparisons,
        "reference": REFERENCE,
    }


def _compact(value: Any, **options: Any) -> str:
    return printable(json.dumps(value, separators=(",", ":"), ensure_ascii=False, **options))


def _earlier(last: Stage) -> list[str]:
    """Names of the classes that were there before the last selection, where they are known."""
    names = last.candidates.names if last.candidates is not None else ()
    return [names[u] for u in last.before] if names else []


def _shorter(last: Stage | None) -> Callable[[str, bool], str]:
    """A function from (name, whether novel) to the name without its family."""
    family: dict[tuple[bool, str], str] = {}
    both = () if last is None else ((True, last.novel), (False, last.candidates))
    for novel, classes in both:
        if classes is not None and classes.groups is not None:
            pairs = zip(classes.names, classes.groups, strict=True)
            family.update({(novel, name): group for name, group in pairs})
    return lambda name, novel: short(name, family.get((novel, name), ""))
