"""The tables in the documentation are those of the rows beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_modules.experiments import plan
from lightning_modules.experiments.products import write_products
from lightning_modules.experiments.store import ResultStore

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
ROWS = "{}-rows.jsonl"
SHARED = {"objective-controls-glyphs": "objective-glyphs"}
"""Experiments whose rows are in the file of another."""


@pytest.mark.parametrize("name", [name for name in plan.names() if "objective" in name])
def test_published_tables_and_decisions_come_from_their_rows(name: str, tmp_path: Path) -> None:
    experiment = plan.load(name, ".")
    rows, store = experiment.rows(), ResultStore(tmp_path)
    trials = {trial.key: trial for trial in plan.each_trial(rows)}
    assert store.take_up(RESULTS / ROWS.format(SHARED.get(name, name)), trials) == len(trials)
    table, _ = write_products(experiment, rows, store)
    page = (RESULTS / f"{name.removesuffix('-glyphs')}.md").read_text(encoding="utf-8")
    assert page.partition("\n## ")[2].rstrip() == table.partition("\n## ")[2].rstrip()


@pytest.mark.parametrize("name", [name for name in plan.names() if "objective" not in name])
def test_tables_of_the_paper_are_made_with_its_similarity(name: str) -> None:
    assert {row.trial.similarity for row in plan.load(name, ".").rows()} == {"cosine"}
