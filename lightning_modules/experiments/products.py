"""What an experiment leaves in its folder: CSV, Markdown, figures, and a study's suggestion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fsl_basesel.cli.suggest import LEGEND, profile_table, sentences
from fsl_basesel.files.writing import csv_text, write_text
from fsl_basesel.study import Study
from fsl_basesel.study.least_squares import NEEDED_SETS
from lightning_modules.experiments import decision, result_tables
from lightning_modules.experiments.first_model import first_centroids
from lightning_modules.experiments.plan import Experiment, TableRow
from lightning_modules.experiments.store import ResultStore
from lightning_modules.experiments.training import data_module


def write_products(
    experiment: Experiment, rows: Sequence[TableRow], store: ResultStore
) -> tuple[str, list[Path]]:
    """Write everything the results so far allow; the tables as Markdown, and the files written."""
    folder = store.folder / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    results = result_tables.result_rows(experiment, rows, store)
    if experiment.kind == "study":
        text, written = _study(experiment, rows, store, folder)
    else:
        text, written = result_tables.markdown(experiment, results), []
        if experiment.decide:
            text += f"\n{decision.markdown(experiment, decision.decisions(experiment, results))}"
    write_text(folder / "results.csv", csv_text(results, result_tables.COLUMNS))
    write_text(folder / "table.md", text.rstrip() + "\n")
    return text, [folder / "results.csv", folder / "table.md", *written]


def _study(
    experiment: Experiment, rows: Sequence[TableRow], store: ResultStore, folder: Path
) -> tuple[str, list[Path]]:
    """The regressions of the preliminary study for every data set, head and number of shots."""
    parts, written = [f"# {experiment.title}", "", "Similarity: cosine.", ""], []
    for dataset in experiment.datasets:
        done = [(row, store.load(row.trial)) for row in rows if row.dataset == dataset]
        kept = [(row, result) for row, result in done if result is not None]
        if len(kept) <= NEEDED_SETS:
            continue
        trial = kept[0][0].trial
        data = data_module(trial.data, trial.seed, trial.training, "candidates")
        means = first_centroids(trial, data, store)
        problem = means.problem(trial.m, 1, 0.0)
        for head in experiment.heads:
            for shots in experiment.shots:
                name = f"{dataset}-{head}-{shots}shot"
                accuracy = [result["per_class"][head][str(shots)] for _, result in kept]
                study = Study(
                    problem.similarity,
                    [result["classes"] for _, result in kept],
                    np.array(accuracy),
                    names=means.candidates.names,
                    novel_names=means.novel.names,
                )
                suggestion = study.suggest()
                written.append(study.save(folder / f"{name}.npz"))
                suggestion.save(folder / f"{name}-suggestion.json")
                written.append(folder / f"{name}-suggestion.json")
                written += study.figures(folder / f"{name}-figures", suggestion)
                parts += [f"## {dataset}, {result_tables.HEADS.get(head, head)}, {shots}-shot", ""]
                parts += [f"{len(kept)} random base sets of {trial.m} classes.", ""]
                heading, *lines = profile_table(suggestion)
                parts += [*result_tables.table_lines(heading, lines), "", LEGEND, ""]
                parts += [*sentences(suggestion), ""]
    return "\n".join(parts), written
