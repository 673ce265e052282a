"""A little SVG and HTML: escaped elements, scales, round ticks, axes."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def escaped(text: object) -> str:
    """Any text as HTML shows it; characters that no page may hold become a replacement sign.

    Example:
        >>> escaped("<b> & c")
        '&lt;b&gt; &amp; c'
    """
    return html.escape(_FORBIDDEN.sub("\ufffd", str(text)), quote=True)


def tag(name: str, *content: str, **attributes: object) -> str:
    """An element; `content` is markup, attribute values are escaped, None leaves one out.

    Underscores at the end of an attribute's name go, others become hyphens.

    Example:
        >>> tag("a", "x", class_="b", data_n=1, hidden=None)
        '<a class="b" data-n="1">x</a>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(content)
    if not inside and name in ("circle", "line", "path", "rect", "meta", "use", "polyline"):
        return f"<{name}{given}/>"
    return f"<{name}{given}>{inside}</{name}>"


def _plain(value: object) -> object:
    """Numbers with no more digits than a page can show."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


@dataclass(frozen=True)
class Scale:
    """From data to pixels: `low` is at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value lies."""
        width = self.high - self.low
        share = (value - self.low) / width if width else 0.5
        return self.start + share * (self.end - self.start)

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float, zero: bool = False) -> Scale:
        """A scale with room for all values, and for zero if asked."""
        known = [*values, *([0.0] if zero else [])]
        low, high = min(known, default=0.0), max(known, default=1.0)
        room = (high - low) * 0.06 or max(abs(high) * 0.06, 1e-3)
        below = low if zero and low == 0 else low - room
        above = high if zero and high == 0 else high + room
        return cls(below, above, start, end)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two ends.

    Example:
        >>> ticks(0, 1), ticks(0.97, 0.986)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.97, 0.975, 0.98, 0.985])
    """
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * unit for unit in (1, 2, 5, 10) if power * unit >= raw * 0.75)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(i * step, digits) + 0.0 for i in range(first, last + 1)]


def number(value: float) -> str:
    """A tick's number, without digits that say nothing.

    Example:
        >>> number(0.5), number(20.0), number(-0.25)
        ('0.5', '20', '−0.25')
    """
    return f"{value:.6g}".replace("-", "−")


def y_axis(scale: Scale, left: float, right: float, title: str = "", percent: bool = False) -> str:
    """Hairlines with numbers at their left, and a title above."""
    parts = []
    for value in ticks(min(scale.low, scale.high), max(scale.low, scale.high)):
        y = scale(value)
        label = number(100 * value) + " %" if percent else number(value)
        kind = "zero" if value == 0 else "grid"
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_=kind))
        parts.append(
            tag("text", escaped(label), x=left - 8, y=y + 4, class_="tick", text_anchor="end")
        )
    if title:
        top = min(scale.start, scale.end) - 12
        parts.append(tag("text", escaped(title), x=left - 8, y=top, class_="axis"))
    return "".join(parts)


def x_label(text: str, x: float, y: float, anchor: str = "middle", kind: str = "tick") -> str:
    """A text below the figure."""
    return tag("text", escaped(text), x=x, y=y, class_=kind, text_anchor=anchor)


def drawing(width: float, height: float, title: str, content: Sequence[str], **more: object) -> str:
    """A figure that fits its place and says to a screen reader what it shows."""
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=title,
        **more,
    )
