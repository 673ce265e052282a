"""Figures 1 to 3 of the paper for a study, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fsl_basesel.report.figures import STYLE, new_figure, save
from fsl_basesel.study.core import Study
from fsl_basesel.study.profile import Interval
from fsl_basesel.study.suggestion import Suggestion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, RED, GREY = "#2166ac", "#b2182b", "#8c8c8c"  # distinct in grey as well


def write_figures(study: Study, suggestion: Suggestion, folder: Path) -> list[Path]:
    """Draw and write all figures; no global setting of matplotlib is touched."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with rc_context(STYLE):
        figures = {
            "ratio-against-k": ratio_figure(suggestion),
            "sorted-slopes": slopes_figure(study, suggestion),
            "r2-against-k": r2_figure(suggestion),
        }
        for name, figure in figures.items():
            written += save(figure, folder / name)
    return written


def ratio_figure(suggestion: Suggestion) -> Figure:
    """Figure 1: β2 / β1 against K, with a 95 % band where β1 is surely not 0."""
    figure, panel, ks = _against_k(suggestion, "β2 / β1")
    rows = suggestion.profile
    low, high = np.array([row.ratio_interval for row in rows]).T
    panel.plot(ks, [row.ratio for row in rows], "o-", color=BLUE, label="means of classes")
    panel.fill_between(ks, low, high, color=BLUE, alpha=0.18, linewidth=0)
    panel.plot(ks, [-row.lam for row in rows], "s--", color=RED, label="pooled, -λ")
    panel.legend(loc="best")
    return figure


def r2_figure(suggestion: Suggestion) -> Figure:
    """Figure 3: R² against K, beside chance."""
    figure, panel, ks = _against_k(suggestion, "R²")
    rows = suggestion.profile
    panel.plot(ks, [row.r2 for row in rows], "o-", color=BLUE, label="mean of classes")
    panel.plot(ks, [row.r2_chance for row in rows], "-", color=GREY, label="the same by chance")
    unseen = "pooled, left-out sets"
    panel.plot(ks, [row.pooled_r2 for row in rows], "s--", color=RED, label=unseen)
    figure.legend(loc="outside upper center")
    return figure


def slopes_figure(study: Study, suggestion: Suggestion) -> Figure:
    """Figure 2: the slopes of every novel class in rising order with 95 % intervals.

    For the paper's K of 3 and 10 where the study looked at them, else for the suggested one.
    """
    ks = [row.k for row in suggestion.profile if row.k in (3, 10)] or [suggestion.k]
    figure, panels = new_figure(720, 240 * len(ks), len(ks), 2, sharey="col")
    for row, k in enumerate(ks):
        found = study.regressions(k)
        left, right = panels[2 * row : 2 * row + 2]
        _slopes(left, f"K = {k}: β1", [(one.beta1, one.beta1_interval) for one in found])
        _slopes(right, f"K = {k}: β2", [(one.beta2, one.beta2_interval) for one in found])
    for panel in panels[-2:]:
        panel.set_xlabel("novel classes in rising order (red: interval without 0)")
    return figure


def _slopes(panel: Axes, title: str, pairs: list[tuple[float, Interval]]) -> None:
    """Slopes in blue; intervals that do not cover 0 in red, others in grey."""
    pairs = sorted(pair for pair in pairs if np.isfinite(pair[0]))
    panel.axhline(0, color="black", linewidth=0.8)
    if not pairs:
        panel.set_title(f"{title}, no regression")
        return
    at = np.arange(1, len(pairs) + 1)
    beta = np.array([value for value, _ in pairs])
    low, high = np.array([ends for _, ends in pairs]).T
    sure = (low > 0) | (high < 0)
    panel.vlines(at, low, high, colors=np.where(sure, RED, GREY).tolist(), linewidth=1)
    panel.plot(at, beta, "o", color=BLUE, markersize=2.5)
    above = np.mean(beta > 0)
    panel.set_title(f"{title}, mean {beta.mean():.2f}, {above:.0%} above 0")


def _against_k(suggestion: Suggestion, label: str) -> tuple[Figure, Axes, list[int]]:
    """A panel with K on a logarithmic axis and a mark at the suggested one."""
    figure, (panel,) = new_figure(360, 250)
    ks = [row.k for row in suggestion.profile]
    panel.set_xscale("log")
    panel.set_xticks(ks, [str(k) for k in ks])
    panel.set_xticks([], minor=True)
    panel.axhline(0, color="black", linewidth=0.8)
    panel.axvline(suggestion.k, color=GREY, linewidth=0.8, linestyle=":")
    panel.set_xlabel(f"K (dotted: suggested, {suggestion.k})")
    panel.set_ylabel(label)
    return figure, panel, ks
