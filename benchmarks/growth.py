"""How the time of a gradient grows with |B|, |N| and K: a log-log plot with fitted slopes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from timing import interleaved

from fsl_basesel.multilinear import SortedRows, value_and_gradient

AXES = {
    "|B|": [(500, size, 4) for size in (1000, 2000, 4000, 8000, 16000)],
    "|N|": [(size, 2000, 4) for size in (256, 512, 1024, 2048, 4096)],
    "K": [(500, 2000, size) for size in (5, 10, 16, 32, 64, 128)],
}
# Below, gathering x and scattering slopes, whatever K is, takes longer than the states.
FITTED_FROM = {"K": 16}
LOT = 0.05  # seconds that a turn lasts at least
PLACE = {"|B|": 1, "|N|": 0, "K": 2}


def plot_growth(target: Path, rounds: int, clock: str = "wall") -> dict[str, float]:
    """Measure along each axis, plot to `target` and beside it as SVG; returns the fitted slopes.

    Half a class is in on average, so that no walk ends early and all of each row is visited.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FormatStrFormatter, LogLocator

    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    slopes = {}
    for panel, (axis, shapes) in zip(panels, AXES.items(), strict=True):
        sizes = np.array([shape[PLACE[axis]] for shape in shapes], float)
        seconds = np.array(_medians(shapes, rounds, clock))
        fitted = sizes >= FITTED_FROM.get(axis, 0)
        reach = sizes[fitted]
        slope, offset = np.polyfit(np.log(reach), np.log(seconds[fitted]), 1)
        slopes[axis] = float(slope)
        panel.loglog(sizes, 1e3 * seconds, "o", color="#2166ac")
        panel.loglog(reach, 1e3 * np.exp(offset) * reach**slope, "-", color="#b2182b")
        panel.set_xlabel(axis)
        panel.set_xticks(sizes, [f"{size:.0f}" for size in sizes], fontsize=8)
        panel.minorticks_off()
        where = "" if fitted.all() else f" from {axis} = {reach[0]:.0f}"
        panel.set_title(f"slope {slope:.2f}{where}")
        panel.grid(True, which="both", alpha=0.25)
    panels[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panels[0].yaxis.set_major_formatter(FormatStrFormatter("%g"))
    panels[0].set_ylabel(f"one gradient, ms of {clock} time")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    figure.savefig(target.with_suffix(".svg"))
    pyplot.close(figure)
    return slopes


def _medians(shapes: list[tuple[int, int, int]], rounds: int, clock: str) -> list[float]:
    rng = np.random.default_rng(0)
    contenders = {}
    for n_novel, n_candidates, k in shapes:
        rows = SortedRows.from_columns(rng.random((n_candidates, n_novel), dtype=np.float32))
        x = torch.full((n_candidates,), 0.5 / n_candidates)
        contenders[f"{n_novel} {n_candidates} {k}"] = lambda rows=rows, x=x, k=k: (
            value_and_gradient(rows, x, k, backend="cpu")
        )
    for work in contenders.values():
        work()  # compile
    timings = interleaved(contenders, rounds, "growth", clock=clock, lot=LOT)
    return [timing.median for timing in timings]
