"""The page: one HTML file that needs nothing else, made from the folder of a run.

`page.html` is the template, `style.css` and the `*.js` files are put into it unchanged.
The page can choose again under other limits; "Save" writes them in the format of `docs/budgets.md`.
"""

from __future__ import annotations

import base64
from collections import Counter
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

import fsl_basesel
from fsl_basesel.controls import Control, doubts
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.report import content as contents
from fsl_basesel.report import figures
from fsl_basesel.report.atlas import Atlas
from fsl_basesel.report.content import content_of, count, printable, thinned
from fsl_basesel.report.paired import REFERENCE, points
from fsl_basesel.report.record import fits
from fsl_basesel.report.run import Run, Stage
from fsl_basesel.selection import Selection

if TYPE_CHECKING:
    from jinja2 import Template

CARDS, CARDS_OPEN = 200, 24
"""Novel classes shown with their neighbours, at most, and those shown at once."""
SCRIPTS = ("choose.js", "page.js", "decide.js")
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
    return _template("page.html").render(_shown(content_of(run))) + "\n"


def _template(name: str) -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,  # not markup
    )
    return environment.from_string(_file(name))


def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _shown(content: contents.Content) -> dict[str, Any]:
    """Numbers, charts and functions of the template."""
    run, last, served = content.run, content.run.last, content.served
    first = [name for stage in reversed(run.stages) for name in stage.selection.names]
    atlas = Atlas(run.pictures, first + [name for row in served for name, _ in row.neighbours])
    cards = thinned(sorted(served, key=lambda row: row.nearest.after or 0.0), CARDS)
    facts: dict[str, Any] = {}
    reasons: list[str] = []
    if last is not None:
        drawn, problem = content.controls[last.number], content.problems[last.number]
        facts = _deciding(last, problem, drawn, atlas)
        if problem is not None:
            reasons = doubts(problem, last.selection, drawn[0])
    numbers = {
        "similarity to nearest": [row.nearest.after for row in served],
        "ratio before": [row.ratio.before for row in served],
        "ratio after": [row.ratio.after for row in served],
    }
    return content._asdict() | {
        "svg": figures.svg,
        "points": points,
        "count": count,
        "gap_in_words": contents.gap_in_words,
        "comparison_title": contents.comparison_title,
        "last": last,
        "settings": {} if last is None else last.selection.hyperparameters,
        "atlas": atlas,
        "style": _file("style.css") + atlas.style(),
        "script": "".join(_file(name) for name in SCRIPTS),
        "deciding": facts,
        "doubts": reasons,
        "version": fsl_basesel.__version__,
        "parts": PARTS,
        "panels": figures.all_panels(content, atlas.where),
        "kinds": Counter(point.kind for point in content.map.points) if content.map else {},
        "draws": contents.RATIO_DRAWS,
        "numbers": {title: some for title, some in numbers.items() if set(some) != {None}},
        "most": figures.MOST,
        "cards": cards,
        "cards_open": CARDS_OPEN,
        "reference": REFERENCE,
    }


def _deciding(
    stage: Stage, problem: SelectionProblem | None, controls: list[Control], atlas: Atlas
) -> dict[str, Any]:
    """What `decide.js` reads: the selection of a stage, its problem, its controls."""
    selection = stage.selection
    facts: dict[str, Any] = {
        "value": selection.value,
        "bound": selection.upper_bound,
        "gap": selection.gap,
        "cost": None,
        "controls": [{"kind": one.kind, "value": one.mean, "words": one.words} for one in controls],
    }
    if problem is not None and fits(problem):
        facts |= _whole(stage, problem)
    else:
        novel = [row.name for row in selection.explanation.novel]
        number = {name: n for n, name in enumerate(novel)}
        chosen = selection.explanation.chosen
        facts |= {
            "names": selection.names,
            "novel": novel,
            "chosen": list(range(len(selection.names))),
            "gains": [row.gain for row in chosen],
            "serves": [[number[name] for name in row.serves] for row in chosen],
        }
    pictures = [atlas.where(name, False) for name in facts["names"]]
    return facts | {"pictures": pictures, "pictured": any(pictures)}


def _whole(stage: Stage, problem: SelectionProblem) -> dict[str, Any]:
    """The problem itself, its similarities in single precision."""
    matrix = np.ascontiguousarray(np.asarray(problem.similarity).T, "<f4")
    single = SelectionProblem(matrix.T, m=problem.m, k=problem.k, weights=problem.weights)
    groups, novel_groups = stage.groups
    same = ("names", "selected", "m", "k", "lam", "mu", "floor", "budget", "exclude", "include")
    return {name: getattr(problem, name) for name in (*same, "at_most", "at_least")} | {
        "novel": problem.novel_names,
        "similarity": base64.b64encode(matrix.tobytes()).decode("ascii"),
        "means": single.column_means.tolist() if problem.lam else None,
        "weights": None if problem.weights is None else problem.row_weights.tolist(),
        "cost": None if problem.cost is None else problem.cost.tolist(),
        "groups": groups,
        "novel_groups": groups if stage.general else novel_groups,
        "chosen": stage.selection.indices,
    }
