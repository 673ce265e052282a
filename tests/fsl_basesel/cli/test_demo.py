"""`fsl-basesel demo`: small, but the whole way."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import yaml

import fsl_basesel as fb
from lightning_modules.experiments import trial
from tests.lightning_modules.experiments.small import known_result, small_yaml


def test_the_demo_trains_compares_explains_and_reports(run, tmp_path: Path) -> None:
    methods = {
        "Random": {"method": "random"},
        "DomSim": {"method": "domsim"},
        "auto, K=1": {"method": "auto", "k": 1, "similarity": "whitened"},
    }
    first = {"Own groups first": {"method": "random", "control": "domain"}}
    datasets = {"plain": {}, "fine": {"init_args": {"domain": "fine"}, "methods": first}}
    config = small_yaml(tmp_path, methods=methods, datasets=datasets, m=[7])
    out = tmp_path / "demo"
    result = run("demo", "--config", config, "--jobs", 1, "--out-dir", out)
    assert result.code == 0
    for words in ("Random", "DomSim", "auto, K=1", "vs Random", "optimal to", "Cold start",
                  "Why these classes?", "What do the novel classes get?"):  # fmt: skip
        assert words in result.out
    assert "8 networks to train for 4 methods and 2 repeats (fine)" in result.out
    assert "chosen by cosine or whitened similarity" in " ".join(result.out.split())
    words = "A choice has to beat all candidates with as many images (Whole pool) and, if some"
    assert words in " ".join(result.out.split())
    assert "LATIN" in result.out.split("What do the novel classes get?")[1]
    assert max(map(len, result.out.splitlines())) <= 80 + len(str(out))
    folder = out / "fine"
    assert len(fb.Selection.load(folder / "selection-stage-2.json").indices) == 1
    with open(folder / "results.csv") as file:
        assert {row["label"] for row in csv.DictReader(file)} == {*methods, *first}
    settings = yaml.safe_load((folder / "settings.yaml").read_text())
    assert (settings["m"], settings["repeats"], list(settings["datasets"])) == ([7], 2, ["fine"])
    page = (folder / "report.html").read_text()
    assert "DomSim" in page
    before = {path: path.stat().st_mtime_ns for path in folder.glob("trials/*.json")}
    assert run("demo", "--config", config, "--jobs", 1, "--out-dir", out).code == 0
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("trials/*.json")}


def test_a_network_that_fails_ends_the_demo_with_what_there_is(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(one: trial.Trial, _: object) -> dict:
        if one.method == "random":
            raise RuntimeError("out of luck")
        return known_result(0.3, np.random.default_rng(0))

    monkeypatch.setattr(trial, "run_trial", fails)
    words = ("--config", small_yaml(tmp_path), "--jobs", 1, "--out-dir", tmp_path / "demo")
    result = run("demo", *words, "--repeats", 1)
    assert result.code == 1
    assert "fine, Random, m=4, repeat 0: failed (RuntimeError: out of luck)" in result.err
    assert result.err.endswith("1 networks failed; the same command tries them again\n")
    assert "| Alg. 2, K=1 |" in result.out
    assert "Cold start" not in result.out


def test_bad_settings_are_one_line(run, tmp_path: Path) -> None:
    for words, message in (
        (["--out-dir", "/dev/null/demo"], "Expected to write results to"),
        (["--repeats", "0"], "`repeats` of at least 1"),
        (["--config", "nothing.yaml"], "a YAML file but got 'nothing.yaml'"),
    ):
        result = run("demo", *words)
        assert (result.code, result.out) == (2, "")
        assert message in result.err
        assert result.err.count("\n") == 1
