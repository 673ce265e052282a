"""Pieces that all parts of the page are made of: captions, keys, notes on what is absent."""

from __future__ import annotations

from fsl_basesel.report.svg import escaped, tag

GLYPH = {
    "novel": tag("path", d="M8 2l6 11H2z", class_="p novel"),
    "chosen": tag("circle", cx=8, cy=8, r=6, class_="p chosen"),
    "before": tag("circle", cx=8, cy=8, r=6, class_="p before"),
    "rest": tag("circle", cx=8, cy=8, r=4, class_="p rest"),
    "was": tag("circle", cx=8, cy=8, r=5, class_="was"),
    "after": tag("circle", cx=8, cy=8, r=6, class_="after"),
    "random": tag("line", x1=2, x2=14, y1=8, y2=8, class_="random"),
    "bound": tag("line", x1=8, x2=8, y1=1, y2=15, class_="bound"),
    "bar": tag("rect", x=3, y=2, width=10, height=13, class_="bar"),
    "loss": tag("line", x1=2, x2=14, y1=8, y2=8, class_="loss"),
}


def says(text: str) -> str:
    """A caption: markup is the caller's."""
    return tag("p", text, class_="says")


def absent(text: str) -> list[str]:
    """What a part says that has nothing to show: markup is the caller's."""
    return [tag("p", text, class_="absent")]


def key(*entries: tuple[str, str]) -> str:
    """What the marks of a figure mean."""
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag("svg", GLYPH[mark], viewBox="0 0 16 16", aria_hidden="true"),
                escaped(text),
            )
            for mark, text in entries
        ),
        class_="key",
    )


def wide(chart: str) -> str:
    """A figure as wide as the page; narrow screens scroll it."""
    return tag("figure", chart, class_="wide")


def count(number: int, word: str) -> str:
    """A number of things.

    Example:
        >>> count(1, "class"), count(2000, "class")
        ('1 class', '2 000 classes')
    """
    ending = "" if number == 1 else "es" if word.endswith("s") else "s"
    return f"{number:,} {word}{ending}".replace(",", " ")
