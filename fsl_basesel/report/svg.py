"""A chart of matplotlib as an element of the page: titles, the page's colours and font."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

from fsl_basesel.report.content import printable
from fsl_basesel.report.figures import (
    COLOUR,
    GRID,
    INK,
    PAPER,
    SOFT,
    STYLE,
    Marks,
    Panel,
    new_figure,
)

VARIABLES = {colour: f"var(--{kind})" for kind, colour in COLOUR.items()} | {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    GRID: "var(--line)",
    PAPER: "var(--panel)",
}
"""What the page puts in place of each colour, so that light and dark both work."""

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"


def svg(panel: Panel, name: str) -> str:
    """A panel as an element of the page.

    Args:
        panel: What to draw.
        name: Begins the identifiers inside it; no two charts of a page have the same.
    """
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context(STYLE | {"svg.fonttype": "none"}):
        figure, (axes,) = new_figure(panel.width, panel.height)
        named = panel.draw(axes)
        for i, marks in enumerate(named):
            marks.artist.set_gid(f"marks-{i}")
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    root = ElementTree.fromstring(text.getvalue())
    groups = {element.get("id"): element for element in root.iter(f"{_SVG}g")}
    for i, marks in enumerate(named):
        _name_marks(groups[f"marks-{i}"], marks)
    _for_page(root, name)
    root.attrib.clear()
    width, height = f"{panel.width:g}", f"{panel.height:g}"
    root.attrib.update(width=width, height=height, viewBox=f"0 0 {width} {height}", role="img")
    root.set("class", "bare" if panel.bare else "chart")
    root.set("aria-label", printable(panel.title))
    ElementTree.register_namespace("", _SVG[1:-1])
    return ElementTree.tostring(root, encoding="unicode")


def _name_marks(group: ElementTree.Element, marks: Marks) -> None:
    """Give each mark its title and data, or make dots of all."""
    hidden = {id(path) for defs in group.iter(f"{_SVG}defs") for path in defs}
    drawn = [
        one
        for one in group.iter()
        if one.tag in (f"{_SVG}use", f"{_SVG}path") and id(one) not in hidden
    ]
    if marks.dots and all(one.get("x") for one in drawn):  # a few are drawn as paths anyway
        style = drawn[0].get("style", "").partition(";")[0].replace("fill", "stroke")
        places = [f"M{one.get('x')} {one.get('y')}h0" for one in drawn]
        group[:] = []
        options = {"stroke-width": f"{marks.dots:g}", "stroke-linecap": "round", "style": style}
        ElementTree.SubElement(group, f"{_SVG}path", {"d": "".join(places), **options})
    if not marks.titles:
        return
    shared = {one.get("style", "") for one in drawn}
    for one, title in zip(drawn, marks.titles, strict=True):
        one.set("class", "mark")
        ElementTree.SubElement(one, f"{_SVG}title").text = printable(title)
        if len(shared) == 1:
            del one.attrib["style"]
    if len(shared) == 1:
        group.set("style", shared.pop())
    for one, data in zip(drawn, marks.data, strict=False):
        known = {key: value for key, value in data.items() if value not in (None, "")}
        one.attrib.update({f"data-{key}": str(value) for key, value in known.items()})


def _for_page(element: ElementTree.Element, name: str) -> None:
    """Without what one page cannot hold twice or need not hold: identifiers, fonts, digits."""
    for child in list(element):
        if child.tag in (f"{_SVG}metadata", f"{_SVG}style", f"{_SVG}clipPath"):
            element.remove(child)
            continue
        if element.tag == f"{_SVG}defs":
            child.attrib.pop("style", None)  # every use of it has its own
            child.set("id", f"{name}-{child.get('id')}")
        elif child.tag != f"{_SVG}defs":
            child.attrib.pop("id", None)
        _for_page(child, name)
        if child.tag == f"{_SVG}defs" and not len(child):
            element.remove(child)
    attributes = element.attrib
    attributes.pop("clip-path", None)
    if _HREF in attributes:
        attributes["href"] = f"#{name}-{attributes.pop(_HREF)[1:]}"
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    for key in ("d", "x", "y", "transform"):
        if key in attributes:
            number = re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.4g}", attributes[key])
            attributes[key] = re.sub(r"\s*([A-Za-z])\s*", r"\1", number).strip()
    if "style" in attributes:
        style = re.sub(r"font: (\S+) [^;]*", r"font-size: \1", attributes["style"])
        style = re.sub(r"font-family: [^;]*;? ?", "", style)
        attributes["style"] = re.sub(
            "#[0-9a-f]{6}", lambda found: VARIABLES.get(found[0], found[0]), style
        )
    for text in ("text", "tail"):
        if not (getattr(element, text) or "").strip():
            setattr(element, text, None)
