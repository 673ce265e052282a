"""Tables of an experiment: every result as CSV, means and paired differences as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fsl_basesel.report.paired import Line, estimate, points, summarise
from lightning_modules.experiments.plan import FOLDER, Experiment, TableRow, digest, is_blind
from lightning_modules.experiments.store import ResultStore
from lightning_modules.settings import read

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
            "label": row.label,
            "similarity": None if is_blind(trial.method) else trial.similarity,
            **{name: getattr(trial, name) for name in ("method", "k", "lam", "m", "seed")},
            **{name: result[name] for name in ("value", "upper_bound", "gap")},
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


def similarities(results: Sequence[dict[str, Any]]) -> str:
    """Names of the similarities by which the classes of these lines were chosen."""
    return " or ".join(sorted({row["similarity"] for row in results} - {None})) or "none"


def table_lines(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown, line by line."""
    cells = [heading, ["---"] * len(heading), *rows]
    return [f"| {' | '.join(row)} |" for row in cells]


def certified_against_paper(results: Sequence[dict[str, Any]]) -> list[str]:
    """Does a provably better selection give a better learner? `auto` against Algorithms 1 to 4.

    Compared are methods with the same K, lambda and similarity, repeat by repeat. The lines of a
    table are returned; none where there is nothing to compare.
    """
    groups: dict[tuple, dict[str, dict[int, dict[str, Any]]]] = {}
    columns = ("domain", "m", "head", "shots", "k", "lam", "similarity")
    for row in results:
        if row["k"] is not None:
            label = "auto" if row["method"] == "auto" else row["label"]
            group = groups.setdefault(tuple(row[name] for name in columns), {})
            group.setdefault(label, {})[row["seed"]] = row
    rows = []
    for (domain, m, head, shots, *_), group in groups.items():
        ours = group.pop("auto", {})
        for label, theirs in group.items():
            common = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
            if not common:
                continue
            difference = estimate([a["accuracy"] - b["accuracy"] for a, b in common])
            better = np.mean([float(b["gap"]) - float(a["gap"]) for a, b in common])
            same = sum(a["classes"] == b["classes"] for a, b in common)
            cells = [str(domain), str(m), HEADS.get(head, head), str(shots), label]
            cells += [f"{100 * better:+.3f}", points(difference, sign=True)]
            rows.append([*cells, f"{same} of {len(common)}"])
    heading = ["data", "m", "head", "shots", "against", "value of `auto`, % of the bound"]
    return table_lines([*heading, "accuracy of `auto`", "same classes"], rows) if rows else []


def paper_numbers() -> dict[str, Any]:
    """Accuracies of the paper: by table, head, label and `m/shots`, the mean and its interval."""
    return read(FOLDER / "paper.yml")


def markdown(experiment: Experiment, results: Sequence[dict[str, Any]]) -> str:
    """A table for each data set and head, with the paper's numbers beside ours where it has some.

    Cells are per cent with 95 % intervals over repeats; differences are paired by repeat.
    """
    lines = [f"# {experiment.title}", "", f"Similarity: {similarities(results)}.", ""]
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
    by_cell = {(line.label, line.key["m"], line.key["shots"]): line for line in lines}
    columns = sorted({(-m, shots) for _, m, shots in by_cell})
    compared = any(line.difference is not None for line in lines)
    printed = {cell for cells in paper.values() for cell in cells}
    heading, rows = ["method"], {label: [label] for label, _, _ in by_cell}
    for negative, shots in columns:
        m, cell = -negative, f"{-negative}/{shots}"
        heading += [f"m={m}, {shots}-shot"] + ["against Random"] * compared
        heading += ["paper"] * (cell in printed)
        for label, cells in rows.items():
            line = by_cell.get((label, m, shots))
            found = ["", ""] if line is None else [points(line.accuracy), _difference(line)]
            cells += found[: 1 + compared]
            if cell in printed:
                mean = paper.get(label, {}).get(cell)
                cells.append("" if mean is None else f"{mean[0]:.2f} ± {mean[1]:.2f}")
    return table_lines(heading, rows.values())


def _difference(line: Line) -> str:
    text = points(line.difference, sign=True)
    sure = line.difference is not None and line.difference.excludes_zero
    return f"**{text}**" if sure else text
