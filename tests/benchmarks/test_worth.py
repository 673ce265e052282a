"""How many random classes a chosen one is worth, from accuracies that are known."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import worth


def rows() -> list[dict]:
    rng = np.random.default_rng(1)
    lines = []
    for seed in range(30):
        for label, m, mean in (
            ("Random", 25, 0.3), ("Random", 50, 0.4), ("Random", 100, 0.5),
            ("better", 25, 0.4), ("best", 100, 0.6), ("worse", 50, 0.2),
        ):  # fmt: skip
            noise = 0.01 * rng.standard_normal()
            line = {"domain": "plain", "head": "NearestCentroid", "shots": 5, "label": label}
            lines.append(line | {"m": m, "seed": seed, "accuracy": mean + noise})
    return lines


def test_worth_of_a_class_on_a_known_curve() -> None:
    lines = rows()
    found = {o.label: o for o in worth.equivalent_random_classes(lines, "NearestCentroid", 5)}
    assert found["better"].random == pytest.approx(50, rel=0.05)
    assert found["better"].low < 50 < found["better"].high
    assert found["better"].high - found["better"].low < 10
    assert found["best"].random == float("inf")
    assert found["worse"].random == 0
    text = worth.markdown(list(found.values()))
    assert "more than tried" in text
    others = [line for line in lines if line["label"] != "Random"]
    assert worth.equivalent_random_classes(others, "NearestCentroid", 5) == []


def test_the_script_reads_the_results_of_an_experiment_and_draws_its_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = rows()
    with open(tmp_path / "results.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    monkeypatch.setattr(sys, "argv", ["worth.py", str(tmp_path / "results.csv")])
    worth.main()
    assert "## What a chosen class is worth: plain" in capsys.readouterr().out
    assert {"accuracy-plain.png", "accuracy-plain.svg"} <= {p.name for p in tmp_path.iterdir()}
