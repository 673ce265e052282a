"""Paired statistics, checked against scipy's own tests and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from fsl_basesel.errors import InputError
from fsl_basesel.report.paired import estimate, paired_difference, summarise


def row(label, seed, accuracy, **more):
    fixed = {"experiment": "e", "domain": "plain", "setting": "general", "m": 20}
    return (
        fixed
        | {"head": "NC", "shots": 5, "label": label, "seed": seed, "accuracy": accuracy}
        | more
    )


def test_the_interval_of_a_mean_is_scipys():
    values = np.random.default_rng(0).normal(0.5, 0.1, 7)
    ours = estimate(list(values))
    low, high = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    assert ours.mean - ours.half_width == pytest.approx(low)
    assert ours.mean + ours.half_width == pytest.approx(high)


def test_the_interval_of_a_difference_is_that_of_scipys_paired_test():
    draw = np.random.default_rng(1)
    ours, theirs = draw.random(9), draw.random(9)
    difference = paired_difference(dict(enumerate(ours)), dict(enumerate(theirs)))
    low, high = stats.ttest_rel(ours, theirs).confidence_interval()
    ends = difference.mean - difference.half_width, difference.mean + difference.half_width
    assert ends == pytest.approx((low, high))


def test_only_common_seeds_count_for_a_difference():
    rows = [row("Random", seed, 0.5) for seed in (0, 1, 2)]
    rows += [row("Alg. 1", 1, 0.6), row("Alg. 1", 2, 0.8), row("Alg. 1", 9, 0.1)]
    line = summarise(rows)[1]
    assert line.accuracy.n == 3
    assert line.difference.n == 2
    assert line.difference.mean == pytest.approx(0.2)


def test_rows_of_different_heads_shots_or_domains_are_not_compared():
    rows = [
        row("Random", 0, 0.5),
        row("Alg. 1", 0, 0.6, shots=20),
        row("Alg. 1", 0, 0.7, head="SR"),
    ]
    lines = summarise(rows)
    assert len(lines) == 3
    assert all(line.difference is None for line in lines)


def test_text_from_a_csv_file_gives_the_same_as_numbers():
    rows = [
        row(label, seed, 0.1 * seed + len(label) / 100)
        for label in ("Random", "A")
        for seed in (1, 2)
    ]
    text = [{name: str(value) for name, value in one.items()} for one in rows]
    assert summarise(rows) == summarise(text)


def test_a_single_seed_has_no_interval():
    line = summarise([row("Random", 0, 0.5), row("A", 0, 0.6)])[1]
    assert line.accuracy.half_width is None
    assert line.difference.half_width is None
    assert not line.difference.excludes_zero


def test_rows_without_an_accuracy_do_not_count():
    lines = summarise([row("Random", 0, 0.5), row("Random", 1, ""), row("A", 0, math.nan)])
    assert [(line.label, line.accuracy.n) for line in lines] == [("Random", 1)]


def test_the_same_result_twice_counts_once():
    assert summarise([row("Random", 0, 0.5), row("Random", 0, "0.5")])[0].accuracy.n == 1


def test_two_results_for_one_seed_are_an_error_that_names_them():
    with pytest.raises(InputError, match=r"'Random' and seed 0 .*0\.5 and 0\.6"):
        summarise([row("Random", 0, 0.5), row("Random", 0, 0.6)])


def test_a_missing_column_and_a_bad_number_are_named():
    with pytest.raises(InputError, match="'accuracy'"):
        summarise([{"label": "A", "seed": 0}])
    with pytest.raises(InputError, match=r"'accuracy' of row 1 but got 'high'"):
        summarise([row("A", 0, "high")])
