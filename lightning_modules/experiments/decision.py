"""Comparisons that an experiment declares before its first run, and what its results say of them.

The file of the experiment has them under `decide`: head, shots, and pairs of labels at some m. For
each seed the accuracies of all data sets are averaged; a paired t-test compares these means seed by
seed, and Holm's adjustment is over all declared comparisons. Before every declared seed is there in
every data set of the file, for all comparisons, nothing is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from fsl_basesel.report.paired import Estimate, estimate, points
from lightning_modules.experiments import result_tables

if TYPE_CHECKING:
    from lightning_modules.experiments.plan import Experiment

LEVEL = 0.05


@dataclass(frozen=True)
class Decision:
    """A declared comparison and its result so far.

    Attributes:
        better: label that is expected to be better.
        than: label it is compared with.
        m: number of base classes.
        gaps: `[seeds, data sets]` differences of accuracy, of all that the file declares; NaN if a
            row is missing.
        p: of the paired t-test of the means over data sets, two-sided; NaN below two seeds, and as
            long as a row of any comparison is missing.
        adjusted: `p` after Holm's adjustment; NaN as long as one comparison has no `p`.
    """

    better: str
    than: str
    m: int
    gaps: np.ndarray
    p: float
    adjusted: float

    @property
    def pooled(self) -> Estimate | None:
        """The difference of the means over data sets; None without a whole seed."""
        return _estimate(self.gaps.mean(axis=1))

    @property
    def holds(self) -> bool:
        """Whether `better` is shown to be better: adjusted p below `LEVEL`."""
        return self.pooled is not None and self.pooled.mean > 0 and self.adjusted < LEVEL


def decisions(experiment: Experiment, results: Sequence[dict[str, Any]]) -> list[Decision]:
    """The declared comparisons, with what lines of `result_tables.result_rows` say."""
    declared, seeds = experiment.decide, experiment.all_seeds
    accuracy = {
        (row["label"], row["m"], row["domain"], row["seed"]): row["accuracy"]
        for row in results
        if (row["head"], row["shots"]) == (declared["head"], declared["shots"])
    }

    def table(label: str, m: int) -> np.ndarray:
        """Accuracies `[seeds, data sets]`, NaN where there is none yet."""
        cells = [[(label, m, name, seed) for name in experiment.datasets] for seed in seeds]
        return np.array([[accuracy.get(cell, np.nan) for cell in row] for row in cells])

    pairs = [(pair["better"], pair["than"], pair["m"]) for pair in declared["comparisons"]]
    gaps = np.array([table(better, m) - table(than, m) for better, than, m in pairs])
    values = adjusted = [float("nan")] * len(pairs)
    if len(seeds) > 1 and not np.isnan(gaps).any():
        values = [float(stats.ttest_1samp(one.mean(axis=1), 0.0).pvalue) for one in gaps]
        if not np.isnan(values).any():  # as they are if nothing differs at any seed
            adjusted = holm(values)
    return [
        Decision(*pair, *found) for *found, pair in zip(gaps, values, adjusted, pairs, strict=True)
    ]


def _estimate(values: np.ndarray) -> Estimate | None:
    """Mean and interval of those that are not NaN; None without any."""
    there = values[~np.isnan(values)]
    return estimate(there.tolist()) if len(there) else None


def holm(values: Sequence[float]) -> list[float]:
    """Holm's adjustment of p values: any of them below .05 then holds with all others.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(values, kind="stable")
    factors = len(values) - np.arange(len(values))
    rising = np.maximum.accumulate(np.asarray(values)[order] * factors)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(rising, 1.0)
    return adjusted.tolist()


def markdown(experiment: Experiment, found: Sequence[Decision]) -> str:
    """The declared comparisons as a table, and what is still missing."""
    head = result_tables.HEADS.get(experiment.decide["head"], experiment.decide["head"])
    heading = ["m", "better", "than", "pooled", "p", "p (Holm)", *experiment.datasets]
    rows = []
    for one in found:
        adjusted = f"**{_shown(one.adjusted)}**" if one.holds else _shown(one.adjusted)
        cells = [str(one.m), one.better, one.than, points(one.pooled, sign=True), _shown(one.p)]
        by_dataset = [points(_estimate(gaps), sign=True) for gaps in one.gaps.T]
        rows.append([*cells, adjusted, *by_dataset])
    missing = np.isnan(np.stack([one.gaps for one in found])).any(axis=0)  # [seeds, data sets]
    total = len(missing)
    if missing.any():
        told = (
            f"{total - missing.any(axis=1).sum()} of {total} seeds are complete: nothing is "
            "decided yet. Seeds with missing rows: "
        )
        counts = zip(experiment.datasets, missing.sum(axis=0), strict=True)
        told += ", ".join(f"{name} {count}" for name, count in counts if count) + "."
    else:
        told = f"All {total} seeds are complete. Bold: p below {LEVEL} after Holm's adjustment."
    title = f"## Declared comparisons: {head}, {experiment.decide['shots']}-shot, points"
    return "\n".join([title, "", *result_tables.table_lines(heading, rows), "", told, ""])


def _shown(p: float) -> str:
    return "" if np.isnan(p) else f"{p:.4f}" if p >= 0.0001 else f"{p:.1e}"
