"""`fsl-basesel demo`: small, but the whole way."""

from __future__ import annotations

import csv
from pathlib import Path

import yaml

import fsl_basesel as fb
from tests.lightning_modules.experiments.small import small_yaml


def test_the_demo_trains_compares_explains_and_reports(run, tmp_path: Path) -> None:
    methods = {
        "Random": {"method": "random"},
        "DomSim": {"method": "domsim"},
        "auto, K=1": {"method": "auto", "k": 1},
    }
    config, out = small_yaml(tmp_path, methods=methods, m=[7]), tmp_path / "demo"
    result = run("demo", "--config", config, "--jobs", 1, "--out-dir", out)
    assert result.code == 0
    for words in ("Random", "DomSim", "auto, K=1", "vs Random", "optimal to", "Cold start",
                  "Why these classes?", "What do the novel classes get?"):  # fmt: skip
        assert words in result.out
    assert "LATIN" in result.out.split("What do the novel classes get?")[1]
    assert max(map(len, result.out.splitlines())) <= 80 + len(str(out))
    folder = out / "fine"
    assert len(fb.Selection.load(folder / "selection-stage-2.json").indices) == 1
    with open(folder / "results.csv") as file:
        assert {row["label"] for row in csv.DictReader(file)} == set(methods)
    assert yaml.safe_load((folder / "settings.yaml").read_text())["m"] == [7]
    page = (folder / "report.html").read_text()
    assert "DomSim" in page
    before = {path: path.stat().st_mtime_ns for path in folder.glob("trials/*.json")}
    assert run("demo", "--config", config, "--jobs", 1, "--out-dir", out).code == 0
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("trials/*.json")}


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
