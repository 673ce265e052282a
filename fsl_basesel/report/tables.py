"""The parts of the page that are tables: methods compared, and the configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fsl_basesel.report import charts
from fsl_basesel.report.paired import REFERENCE, Line
from fsl_basesel.report.parts import absent, says
from fsl_basesel.report.run import Run
from fsl_basesel.report.svg import Scale, escaped, tag


def methods(run: Run) -> list[str]:
    """A table for each comparison, with differences to the reference."""
    if not run.methods:
        return absent(
            "There is no <code>results.csv</code> in this folder; "
            "<code>fsl-basesel reproduce</code> and <code>fsl-basesel demo</code> write one row "
            "for each method, seed and head."
        )
    scale = charts.difference_scale(run.methods)
    groups: dict[str, list[Line]] = {}
    for line in run.methods:
        groups.setdefault(json.dumps(line.key), []).append(line)
    tables = [_method_table(key, lines, scale) for key, lines in groups.items()]
    return [
        says(
            f"Accuracy of each method and its difference to {REFERENCE} on the same seeds, in "
            "percentage points, with 95 % intervals (Student's t, paired). A filled mark is a "
            "difference whose interval excludes zero."
        ),
        tag("div", id="method-tools"),
        tag("div", *tables, class_="wide"),
    ]


def _method_table(key: str, lines: Sequence[Line], scale: Scale) -> str:
    ends = " to ".join(f"{100 * end:+.1f}".replace("-", "−") for end in (scale.low, scale.high))
    heads = ("method", "seeds", "accuracy", f"minus {REFERENCE}", f"95 % interval, {ends}")
    rows = []
    for line in lines:
        found = line.difference
        told = "" if found is None else charts.points(found.mean, found.half_width)
        rows.append(
            tag(
                "tr",
                tag("td", escaped(line.label)),
                tag("td", str(line.accuracy.n), class_="n", data_v=line.accuracy.n),
                tag(
                    "td",
                    charts.percent(line.accuracy.mean, line.accuracy.half_width),
                    class_="n",
                    data_v=repr(line.accuracy.mean),
                ),
                tag("td", told, class_="n", data_v=repr(found.mean) if found else 0),
                tag("td", charts.difference(line, scale), data_v=repr(found.mean) if found else 0),
                class_="reference" if line.label == REFERENCE else None,
            )
        )
    head = [tag("th", h, class_="n" if 0 < i < 4 else None) for i, h in enumerate(heads)]
    return tag(
        "table",
        tag("caption", escaped(comparison_title(lines[0]))),
        tag("thead", tag("tr", *head)),
        tag("tbody", *rows),
        class_="methods sortable",
        data_key=key,
    )


def comparison_title(line: Line) -> str:
    """What the methods of a table have in common, in words."""
    key = line.key
    known = [str(key[name]) for name in ("experiment", "domain", "setting") if key.get(name)]
    words = list(dict.fromkeys(known))  # an experiment may be called like its setting
    if key.get("m") is not None:
        words.append(f"m = {key['m']}")
    if key.get("head"):
        words.append(charts.spaced(str(key["head"])))
    if key.get("shots") is not None:
        words.append(f"{key['shots']}-shot")
    return " · ".join(words) or "all rows"


def configuration(run: Run) -> list[str]:
    """The settings of the last selection and of the run."""
    parts = []
    if run.stages:
        selection = (run.last or run.stages[-1]).selection
        settings = {
            name: value
            for name, value in selection.hyperparameters.items()
            if name != "selected" and value is not None
        }
        settings |= {"method": selection.method, "seed": selection.seed}
        items = ", ".join(f"{name} = {value}" for name, value in settings.items())
        parts.append(says(escaped(f"The last selection: {items}.")))
    if run.configuration is None:
        return parts + absent(
            "There is no <code>settings.yaml</code> or <code>metrics/version_i/config.yaml</code> "
            "in this folder; <code>fsl-basesel fit</code> writes one at every start."
        )
    name, text = run.configuration
    return [*parts, says(tag("code", escaped(name))), tag("pre", tag("code", escaped(text)))]
