"""Figures 1 to 3 of the paper for a study, sized for the columns of a paper, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fsl_basesel.report.figures import STYLE, new_figure, save
from fsl_basesel.study.core import ClassRegression, Study
from fsl_basesel.study.profile import Interval, ProfileRow
from fsl_basesel.study.suggestion import Suggestion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, RED, GREEN, GREY = "#2166ac", "#b2182b", "#1b7837", "#8c8c8c"  # told apart in grey as well
LOOK: Any = STYLE | {
    "font.size": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.grid": False,
    "axes.titlelocation": "center",
    "text.parse_math": True,
    "lines.markersize": 3.5,
}


def write_figures(study: Study, suggestion: Suggestion, folder: Path) -> list[Path]:
    """Draw and write all figures; no global setting of matplotlib is touched."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with rc_context(LOOK):
        figures = {
            "ratio-against-k": ratio_figure(suggestion),
            "sorted-slopes": slopes_figure(study, snapshots(suggestion)),
            "r2-against-k": r2_figure(suggestion),
        }
        for name, figure in figures.items():
            written += save(figure, folder / name, dpi=300)
    return written


def snapshots(suggestion: Suggestion) -> list[int]:
    """The two K of the figure of slopes: the paper's 3 and 10, or the suggested and the last one.

    One only where the study looked at one only.
    """
    known = [row.k for row in suggestion.profile]
    if 3 in known and 10 in known:
        return [3, 10]
    return sorted({suggestion.k, known[-1] if suggestion.k != known[-1] else known[0]})


def ratio_figure(suggestion: Suggestion) -> Figure:
    """Figure 1: beta2 / beta1 against K."""
    figure, (panel,) = new_figure(241, 180)
    rows = suggestion.profile
    _line(panel, rows, [row.ratio for row in rows], BLUE, "o-", "means of single classes")
    _band(panel, rows, [row.ratio_interval for row in rows], BLUE)
    pooled = [-row.lam for row in rows]
    _line(panel, rows, pooled, RED, "s--", r"pooled, $-\lambda$")
    if any(np.isnan(row.ratio_interval[0]) for row in rows):
        panel.plot([], [], " ", label=r"no band: $\bar\beta_1$ may be 0")
    panel.axhline(0, color="black", linewidth=0.6)
    _k_axis(panel, rows, suggestion.k)
    panel.set_ylabel(r"$\bar\beta_2 \,/\, \bar\beta_1$")
    panel.legend(loc="best")
    return figure


def r2_figure(suggestion: Suggestion) -> Figure:
    """Figure 3: R^2 against K, beside chance and what testing lets one see."""
    figure, (panel,) = new_figure(241, 180)
    rows = suggestion.profile
    _line(panel, rows, [row.r2 for row in rows], BLUE, "o-", "mean of single classes")
    _line(panel, rows, [row.r2_left_out for row in rows], BLUE, "o:", "the same, left-out sets")
    _line(panel, rows, [row.pooled_r2 for row in rows], RED, "s--", "pooled, left-out sets")
    chance = [(row.r2_chance, row.r2_chance_high) for row in rows]
    _line(panel, rows, [low for low, _ in chance], GREY, "-", "single classes, chance")
    _band(panel, rows, chance, GREY)
    if suggestion.signal_share:
        panel.axhline(
            suggestion.signal_share, color=GREEN, linestyle="-.", linewidth=0.9,
            label="not noise of testing",
        )  # fmt: skip
    panel.axhline(0, color="black", linewidth=0.6)
    _k_axis(panel, rows, suggestion.k)
    panel.set_ylabel(r"$R^2$")
    figure.legend(loc="outside upper center", ncols=2, handlelength=2.2, columnspacing=1.2)
    return figure


def slopes_figure(study: Study, ks: Sequence[int]) -> Figure:
    """Figure 2: the slopes of every novel class in rising order with 95 % intervals."""
    figure, places = new_figure(497, 151 * len(ks), len(ks), 2, sharey="col")
    panels = np.reshape(places, (len(ks), 2))
    for line, k in zip(panels, ks, strict=True):
        rows = study.regressions(k)
        for panel, which in zip(line, (1, 2), strict=True):
            _slopes(panel, rows, which)
            panel.set_title(f"$K = {k}$:  {panel.get_title()}")
    for panel in panels[-1]:
        panel.set_xlabel("novel classes in rising order")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=len(handles))
    return figure


def _slopes(panel: Axes, rows: Sequence[ClassRegression], which: int) -> None:
    pairs = [
        (row.beta1, row.beta1_interval) if which == 1 else (row.beta2, row.beta2_interval)
        for row in rows
    ]
    pairs = sorted((pair for pair in pairs if np.isfinite(pair[0])), key=lambda pair: pair[0])
    panel.axhline(0, color="black", linewidth=0.6)
    panel.set_ylabel(rf"$\beta_{which}$")
    if not pairs:
        panel.set_title("no regression")
        return
    at = np.arange(1, len(pairs) + 1)
    beta = np.array([value for value, _ in pairs])
    low, high = np.array([ends for _, ends in pairs]).T
    sure = (low > 0) | (high < 0)
    size = max(1.0, min(3.0, 220 / len(pairs)))
    for kept, colour, label in ((~sure, GREY, "covers 0"), (sure, RED, "does not cover 0")):
        panel.vlines(
            at[kept], low[kept], high[kept], color=colour, alpha=0.7, linewidth=0.45 * size,
            label=f"95 % interval {label}",
        )  # fmt: skip
    panel.plot(at, beta, "o", color=BLUE, markersize=size, markeredgewidth=0, label="slope")
    panel.set_xlim(0, len(pairs) + 1)
    panel.set_title(
        rf"$\bar\beta_{which} = {beta.mean():.2f}$,  {np.mean(beta > 0):.0%} above 0".replace(
            "%", " %"
        )
    )


def _line(
    panel: Axes,
    rows: Sequence[ProfileRow],
    values: Sequence[float],
    colour: str,
    style: str,
    label: str,
) -> None:
    inside = "white" if style[1:] in ("--", ":") else colour
    ks = [row.k for row in rows]
    panel.plot(ks, values, style, color=colour, label=label, markerfacecolor=inside)


def _band(
    panel: Axes, rows: Sequence[ProfileRow], intervals: Sequence[Interval], colour: str
) -> None:
    low, high = np.array(intervals).T
    panel.fill_between([row.k for row in rows], low, high, color=colour, alpha=0.18, linewidth=0)


def _k_axis(panel: Axes, rows: Sequence[ProfileRow], suggested: int) -> None:
    """K on a logarithmic axis, with a mark at the suggested one."""
    ks = [row.k for row in rows]
    panel.set_xscale("log")
    panel.set_xticks(ks, [str(k) for k in ks])
    panel.set_xticks([], minor=True)
    panel.axvline(suggested, color=GREY, linewidth=0.6, linestyle=":", zorder=0)
    panel.set_xlabel(f"$K$  (dotted: suggested, {suggested})")
