"""Comparisons that an experiment declares before its first run, and what its results say of them.

The file of the experiment has them under `decide`: head, shots, and pairs of labels at some m. For
each seed the accuracies of all data sets are averaged; a paired t-test compares these means seed by
seed, and Holm's adjustment is over all declared comparisons. Before every declared seed is there,
nothing is decided.
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
        gaps: `[seeds, data sets]` differences of accuracy, of seeds there in every data set.
        missing: declared seeds that are not.
        p: of the paired t-test of the means over data sets, two-sided; NaN below two seeds.
        adjusted: `p` after Holm's adjustment; NaN as long as one comparison has no `p`.
    """

    better: str
    than: str
    m: int
    gaps: np.ndarray
    missing: int
    p: float
    adjusted: float

    @property
    def pooled(self) -> Estimate | None:
        """The difference of the means over data sets; None without a whole seed."""
        return estimate(self.gaps.mean(axis=1).tolist()) if len(self.gaps) else None

    @property
    def holds(self) -> bool:
        """Whether `better` is shown to be better: all seeds there, adjusted p below `LEVEL`."""
        ahead = self.pooled is not None and self.pooled.mean > 0
        return self.missing == 0 and ahead and self.adjusted < LEVEL


def decisions(experiment: Experiment, results: Sequence[dict[str, Any]]) -> list[Decision]:
    """The declared comparisons, with what lines of `result_tables.result_rows` say.

    A seed counts if both labels have it in every data set.
    """
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
    tests = []
    for better, than, m in pairs:
        gaps = table(better, m) - table(than, m)
        tests.append(gaps[~np.isnan(gaps).any(axis=1)])
    values = [_p_value(gaps.mean(axis=1)) for gaps in tests]
    adjusted = [float("nan")] * len(pairs) if np.isnan(values).any() else holm(values)
    return [
        Decision(*pair, gaps, len(seeds) - len(gaps), value, after)
        for pair, gaps, value, after in zip(pairs, tests, values, adjusted, strict=True)
    ]


def _p_value(differences: np.ndarray) -> float:
    return float(stats.ttest_1samp(differences, 0.0).pvalue) if len(differences) > 1 else np.nan


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
    """The declared comparisons as a table, and how many seeds are still missing."""
    head = result_tables.HEADS.get(experiment.decide["head"], experiment.decide["head"])
    heading = ["m", "better", "than", "pooled", "p", "p (Holm)", *experiment.datasets]
    rows = []
    for one in found:
        adjusted = f"**{_shown(one.adjusted)}**" if one.holds else _shown(one.adjusted)
        cells = [str(one.m), one.better, one.than, points(one.pooled, sign=True), _shown(one.p)]
        by_dataset = [estimate(gaps.tolist()) if len(gaps) else None for gaps in one.gaps.T]
        rows.append([*cells, adjusted, *(points(each, sign=True) for each in by_dataset)])
    total, missing = len(experiment.all_seeds), max(one.missing for one in found)
    if missing:
        told = f"{total - missing} of {total} seeds are complete: nothing is decided yet."
    else:
        told = f"All {total} seeds are complete. Bold: p below {LEVEL} after Holm's adjustment."
    title = f"## Declared comparisons: {head}, {experiment.decide['shots']}-shot, points"
    return "\n".join([title, "", *result_tables.table_lines(heading, rows), "", told, ""])


def _shown(p: float) -> str:
    return "" if np.isnan(p) else f"{p:.4f}" if p >= 0.0001 else f"{p:.1e}"
