"""Trials are run once, kept, shared and resumed, whoever is killed and whoever else is at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.errors import InputError
from fsl_basesel.similarity import ClassCentroids
from lightning_modules.experiments import plan, runner, trial
from lightning_modules.experiments.first_model import FirstCentroids, first_centroids
from lightning_modules.experiments.products import write_products
from lightning_modules.experiments.store import ResultStore
from lightning_modules.experiments.training import data_module
from lightning_modules.settings import build
from tests.lightning_modules.experiments.small import small_yaml


def loaded(folder: Path, **changes: object) -> tuple[plan.Experiment, list[plan.TableRow]]:
    experiment = plan.load(small_yaml(folder, **changes))
    return experiment, experiment.rows()


def test_a_trial_chooses_trains_and_judges(tmp_path: Path) -> None:
    _, rows = loaded(tmp_path)
    store = ResultStore(tmp_path / "out")
    one = rows[1].trial
    result = trial.run_trial(one, store)
    assert len(result["classes"]) == 4
    found = result["accuracy"]["NearestCentroid"]
    assert {shots: len(values) for shots, values in found.items()} == {"1": 2, "2": 2}
    data = data_module(one.data, one.seed, one.training, "candidates")
    problem = first_centroids(one, data, store).problem(m=4, k=1, lam=0.0)
    selection = fb.select(problem, "greedy-target")
    assert result["classes"] == selection.indices
    assert result["value"] == selection.value
    assert result["gap"] == selection.gap
    best = fb.select(problem, "auto").upper_bound
    assert best is not None
    assert result["shares"]["1"] == pytest.approx(selection.value / best)


@pytest.mark.parametrize("text", ["[]", "null", "5", "{", '{"result": 5}', "[" * 100_000])
def test_a_file_that_holds_no_result_is_reported_and_counts_as_none(
    text: str, tmp_path: Path
) -> None:
    _, rows = loaded(tmp_path, repeats=1)
    one, store = rows[0].trial, ResultStore(tmp_path / "out")
    store.save(one, {"value": 1.0})
    assert store.load(one) == {"value": 1.0}
    (tmp_path / "out" / "trials" / f"{one.key}.json").write_text(text)
    with pytest.warns(UserWarning, match="computed again"):
        assert store.load(one) is None


def test_a_trial_chooses_by_its_similarity(tmp_path: Path) -> None:
    methods = {name: {"method": "auto", "similarity": name} for name in ("cosine", "whitened")}
    _, rows = loaded(tmp_path, methods=methods, repeats=1)
    store = ResultStore(tmp_path / "out")
    for row in rows[:2]:
        one = row.trial
        result = trial.run_trial(one, store)
        data = data_module(one.data, one.seed, one.training, "candidates")
        problem = first_centroids(one, data, store).problem(4, 1, 0.0, similarity=row.label)
        assert result["classes"] == fb.select(problem).indices
        assert result["value"] == problem.value(result["classes"])


def test_a_backbone_may_take_the_place_of_the_first_model(tmp_path: Path) -> None:
    larger = {"size": 16}
    pretraining = {"backbone": "torchvision:resnet18@random", "size": 32, "per_class": 3,
                   "cache": False, "init_args": larger}  # fmt: skip
    _, rows = loaded(tmp_path, pretraining=pretraining, repeats=1)
    one, store = rows[1].trial, ResultStore(tmp_path / "out")
    data = data_module(one.data, one.seed, one.training, "candidates")
    found = first_centroids(one, data, store)
    assert (found.candidates.names, found.novel.names) == (data.pool.names, data.novel.names)
    settings = one.data | {"init_args": one.data["init_args"] | larger}
    seen = data_module(settings, 0, one.training, "candidates")
    expected = fb.embed(seen.pool, "torchvision:resnet18@random", size=32, per_class=3, cache=False)
    assert np.allclose(found.candidates.values, expected.values, atol=1e-5)
    assert not list((tmp_path / "out" / "first-models").glob("*.pt"))


def test_controls_are_drawn_in_the_domain_and_have_equal_images(tmp_path: Path) -> None:
    methods = {
        "domain": {"method": "random", "control": "domain"},
        "pool": {"method": "random", "control": "pool"},
    }
    _, rows = loaded(tmp_path, methods=methods, repeats=1)
    store = ResultStore(tmp_path / "out")
    domain, pool = (row.trial for row in rows if row.dataset == "fine")
    data = data_module(domain.data, domain.seed, domain.training, "candidates")
    assert data.novel is not None
    means = first_centroids(domain, data, store)
    inside = {n for n, group in enumerate(data.pool.groups or ()) if group in data.novel.groups}
    chosen = trial.run_trial(domain, store)["classes"]
    assert len(chosen) == 4
    assert set(chosen) <= inside or inside <= set(chosen)
    assert (means.candidates.groups, means.novel.groups) == (data.pool.groups, data.novel.groups)
    assert trial.run_trial(pool, store)["classes"] == list(range(14))
    assert trial._images_of(data, 4) == 4 * 14
    data.add_classes(range(14))
    data.max_images = trial._images_of(data, 4)
    assert np.bincount(data.training_images().labels).tolist() == [4] * 14
    data.val_per_class = 11  # 3 images of each class are left: those of 4 are not enough for 14
    data.max_images = trial._images_of(data, 4)
    with pytest.raises(InputError, match="12 images for 14 classes: too many classes for equal"):
        data.training_images()
    with pytest.raises(InputError, match="`control` domain or pool with method random"):
        loaded(tmp_path, methods={"a": {"method": "auto", "control": "pool"}})


def test_shares_of_the_bound_are_counted_from_the_floor(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    means = FirstCentroids(*(ClassCentroids(rng.normal(size=(n, 5))) for n in (14, 4)))
    one = loaded(tmp_path)[1][0].trial
    problem = means.problem(4, 1, 0.0)
    assert problem.floor < 0
    best = fb.select(problem)
    assert best.gap == 0
    assert trial._shares(one, means, best.indices)["1"] == pytest.approx(1)
    worst = min(combinations(range(14), 4), key=problem.value)
    share = (problem.value(worst) - problem.floor) / (best.value - problem.floor)
    assert trial._shares(one, means, list(worst))["1"] == pytest.approx(share)


def test_results_do_not_depend_on_what_ran_before(tmp_path: Path) -> None:
    _, rows = loaded(tmp_path)
    alone = trial.run_trial(rows[2].trial, ResultStore(tmp_path / "alone"))
    store = ResultStore(tmp_path / "together")
    for row in rows[:2]:
        trial.run_trial(row.trial, store)
    after = trial.run_trial(rows[2].trial, store)
    for timing in ("seconds", "selection_seconds"):
        del alone[timing], after[timing]
    assert alone == after


def test_methods_that_agree_share_a_network(tmp_path: Path) -> None:
    methods = {"a": {"method": "greedy-target", "k": 1}, "b": {"method": "auto", "k": 1}}
    _, rows = loaded(tmp_path, methods=methods, m=[14], repeats=1)  # all candidates: sets agree
    store = ResultStore(tmp_path / "out")
    results = [trial.run_trial(row.trial, store) for row in rows if row.dataset == "plain"]
    assert results[0]["accuracy"] == results[1]["accuracy"]
    assert len(list((tmp_path / "out" / "shared").iterdir())) == 1


def test_a_cold_start_trial_runs_all_stages_in_one_fit(tmp_path: Path) -> None:
    methods = {"c": {"method": "greedy-target", "k": 1, "schedule": [2, 4]}}
    _, rows = loaded(tmp_path, methods=methods, setting="cold-start")
    result = trial.run_trial(rows[0].trial, ResultStore(tmp_path / "out"))
    assert len(set(result["classes"])) == 4
    assert 0 <= result["gap"] <= 1


def test_finished_trials_are_not_run_again_and_damaged_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, rows = loaded(tmp_path, repeats=1)
    store, ran = ResultStore(tmp_path / "out"), []
    monkeypatch.setattr(trial, "run_trial", lambda one, _: ran.append(one.key) or {"fine": True})
    trials = plan.each_trial(rows)
    assert runner.run_all(trials, store) == []
    assert len(ran) == len(trials) == 4
    assert runner.run_all(trials, store) == []
    assert len(ran) == 4
    path = next((tmp_path / "out" / "trials").iterdir())
    path.write_text(path.read_text()[:20])  # as a full disk would leave it
    assert runner.run_all(trials, store) == []
    assert len(ran) == 5


def test_one_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, rows = loaded(tmp_path, repeats=1)
    trials = plan.each_trial(rows)

    def fail_first(one: plan.Trial, _: ResultStore) -> dict:
        if one == trials[0]:
            raise RuntimeError("out of luck")
        return {}

    monkeypatch.setattr(trial, "run_trial", fail_first)
    (failure,) = runner.run_all(trials, ResultStore(tmp_path / "out"))
    assert failure.problem == "RuntimeError: out of luck"
    assert len(list((tmp_path / "out" / "trials").iterdir())) == 3


def test_a_claim_dies_with_its_process(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    code = (
        "import sys, time; from lightning_modules.experiments.store import ResultStore\n"
        f"with ResultStore({str(tmp_path)!r}).claim('it') as mine:\n"
        "    print(mine, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    with store.claim("it") as mine:
        assert not mine
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with store.claim("it") as mine:
        assert mine


def test_a_killed_command_goes_on_and_two_at_once_share_the_work(tmp_path: Path) -> None:
    path = small_yaml(tmp_path, datasets={"plain": {"init_args": {"domain": "plain"}}})
    out = tmp_path / "out"
    words = [sys.executable, "-m", "fsl_basesel", "reproduce", path, "--out-dir", str(out)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen(words, **quiet, env=os.environ | {"OMP_NUM_THREADS": "1"})
    while not list(out.glob("trials/*.json")) and first.poll() is None:
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = {file: file.stat().st_mtime_ns for file in out.glob("trials/*.json")}
    assert 1 <= len(kept) <= 4
    both = [subprocess.Popen(words, **quiet) for _ in range(2)]
    assert [process.wait(timeout=240) for process in both] == [0, 0]
    files = list(out.glob("trials/*.json"))
    assert len(files) == 4
    assert all(file.stat().st_mtime_ns == when for file, when in kept.items())
    assert (out / "small" / "table.md").read_text().count("| Random |") == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_processes_of_jobs_end_with_a_command_that_was_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "fsl_basesel", "reproduce", small_yaml(tmp_path)]
    words += ["--out-dir", str(tmp_path / "out"), "--jobs", "2"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = subprocess.Popen(words, **quiet, start_new_session=True)
    while not list(tmp_path.glob("out/trials/*.json")) and command.poll() is None:
        time.sleep(0.05)
    assert len(processes_of(command.pid)) >= 3
    command.send_signal(signal.SIGKILL)
    command.wait()
    deadline = time.monotonic() + 60
    while processes_of(command.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(command.pid) == []


def processes_of(session: int) -> list[str]:
    """The processes of a session, but those that have ended and were not asked how."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended in the meantime
            state, _, _, its_session, *_ = path.read_text().rpartition(")")[2].split()
            if int(its_session) == session and state != "Z":
                found.append(path.parent.name)
    return found


def test_side_by_side_gives_what_one_after_another_gives(tmp_path: Path) -> None:
    experiment, rows = loaded(tmp_path, datasets={"plain": {"init_args": {"domain": "plain"}}})
    trials = plan.each_trial(rows)
    tables = []
    for jobs in (1, 2):
        store = ResultStore(tmp_path / f"jobs{jobs}")
        assert runner.run_all(trials, store, jobs) == []
        tables.append([store.load(one)["accuracy"] for one in trials])  # type: ignore[index]
    for one, two in zip(*tables, strict=True):
        for shots in ("1", "2"):
            np.testing.assert_allclose(
                one["NearestCentroid"][shots], two["NearestCentroid"][shots], atol=0.11
            )  # threads may change the last bits, and with them an image of 20
    text, written = write_products(experiment, rows, ResultStore(tmp_path / "jobs1"))
    assert "| Random |" in text
    assert all(path.exists() for path in written)


def test_bad_requests_are_said(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    with pytest.raises(InputError, match="`--jobs` to be at least 1"):
        runner.run_all([], store, jobs=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Expected to write results to"):
        ResultStore(tmp_path / "file" / "below")
    with pytest.raises(InputError, match="`class_path` to name a class"):
        build({"class_path": "lightning_modules.sources.Nothing"})
    nothing = {"class_path": "builtins.dict", "init_args": {}}
    with pytest.raises(InputError, match="to be a BaseClassDataModule"):
        data_module(nothing, 0, {"batch_size": 1, "epochs": 1}, "candidates")
