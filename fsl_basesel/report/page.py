"""The page: one HTML file that needs nothing else, from what a run's folder holds."""

from __future__ import annotations

from importlib.resources import files

from fsl_basesel.report import charts, sections, tables
from fsl_basesel.report.atlas import Atlas
from fsl_basesel.report.content import map_of, reference_of, served_by
from fsl_basesel.report.parts import count
from fsl_basesel.report.run import Run
from fsl_basesel.report.svg import escaped, tag
from fsl_basesel.selection import library_version


def html_page(run: Run) -> str:
    """The report of a run as one HTML page."""
    last = run.last
    reference = None if last is None else reference_of(last)
    served = [] if last is None else served_by(last, reference)
    content = map_of(run)
    first = [name for stage in run.stages for name in stage.selection.names]
    atlas = Atlas(run.pictures, first + [name for row in served for name, _ in row.neighbours])
    shown = [
        ("classes", "The class map", sections.the_map(run, content, atlas)),
        ("ratio", "What each novel class got", sections.changes(last, served)),
        ("neighbours", "Nearest base classes", sections.neighbours(last, served, atlas)),
        ("gains", "Gains by order of choice", sections.gains(run)),
        ("bound", "Value against the certified bound", sections.bounds(run)),
        ("accuracy", "Accuracy on the novel classes", sections.accuracies(run)),
        ("methods", "Methods compared", tables.methods(run)),
        ("configuration", "Configuration", tables.configuration(run)),
    ]
    links = [tag("a", escaped(title), href=f"#{name}") for name, title, _ in shown]
    body = [
        tag("header", *_header(run), tag("nav", *links, aria_label="Parts of this page")),
        *(
            tag(
                "section",
                tag("h2", escaped(title)),
                *parts,
                id=name,
            )
            for name, title, parts in shown
        ),
        tag(
            "footer",
            escaped(f"Made by fsl-basesel {library_version()} from the folder {run.name}."),
        ),
    ]
    style = _file("style.css") + atlas.style()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(run.name)} · base class selection</title>\n<style>\n{style}\n</style>\n"
        "</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + f"\n</main>\n<script>\n{_file('page.js')}\n</script>\n</body>\n</html>\n"
    )


def _file(name: str) -> str:
    return files("fsl_basesel.report").joinpath(name).read_text(encoding="utf-8")


def _header(run: Run) -> list[str]:
    parts = [tag("p", "Base class selection", class_="kicker"), tag("h1", escaped(run.name))]
    facts: list[tuple[str, str]] = []
    sentences = []
    last = run.last
    if run.stages:
        settings = run.stages[-1].selection.hyperparameters
        chosen = len(run.stages[-1].before) + len(run.stages[-1].selection.indices)
        general = last is not None and last.general
        candidates = settings.get("n_candidates", 0)
        stages = f" in {count(len(run.stages), 'stage')}" if len(run.stages) > 1 else ""
        target = "no particular task" if general else "tasks not known yet"
        if last is not None and not general:
            novel = last.selection.hyperparameters.get("n_novel", 0)
            target = count(novel, "novel class")
            facts.append((str(novel), "novel classes"))
        facts = [(str(chosen), "base classes"), (str(candidates), "candidates"), *facts]
        sentences.append(
            f"{chosen} of {count(candidates, 'candidate class')} are base classes now, chosen"
            f"{stages} for {target}."
        )
    if last is not None:
        selection = last.selection
        settings = selection.hyperparameters
        facts.append((f"K = {settings['k']}", f"λ = {settings['lam']:g}, by {selection.method}"))
        if selection.gap is not None:
            certain = (
                "proves it optimal"
                if selection.gap == 0
                else (f"proves that no choice is better by more than {100 * selection.gap:.2g} %")
            )
            sentences.append(f"The certificate of the last choice {certain}.")
    for protocol in run.protocols[:1]:
        end = max(row.stage for row in protocol.rows)
        best = max((row for row in protocol.rows if row.stage == end), key=lambda row: row.mean)
        figure = charts.percent(best.mean, best.half_width)
        facts.append((f"{100 * best.mean:.1f} %", f"{protocol.title}, {charts.spaced(best.head)}"))
        sentences.append(f"A learner on these classes reaches {figure} in {protocol.title} tasks.")
    if sentences:
        parts.append(tag("p", escaped(" ".join(sentences)), class_="lead"))
    if facts:
        items = [tag("li", tag("b", escaped(a)), tag("span", escaped(b))) for a, b in facts]
        parts.append(tag("ul", *items, class_="facts"))
    return parts
