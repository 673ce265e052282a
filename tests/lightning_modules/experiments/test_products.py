"""Tables and studies, from results that are known."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fsl_basesel.data import NovelTask, from_arrays
from fsl_basesel.errors import InputError
from fsl_basesel.study import Study, Suggestion
from lightning_modules.experiments import plan, result_tables
from lightning_modules.experiments.products import write_products
from lightning_modules.experiments.store import ResultStore
from lightning_modules.experiments.training import class_accuracies
from tests.lightning_modules.experiments.small import known_result, small_yaml


def filled(
    folder: Path, **changes: object
) -> tuple[plan.Experiment, list[plan.TableRow], ResultStore]:
    experiment = plan.load(small_yaml(folder, **changes))
    rows, store = experiment.rows(), ResultStore(folder / "out")
    rng = np.random.default_rng(0)
    for row in rows:
        trial = row.trial
        better = 0.02 if trial.method == "greedy-target" else 0.0
        store.save(trial, known_result(0.3 + better + 0.01 * trial.seed + trial.m / 1000, rng))
    return experiment, rows, store


def test_the_table_pairs_by_repeat_and_shows_the_paper_beside(tmp_path: Path) -> None:
    settings = {"m": [100], "shots": [5, 20]}
    experiment = plan.load(small_yaml(tmp_path, **settings))
    rows, store = experiment.rows(), ResultStore(tmp_path / "out")
    for row in rows:
        one = known_result(0.4, np.random.default_rng(0))
        extra = 0.02 if row.trial.method != "random" else 0.0
        noise = 0.1 * row.trial.seed
        one["accuracy"] = {"NearestCentroid": {"5": [0.4 + extra + noise], "20": [0.5 + noise]}}
        store.save(row.trial, one)
    text = result_tables.markdown(experiment, result_tables.result_rows(experiment, rows, store))
    plain, fine = text.split("## fine")
    assert "| m=100, 5-shot | against Random | paper |" in plain
    assert "39.39 ± 0.82" in plain
    assert "**+2.00 ± 0.00**" in plain
    assert "paper" not in fine


def test_results_as_csv_have_the_columns_a_report_reads(tmp_path: Path) -> None:
    experiment, rows, store = filled(tmp_path)
    write_products(experiment, rows, store)
    with open(tmp_path / "out" / "small" / "results.csv") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(rows) * 2
    assert set(result_tables.COLUMNS) == set(lines[0])
    assert {line["label"] for line in lines} == {"Random", "Alg. 2, K=1"}


def test_rows_kept_in_one_file_are_taken_up_by_a_later_run(tmp_path: Path) -> None:
    _, rows, store = filled(tmp_path)
    trials = {trial.key: trial for trial in plan.each_trial(rows)}
    lost = list(trials.values())[1]
    (tmp_path / "out" / "trials" / f"{lost.key}.json").unlink()
    path, other = tmp_path / "rows.jsonl", ResultStore(tmp_path / "other")
    assert other.take_up(path, trials) == 0  # no file yet
    store.keep(path, trials)
    assert other.take_up(path, trials) == len(trials) - 1
    assert [other.load(one) for one in trials.values()] == [
        store.load(one) for one in trials.values()
    ]
    assert other.load(lost) is None
    assert other.take_up(path, trials) == 0
    path.write_text("nothing\n")
    for use in (other.take_up, other.keep):
        with pytest.raises(InputError, match="to have a row of results in every line"):
            use(path, trials)
    assert path.read_text() == "nothing\n"


def test_rows_are_added_to_a_file_and_what_was_in_it_stays(tmp_path: Path) -> None:
    _, rows, store = filled(tmp_path)
    trials = {trial.key: trial for trial in plan.each_trial(rows)}
    first, second, *_ = trials
    path = tmp_path / "rows.jsonl"
    store.keep(path, {first: trials[first], "from elsewhere": trials[second]})
    before = path.read_text()
    store.save(trials[first], {"value": "computed again"})
    store.keep(path, {second: trials[second], first: trials[first]})
    added = json.loads(path.read_text().removeprefix(before))
    assert added == {"key": second, "result": store.load(trials[second])}


def test_a_table_of_what_is_there_so_far(tmp_path: Path) -> None:
    experiment, rows, store = filled(tmp_path)
    for path in list((tmp_path / "out" / "trials").iterdir())[1:]:
        path.unlink()
    assert len(result_tables.result_rows(experiment, rows, store)) == 2
    text, _ = write_products(experiment, rows, store)
    assert "1 repeats" in text


def test_auto_is_compared_with_algorithms_of_the_same_k_only(tmp_path: Path) -> None:
    methods = {
        "Alg. 2, K=1": {"method": "greedy-target", "k": 1},
        "Alg. 2, K=3": {"method": "greedy-target", "k": 3},
        "auto, K=1": {"method": "auto", "k": 1},
    }
    experiment, rows, store = filled(tmp_path, methods=methods)
    lines = result_tables.certified_against_paper(
        result_tables.result_rows(experiment, rows, store)
    )
    assert len(lines) == 2 + 2 * 2  # a heading; two data sets, two numbers of shots
    assert all("| Alg. 2, K=1 | +0.000 | -2.00 ± 0.00 | 0 of 2 |" in line for line in lines[2:])


def test_same_classes_are_told_by_the_classes_and_not_by_the_accuracy(tmp_path: Path) -> None:
    methods = {"a": {"method": "greedy-target", "k": 1}, "b": {"method": "auto", "k": 1}}
    experiment = plan.load(small_yaml(tmp_path, methods=methods))
    rows, store = experiment.rows(), ResultStore(tmp_path / "out")
    for row in rows:
        one = known_result(0.4, np.random.default_rng(0))
        chosen = {("a", 0): [0, 1, 2], ("b", 0): [2, 1, 0], ("a", 1): [0, 1, 2]}
        one["classes"] = chosen.get((row.label, row.trial.seed), [0, 1, 3])
        store.save(row.trial, one)
    lines = result_tables.certified_against_paper(
        result_tables.result_rows(experiment, rows, store)
    )
    assert len(lines) > 2
    assert all("| +0.00 ± 0.00 | 1 of 2 |" in line for line in lines[2:])


def test_a_study_leaves_a_suggestion_that_select_can_read(tmp_path: Path) -> None:
    experiment, rows, store = filled(tmp_path, kind="study", sets=12, methods={})
    text, written = write_products(experiment, rows, store)
    folder = tmp_path / "out" / "small"
    study = Study.load(folder / "plain-NearestCentroid-1shot.npz")
    assert study.accuracy.shape == (12, 4)
    assert Suggestion.load(folder / "plain-NearestCentroid-1shot-suggestion.json").sets == 12
    assert "12 random base sets of 4 classes." in text
    assert "Suggestion: k = " in text
    assert any(path.suffix == ".svg" for path in written)


def test_judging_equals_a_computation_by_hand() -> None:
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(3), 12)
    pictures = rng.random((36, 1, 4, 4)).astype(np.float32) + labels[:, None, None, None] * 0.1
    novel = NovelTask(from_arrays(torch.from_numpy(pictures), labels), shots=4, queries=5)

    class Pixels(torch.nn.Module):
        def features(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)

    found = class_accuracies(Pixels(), novel, ["NearestCentroid"], [1, 2], supports=2)[
        "NearestCentroid"
    ]
    support, test = novel.support_set(), novel.test_set()
    learn = support.batch(range(12))[0].flatten(1).double().numpy().reshape(3, 4, -1)
    query = test.batch(range(15))[0].flatten(1).double().numpy()
    for shots in (1, 2):
        for number in (0, 1):
            means = learn[:, 2 * number : 2 * number + shots].mean(1)
            means /= np.linalg.norm(means, axis=1, keepdims=True)
            right = (query @ means.T).argmax(1) == test.labels
            np.testing.assert_allclose(found[shots][number], right.reshape(3, 5).mean(1))
    with pytest.raises(InputError, match="Expected 6 support images"):
        class_accuracies(Pixels(), novel, ["NearestCentroid"], [2], supports=3)
    with pytest.raises(InputError, match="Expected heads of"):
        class_accuracies(Pixels(), novel, ["Guess"], [2], supports=2)
