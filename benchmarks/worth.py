"""How many randomly chosen classes is a selected class worth? Accuracy against m, both ways.

    fsl-basesel reproduce worth-glyphs --only fine
    python benchmarks/worth.py runs/reproduce/worth-glyphs/results.csv

Prints a table for each data set, and draws accuracy against m beside the file.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fsl_basesel.report.figures import STYLE, new_figure, save
from fsl_basesel.report.paired import REFERENCE, estimate

RESAMPLES = 2000


@dataclass(frozen=True)
class Worth:
    """A method at m classes, and how many random classes reach the same accuracy.

    Attributes:
        label: the method.
        m: classes it chose.
        accuracy: its mean accuracy.
        random: random classes of the same accuracy, by linear interpolation in log m; infinite
            where more than all that were tried are needed, 0 where the fewest are enough.
        low: lower end of the 95 % interval (bootstrap over repeats).
        high: its upper end.
    """

    label: str
    m: int
    accuracy: float
    random: float
    low: float
    high: float


def equivalent_random_classes(
    results: Sequence[dict[str, Any]], head: str, shots: int, seed: int = 0
) -> list[Worth]:
    """The worth of every method at every m, from the lines of one data set.

    Args:
        results: lines of `result_tables.result_rows`.
        head: which head counts.
        shots: which number of shots counts.
        seed: seed of the resamples.

    Example:
        >>> lines = [
        ...     {"head": "h", "shots": 5, "label": label, "m": m, "seed": seed, "accuracy": a}
        ...     for seed in (0, 1)
        ...     for label, m, a in (("Random", 10, 0.2), ("Random", 40, 0.4), ("auto", 10, 0.3))
        ... ]
        >>> [round(one.random, 1) for one in equivalent_random_classes(lines, "h", 5)]
        [20.0]
    """
    found: dict[str, dict[int, dict[int, float]]] = {}
    for row in results:
        if (row["head"], row["shots"]) == (head, shots):
            by_m = found.setdefault(row["label"], {})
            by_m.setdefault(row["m"], {})[row["seed"]] = row["accuracy"]
    if REFERENCE not in found:
        return []
    seeds = sorted(set.intersection(*(set(s) for by_m in found.values() for s in by_m.values())))
    if not seeds:
        return []
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, len(seeds), (RESAMPLES, len(seeds)))
    sizes = np.array(sorted(found[REFERENCE]))
    curve = np.array([[found[REFERENCE][m][seed] for seed in seeds] for m in sizes.tolist()])
    curves = curve[:, draws].mean(2)
    rows = []
    for label, by_m in found.items():
        if label == REFERENCE:
            continue
        for m in sorted(by_m):
            ours = np.array([by_m[m][seed] for seed in seeds])
            spread = [
                equivalent(sizes, curves[:, i], value)
                for i, value in enumerate(ours[draws].mean(1).tolist())
            ]
            low, high = np.quantile(spread, [0.025, 0.975], method="nearest")
            middle = equivalent(sizes, curve.mean(1), float(ours.mean()))
            rows.append(Worth(label, m, float(ours.mean()), middle, float(low), float(high)))
    return rows


def equivalent(sizes: np.ndarray, accuracies: np.ndarray, accuracy: float) -> float:
    """Random classes that reach `accuracy`, along the curve made monotone from below.

    Example:
        >>> float(equivalent(np.array([10, 40]), np.array([0.2, 0.4]), 0.3).__round__(3))
        20.0
    """
    rising = np.maximum.accumulate(accuracies)
    if accuracy < rising[0]:
        return 0.0
    if accuracy > rising[-1]:
        return float("inf")
    position = int(np.searchsorted(rising, accuracy))
    if rising[position] == accuracy:
        return float(sizes[position])
    share = (accuracy - rising[position - 1]) / (rising[position] - rising[position - 1])
    logs = np.log(sizes[position - 1 : position + 1])
    return float(np.exp(logs[0] + share * (logs[1] - logs[0])))


def draw(
    results: Sequence[dict[str, Any]], head: str, shots: int, title: str, path: Path
) -> list[Path]:
    """Accuracy against m, one line per method with 95 % intervals, as PNG and SVG."""
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE | {"font.size": 9}):
        figure, (panel,) = new_figure(403, 259)
        _curves(panel, [row for row in results if (row["head"], row["shots"]) == (head, shots)])
        panel.set_ylabel(f"accuracy on novel classes, {shots}-shot (%)")
        panel.set_title(title)
        return save(figure, path.with_suffix(""))


def _curves(panel: Any, rows: Sequence[dict[str, Any]]) -> None:
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    colours = ("#8a8a8a", "#0072b2", "#d55e00", "#009e73")
    for number, label in enumerate(dict.fromkeys(row["label"] for row in rows)):
        sizes = sorted({row["m"] for row in rows if row["label"] == label})
        estimates = [
            estimate([r["accuracy"] for r in rows if (r["label"], r["m"]) == (label, m)])
            for m in sizes
        ]
        panel.errorbar(
            sizes,
            [100 * one.mean for one in estimates],
            [100 * (one.half_width or 0.0) for one in estimates],
            label=label,
            color=colours[number % len(colours)],
            marker="o",
            markersize=4,
            capsize=2,
        )
    panel.set_xscale("log")
    panel.set_xticks(sorted({row["m"] for row in rows}))
    panel.xaxis.set_major_formatter(ScalarFormatter())
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("base classes m")
    panel.legend()


def markdown(rows: Sequence[Worth]) -> str:
    """One line per method and m."""
    lines = [
        "| method | m | accuracy | random classes of the same accuracy | a class is worth |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        if row.low == float("inf"):
            interval, worth = "more than tried", "more than tried"
        else:
            interval = f"{_number(row.random)} ({_number(row.low)} to {_number(row.high)})"
            worth = f"{_number(row.random / row.m, 1)} random ones"
        lines.append(f"| {row.label} | {row.m} | {100 * row.accuracy:.2f} | {interval} | {worth} |")
    return "\n".join(lines)


def _number(value: float, digits: int = 0) -> str:
    return "more than tried" if value == float("inf") else f"{value:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="results.csv of an experiment with several m")
    parser.add_argument("--head", default="NearestCentroid")
    parser.add_argument("--shots", type=int, default=5)
    args = parser.parse_args()
    with open(args.results, newline="", encoding="utf-8") as file:
        kinds = {"m": int, "seed": int, "shots": int, "accuracy": float}
        rows = [
            {name: kinds.get(name, str)(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]
    for domain in dict.fromkeys(row["domain"] for row in rows):
        mine = [row for row in rows if row["domain"] == domain]
        title = f"{domain}, {args.head}, {args.shots}-shot"
        found = equivalent_random_classes(mine, args.head, args.shots)
        print(f"## What a chosen class is worth: {title}\n\n{markdown(found)}\n")
        path = args.results.parent / f"accuracy-{domain}"
        for written in draw(mine, args.head, args.shots, title, path):
            print(f"Saved {written}")


if __name__ == "__main__":
    main()
