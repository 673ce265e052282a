"""Tables of an experiment: every result as CSV, means and paired differences as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from fsl_basesel.report.paired import Line, paired_difference, points, summarise
from lightning_modules.experiments.plan import FOLDER, Experiment, TableRow, digest
from lightning_modules.experiments.store import ResultStore

COLUMNS = (
    "experiment", "domain", "setting", "method", "label", "similarity", "k", "lam", "m", "seed",
    "head", "shots", "accuracy", "value", "upper_bound", "gap", "share_k1", "share_k3", "classes",
    "seconds",
)  # fmt: skip

HEADS = {"NearestCentroid": "nearest centroid", "SoftmaxRegression": "softmax regression"}


def result_rows(
    experiment: Experiment, rows: Sequence[TableRow], store: ResultStore
) -> list[dict[str, Any]]:
    """A line for each finished trial, head and number of shots."""
    found = []
    for row in rows:
        result = store.load(row.trial)
        if result is None:
            continue
        trial = row.trial
        common = {
            "experiment": experiment.name,
            "domain": row.dataset,
            "setting": experiment.setting,  # a table compares with one Random, whatever the method
            "method": trial.method,
            "label": row.label,
            "similarity": None if trial.method == "random" else trial.similarity,
            "k": trial.k,
            "lam": trial.lam,
            "m": trial.m,
            "seed": trial.seed,
            "value": result["value"],
            "upper_bound": result["upper_bound"],
            "gap": result["gap"],
            "share_k1": result["shares"]["1"],
            "share_k3": result["shares"]["3"],
            "classes": digest({"classes": sorted(result["classes"])}),  # tells sets apart
            "seconds": result["selection_seconds"],
        }
        for head, by_shots in result["accuracy"].items():
            for shots, values in by_shots.items():
                line = {"head": head, "shots": int(shots), "accuracy": float(np.mean(values))}
                found.append(common | line)
    return found


def certified_against_paper(results: Sequence[dict[str, Any]]) -> list[str]:
    """Does a provably better selection give a better learner? `auto` against Algorithms 1 to 4.

    Compared are methods with the same K, lambda and similarity, repeat by repeat.

    Returns:
        Lines of a Markdown table; none where there is nothing to compare.
    """
    rows = [row for row in results if row["k"] is not None]
    lines = []
    columns = ("domain", "m", "head", "shots", "k", "lam", "similarity")
    for key in dict.fromkeys(tuple(row[name] for name in columns) for row in rows):
        group = [row for row in rows if tuple(row[name] for name in columns) == key]
        ours = {row["seed"]: row for row in group if row["method"] == "auto"}
        for label in dict.fromkeys(row["label"] for row in group if row["method"] != "auto"):
            theirs = {row["seed"]: row for row in group if row["label"] == label}
            difference = paired_difference(_column(ours, "accuracy"), _column(theirs, "accuracy"))
            if difference is None:
                continue
            common = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
            better = np.mean([_relative(a) - _relative(b) for a, b in common])
            same = sum(a["classes"] == b["classes"] for a, b in common)
            domain, m, head, shots = key[:4]
            cells = [str(domain), str(m), HEADS.get(head, head), str(shots), label]
            cells += [f"{100 * better:+.3f}", points(difference, sign=True)]
            lines.append(f"| {' | '.join(cells)} | {same} of {len(common)} |")
    if not lines:
        return []
    return [
        "| data | m | head | shots | against | value of `auto`, % of the bound "
        "| accuracy of `auto` | same classes |",
        "|---|---|---|---|---|---|---|---|",
        *lines,
    ]


def _column(rows: dict[int, dict[str, Any]], name: str) -> dict[int, float]:
    return {seed: row[name] for seed, row in rows.items()}


def _relative(row: dict[str, Any]) -> float:
    return 1.0 - float(row["gap"])


def paper_numbers() -> dict[str, Any]:
    """Accuracies of the paper: by table, head, label and `m/shots`, the mean and its interval."""
    return yaml.safe_load((FOLDER / "paper.yml").read_text(encoding="utf-8"))


def markdown(experiment: Experiment, results: Sequence[dict[str, Any]]) -> str:
    """A table for each data set and head, with the paper's numbers beside ours where it has some.

    Cells are per cent with 95 % intervals over repeats; differences are paired by repeat.
    """
    lines = [f"# {experiment.title}", ""]
    summary = summarise(results)
    numbers = paper_numbers()
    for dataset, change in experiment.datasets.items():
        table = numbers.get(change.get("paper", ""), {})
        for head in experiment.heads:
            mine = [
                line for line in summary
                if line.key["domain"] == dataset and line.key["head"] == head
            ]  # fmt: skip
            if mine:
                seeds = max(line.accuracy.n for line in mine)
                lines += [f"## {dataset}, {HEADS.get(head, head)}, {seeds} repeats", ""]
                lines += [*_table(mine, table.get(head, {})), ""]
    # Methods of a cold start choose by networks of their own: they do not solve one problem.
    compared = [] if experiment.setting == "cold-start" else certified_against_paper(results)
    if compared:
        lines += ["## `auto` against the paper's algorithms at the same K and λ", "", *compared, ""]
    return "\n".join(lines)


def _table(lines: Sequence[Line], paper: dict[str, Any]) -> list[str]:
    columns = sorted({(line.key["m"], line.key["shots"]) for line in lines}, key=_descending_m)
    labels = list(dict.fromkeys(line.label for line in lines))
    compared = any(line.difference is not None for line in lines)
    heading = ["method"]
    for m, shots in columns:
        heading += [f"m={m}, {shots}-shot"] + ["against Random"] * compared
        heading += ["paper"] if _has(paper, m, shots) else []
    rows = [heading, ["---"] * len(heading)]
    for label in labels:
        cells = [label]
        for m, shots in columns:
            line = next(
                (
                    line
                    for line in lines
                    if (line.label, line.key["m"], line.key["shots"]) == (label, m, shots)
                ),
                None,
            )
            found = ["", ""] if line is None else [points(line.accuracy), _difference(line)]
            cells += found[: 1 + compared]
            if _has(paper, m, shots):
                cells.append(_printed(paper.get(label, {}).get(f"{m}/{shots}")))
        rows.append(cells)
    return [f"| {' | '.join(cells)} |" for cells in rows]


def _descending_m(column: tuple[int, int]) -> tuple[int, int]:
    return -column[0], column[1]


def _has(paper: dict[str, Any], m: int, shots: int) -> bool:
    return any(f"{m}/{shots}" in cells for cells in paper.values())


def _printed(cell: Sequence[float] | None) -> str:
    return "" if cell is None else f"{cell[0]:.2f} ± {cell[1]:.2f}"


def _difference(line: Line) -> str:
    text = points(line.difference, sign=True)
    sure = line.difference is not None and line.difference.excludes_zero
    return f"**{text}**" if sure else text
