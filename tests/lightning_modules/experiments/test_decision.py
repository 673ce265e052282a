"""Declared comparisons: pooled over data sets by seed, tested, adjusted, and not before the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from lightning_modules.experiments import plan
from lightning_modules.experiments.decision import decisions, holm, markdown

EXPERIMENT = plan.load("objective-glyphs")


def results(seeds: range, gain: float = 0.01) -> list[dict[str, Any]]:
    """Lines of every method, with "whitened, K=1" ahead of the others by about `gain`."""
    rng = np.random.default_rng(0)
    return [
        {"label": label, "m": m, "domain": domain, "seed": seed, "head": head, "shots": shots,
         "accuracy": 0.5 + rng.normal(0, 0.005) + gain * (label == "whitened, K=1")}
        for seed in seeds
        for domain in EXPERIMENT.datasets
        for m in EXPERIMENT.m
        for label in EXPERIMENT.methods
        for head in EXPERIMENT.heads
        for shots in EXPERIMENT.shots
    ]  # fmt: skip


def test_a_comparison_is_the_paired_test_of_the_means_over_data_sets() -> None:
    lines = results(range(100, 120))
    found = decisions(EXPERIMENT, lines)

    def means(label: str) -> list[float]:
        return [
            np.mean([
                line["accuracy"] for line in lines
                if (line["label"], line["m"], line["seed"], line["head"], line["shots"])
                == (label, 20, seed, "NearestCentroid", 5)
            ])
            for seed in range(100, 120)
        ]  # fmt: skip

    ours, theirs = means("whitened, K=1"), means("cosine, K=1")
    assert found[0].p == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    assert found[0].pooled is not None
    assert found[0].pooled.mean == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert all(one.holds for one in found)
    assert "All 20 seeds are complete" in markdown(EXPERIMENT, found)


def test_nothing_is_decided_before_every_seed_is_there_in_every_data_set() -> None:
    lines = results(range(100, 120))
    last = {"seed": 119, "domain": "fine", "label": "whitened, K=1", "m": 20}
    lines = [line for line in lines if last.items() - line.items()]
    found = decisions(EXPERIMENT, lines)
    assert [one.pooled.n for one in found if one.pooled] == [19, 20, 19, 20]
    assert not any(one.holds for one in found)
    assert all(np.isnan([one.p, one.adjusted]).all() for one in found)
    text = markdown(EXPERIMENT, found)
    assert "19 of 20 seeds are complete: nothing is decided yet." in text
    assert text.endswith("Seeds with missing rows: fine 1.\n")
    assert "**" not in text
    nothing = decisions(EXPERIMENT, [])
    assert not any(one.holds for one in nothing)
    assert "plain 20, transfer 20, fine 20." in markdown(EXPERIMENT, nothing)


def test_what_is_worse_never_holds() -> None:
    found = decisions(EXPERIMENT, results(range(100, 120), gain=-0.05))
    assert all(one.adjusted < 0.05 for one in found)
    assert not any(one.holds for one in found)


def test_holm_agrees_with_statsmodels() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 4, 9):
        values = rng.random(count) ** 3
        assert holm(values.tolist()) == pytest.approx(multipletests(values, method="holm")[1])
