"""The preliminary study: regressions, intervals, suggestions."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch

import fsl_basesel as fb
from fsl_basesel.study import Study
from fsl_basesel.study.least_squares import Moments, Sample, left_out_pooled

from .study_data import by_hand, planted, with_gaps


def dense(study: Study, k: int, column: int) -> tuple[np.ndarray, np.ndarray]:
    """The design matrix of one class and its accuracies, of the sets that measured it."""
    x1, x2 = study.regressors(k)
    seen = np.isfinite(study.accuracy[:, column])
    design = np.column_stack([np.ones(seen.sum()), x1[seen, column], x2[seen, column]])
    return design, study.accuracy[seen, column]


def test_regressors_are_those_of_the_definition_on_every_small_set() -> None:
    similarity = np.array([[0.9, 0.2, 0.5, -0.1], [0.3, 0.3, 0.8, 0.0]])
    sets = [list(members) for members in combinations(range(4), 3)] + [[0, 1, 2, 3]]
    study = Study(similarity, sets, np.full((5, 2), 0.5))
    for k in (1, 2):
        found, expected = study.regressors(k), by_hand(similarity, sets, k)
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_the_objective_of_select_is_x1_minus_lam_x2() -> None:
    study = planted(sets=5)
    x1, x2 = study.regressors(4)
    problem = fb.SelectionProblem(study.similarity, m=20, k=4, lam=0.7)
    for s, inside in enumerate(study.member):
        expected = (x1[s] - 0.7 * x2[s]).mean()
        assert problem.value(np.flatnonzero(inside).tolist()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gaps", [False, True])
def test_slopes_and_r2_are_those_of_lstsq(gaps: bool) -> None:
    study = with_gaps(planted()) if gaps else planted()
    for column, row in enumerate(study.regressions(3)):
        design, y = dense(study, 3, column)
        solution, residual, *_ = np.linalg.lstsq(design, y, rcond=None)
        np.testing.assert_allclose((row.alpha, row.beta1, row.beta2), solution, rtol=1e-8)
        assert row.r2 == pytest.approx(1 - residual[0] / ((y - y.mean()) ** 2).sum(), rel=1e-9)
        assert row.sets == len(y)


@pytest.mark.parametrize("gaps", [False, True])
def test_regressions_are_those_of_statsmodels(gaps: bool) -> None:
    linear_model = pytest.importorskip("statsmodels.regression.linear_model")
    study = with_gaps(planted()) if gaps else planted()
    for column, row in enumerate(study.regressions(3)):
        design, y = dense(study, 3, column)
        found = linear_model.OLS(y, design).fit()
        np.testing.assert_allclose((row.alpha, row.beta1, row.beta2), found.params, rtol=1e-9)
        ends = (row.beta1_interval, row.beta2_interval)
        np.testing.assert_allclose(ends, found.conf_int(0.05)[1:], rtol=1e-8)


def test_intervals_are_those_of_the_closed_form() -> None:
    from scipy.stats import t

    study = planted(sets=30)
    for column, row in enumerate(study.regressions(3)):
        design, y = dense(study, 3, column)
        solution = np.linalg.solve(design.T @ design, design.T @ y)
        variance = ((y - design @ solution) ** 2).sum() / (len(y) - 3)
        error = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
        half = t.ppf(0.975, len(y) - 3) * error
        np.testing.assert_allclose(
            row.beta1_interval, (solution[1] - half[1], solution[1] + half[1])
        )
        np.testing.assert_allclose(
            row.beta2_interval, (solution[2] - half[2], solution[2] + half[2])
        )


@pytest.mark.parametrize("gaps", [False, True])
def test_left_out_r2_is_that_of_fitting_again_without_each_set(gaps: bool) -> None:
    study = with_gaps(planted(sets=25, novel=6)) if gaps else planted(sets=25, novel=6)
    x1, x2 = study.regressors(3)
    sample = Sample.of(x1, x2, study.accuracy)
    spread, pooled = 0.0, 0.0
    for s in range(25):
        rest = np.arange(25) != s
        means, centres, blocks = np.zeros(6), np.zeros((6, 2)), []
        for n in range(6):
            seen = rest & np.isfinite(study.accuracy[:, n])
            y = study.accuracy[seen, n]
            design = np.column_stack([x1[seen, n], x2[seen, n]])
            means[n], centres[n] = y.mean(), design.mean(axis=0)
            blocks.append((design - centres[n], y - means[n]))
        common = np.linalg.lstsq(
            np.vstack([x for x, _ in blocks]), np.concatenate([y for _, y in blocks]), rcond=None
        )[0]
        for n in range(6):
            if np.isfinite(study.accuracy[s, n]):
                spread += (study.accuracy[s, n] - means[n]) ** 2
                away = np.array([x1[s, n], x2[s, n]]) - centres[n]
                pooled += (study.accuracy[s, n] - means[n] - away @ common) ** 2
    assert left_out_pooled(sample) == pytest.approx(1 - pooled / spread, rel=1e-9)


@pytest.mark.parametrize("gaps", [False, True])
def test_a_resample_is_a_study_with_those_sets(gaps: bool) -> None:
    study = with_gaps(planted()) if gaps else planted()
    x1, x2 = study.regressors(2)
    rng = np.random.default_rng(3)
    drawn = rng.integers(0, 60, 60)
    weights = np.bincount(drawn, minlength=60).astype(float)[None]
    found = Moments.resampled(Sample.of(x1, x2, study.accuracy), weights)
    again = Moments.of(Sample.of(x1[drawn], x2[drawn], study.accuracy[drawn]))
    for part, expected in ((found, again), (found.pooled(), again.pooled())):
        np.testing.assert_allclose(part.fit().beta1.ravel(), expected.fit().beta1, rtol=1e-8)
        np.testing.assert_allclose(part.fit().beta2.ravel(), expected.fit().beta2, rtol=1e-8)
        np.testing.assert_allclose(part.fit().r2.ravel(), expected.fit().r2, rtol=1e-8)


def test_accuracies_of_the_wrong_sets_have_the_r2_of_chance() -> None:
    study = planted(sets=15, novel=8, noise=0.01)
    (row,) = study.profile([3])
    assert row.r2_chance == pytest.approx(2 / 14, rel=1e-12)
    rng, found = np.random.default_rng(0), []
    for _ in range(500):
        shuffled = Study(study.similarity, study.member, study.accuracy[rng.permutation(15)])
        found += [each.r2 for each in shuffled.regressions(3)]
    assert np.mean(found) == pytest.approx(row.r2_chance, rel=0.05)
    assert row.r2_chance < row.r2


def test_exact_slopes_are_found_exactly() -> None:
    suggestion = planted(noise=0.0).suggest()
    assert suggestion.k == 3
    assert suggestion.chosen.chosen == 1.0
    assert suggestion.lam == pytest.approx(0.5, rel=1e-9)
    assert suggestion.r2 == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_allclose(suggestion.lam_interval, 0.5, rtol=1e-8)
    assert suggestion.chosen.ratio == pytest.approx(-0.5, rel=1e-9)


@pytest.mark.parametrize("k", [1, 5])
def test_planted_k_and_lam_are_found_in_noise(k: int) -> None:
    suggestion = planted(1, sets=150, novel=40, k=k, noise=0.05).suggest()
    assert suggestion.k == k
    low, high = suggestion.lam_interval
    assert low < 0.5 < high
    assert 0 < high - low < 0.5
    assert suggestion.lam == suggestion.lam_estimate == suggestion.chosen.lam
    assert suggestion.notes == ()
    assert suggestion.chosen.positive > 0.9


def test_profile_rows_are_the_means_of_the_regressions() -> None:
    study = with_gaps(planted())
    for row in study.profile([1, 4]):
        single = study.regressions(row.k)
        assert row.beta1 == pytest.approx(np.mean([each.beta1 for each in single]))
        assert row.beta2 == pytest.approx(np.mean([each.beta2 for each in single]))
        assert row.ratio == pytest.approx(row.beta2 / row.beta1)
        assert row.r2 == pytest.approx(np.mean([each.r2 for each in single]))
        assert row.positive == np.mean([each.beta1 > 0 for each in single])


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    classes, pooled, lams = [], [], []
    for seed in range(120):
        study = planted(seed, sets=40, novel=8, base=40, size=15, noise=0.05)
        classes += [row.beta1_interval for row in study.regressions(3)]
        (row,) = study.profile([3], resamples=300)
        pooled.append(row.pooled_beta1_interval)
        lams.append(row.lam_interval)

    def coverage(intervals: list[tuple[float, float]], truth: float) -> float:
        low, high = np.array(intervals).T
        return float(np.mean((low <= truth) & (truth <= high)))

    # 960 and 120 intervals: five standard errors below and above 0.95, less what 40 sets cost.
    assert 0.91 < coverage(classes, 0.6) < 0.985
    assert coverage(pooled, 0.6) > 0.83
    assert coverage(lams, 0.5) > 0.83


def test_a_negative_lam_is_suggested_as_0_with_its_reason() -> None:
    suggestion = planted(beta2=0.5).suggest([1, 3])
    assert suggestion.lam == 0.0
    assert suggestion.lam_interval[1] < 0
    assert "takes no negative lam" in suggestion.reason


def test_a_lam_that_may_be_0_is_suggested_as_0_with_its_reason() -> None:
    suggestion = planted(beta2=0.0, noise=0.05).suggest([3])
    assert suggestion.lam == 0.0
    assert suggestion.lam_interval[0] < 0 < suggestion.lam_interval[1]
    assert "cannot distinguish it from 0" in suggestion.reason


def test_without_an_effect_of_x1_there_is_no_ratio() -> None:
    suggestion = planted(beta1=0.0, beta2=0.0, noise=0.05).suggest()
    assert suggestion.lam == 0.0
    assert math.isnan(suggestion.lam_interval[0])
    assert "no sure effect" in suggestion.reason


def test_another_k_has_its_own_lam() -> None:
    suggestion = planted(noise=0.01).suggest([2, 3, 5])
    assert suggestion.lam_at(3) == suggestion.lam
    rows = {row.k: row for row in suggestion.profile}
    assert suggestion.lam_at(5) == rows[5].lam != suggestion.lam
    with pytest.raises(fb.InputError, match=r"\(2, 3, 5\) but got 4"):
        suggestion.lam_at(4)


def test_a_constant_class_has_slopes_of_0_and_no_r2() -> None:
    study = planted()
    accuracy = study.accuracy.copy()
    accuracy[:, 4] = 1.0
    study = Study(study.similarity, study.member, accuracy)
    row = study.regressions(3)[4]
    assert (row.beta1, row.beta2, row.alpha) == (0, 0, 1)
    assert row.beta1_interval == row.beta2_interval == (0, 0)
    assert math.isnan(row.r2)
    (whole,) = study.profile([3])
    assert whole.classes == 20
    assert whole.beta1 == pytest.approx(np.mean([each.beta1 for each in study.regressions(3)]))
    assert math.isfinite(whole.r2)


def test_a_class_whose_similarities_do_not_change_has_no_regression() -> None:
    study = planted()
    similarity = study.similarity.copy()
    similarity[2] = 0.1 + 0.2  # every mean is the same up to rounding
    study = Study(similarity, study.member, study.accuracy)
    row = study.regressions(3)[2]
    assert all(map(math.isnan, (row.beta1, row.beta2, row.r2, *row.beta1_interval)))
    suggestion = study.suggest([3])
    assert suggestion.chosen.classes == 19
    assert "1 of 20 novel classes have no regression" in suggestion.notes[0]


def test_a_class_that_was_hardly_measured_is_left_out() -> None:
    study = planted()
    accuracy = study.accuracy.copy()
    accuracy[3:, 0] = np.nan
    accuracy[:, 1] = np.nan
    study = Study(study.similarity, study.member, accuracy)
    rows = study.regressions(3)
    assert math.isnan(rows[0].beta1)
    assert (rows[1].sets, math.isnan(rows[1].accuracy)) == (0, True)
    suggestion = study.suggest([3])
    assert suggestion.chosen.classes == 18
    assert any("accuracies are missing" in note for note in suggestion.notes)
    assert suggestion.k == 3


def test_when_nothing_changes_nothing_is_suggested() -> None:
    study = planted()
    constant = Study(study.similarity, study.member, np.full((60, 20), 0.5))
    with pytest.raises(fb.InputError, match="that change between base sets"):
        constant.suggest()
    same = Study(study.similarity, study.member[[0] * 60], study.accuracy)
    with pytest.raises(fb.InputError, match="that change between base sets"):
        same.suggest()


def test_few_sets_and_sets_of_several_sizes_are_noted() -> None:
    study = planted(sets=8)
    sets = [np.flatnonzero(inside)[: 12 + s] for s, inside in enumerate(study.member)]
    notes = " ".join(Study(study.similarity, sets, study.accuracy).suggest().notes)
    assert "8 base sets are few" in notes
    assert "differ in size" in notes


def test_sets_may_be_columns_truth_values_or_tensors() -> None:
    study = planted(sets=6)
    columns = [np.flatnonzero(inside) for inside in study.member]
    for sets in (columns, torch.tensor(np.array(columns)), study.member.tolist(), study.member):
        found = Study(torch.tensor(study.similarity), sets, torch.tensor(study.accuracy))
        np.testing.assert_array_equal(found.member, study.member)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sets": [[0, 1]] * 4}, "at least 5 base sets but got 4"),
        ({"sets": [[0, 1]] * 5 + [[3]]}, r"`sets\[5\]` to hold at least 2 classes but got 1"),
        ({"sets": [[0, 1]] * 5 + [[0, 60]]}, r"`sets\[5\]` to be column numbers from 0 to 59"),
        ({"sets": [[0, 1]] * 5 + [[7, 7]]}, "more than once"),
        ({"sets": [[True, False]] * 6}, "each of the 60 candidates"),
        ({"accuracy": np.ones((5, 20))}, r"6 x 20 numbers .* but got float64 of shape \(5, 20\)"),
        ({"accuracy": np.full((6, 20), 40.0)}, "got 40.0 for base set 0 .* per cents by 100"),
        ({"accuracy": np.full((6, 20), np.inf)}, "between 0 and 1 but got inf"),
        ({"accuracy": np.full((6, 20), np.nan)}, "none was"),
        ({"similarity": np.full((20, 60), np.nan)}, "similarity"),
        ({"novel_names": ["a"] * 20}, "unique"),
    ],
)
def test_bad_input_is_named(change: dict, message: str) -> None:
    study = planted(sets=6)
    fields = {
        "similarity": study.similarity,
        "sets": study.member,
        "accuracy": study.accuracy,
    }
    with pytest.raises(fb.InputError, match=message):
        Study(**(fields | change))


def test_k_is_below_the_smallest_set() -> None:
    study = planted()
    assert len(study.regressions(19)) == 20
    for k in (0, 20, 21):
        with pytest.raises(fb.InputError, match=r"one less than the smallest base set|at least 1"):
            study.regressions(k)
    with pytest.raises(fb.InputError, match="but got none"):
        study.profile([])
    assert [row.k for row in study.profile(resamples=100)] == [1, 2, 3, 5, 7, 10]
