"""`fsl-basesel select`: results, formats, files, and every kind of bad input."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.cli.screen import percent
from fsl_basesel.files.classes import read_classes

from .conftest import POOL_NAMES, TASK_NAMES

DATA = Path(os.environ.get("FSL_BASESEL_DATA", "../shared/data"))


def problem_of(pool: Path, task: Path, **settings) -> fb.SelectionProblem:
    """The same problem through the library."""
    candidates, novel = read_classes(pool), read_classes(task)
    return fb.SelectionProblem.from_centroids(
        candidates.values,
        novel.values,
        names=candidates.names,
        novel_names=novel.names,
        **settings,
    )


def test_the_table_tells_value_bound_gap_and_reasons(run, pool: Path, task: Path) -> None:
    result = run("select", pool, "--novel", task, "-m", 4, "-k", 2)
    expected = fb.select(problem_of(pool, task, m=4, k=2))
    assert (result.code, result.err) == (0, "")
    assert "4 of 20 candidates for 6 novel classes, k = 2, lam = 0" in result.out
    assert f"value   {expected.value:.6f}" in result.out
    assert f"bound   {expected.upper_bound:.6f}" in result.out
    assert f"gap     {percent(expected.gap)}" in result.out
    for row in expected.explain().chosen:
        assert row.name in result.out  # with its brackets: names are no markup
        assert f"{len(row.serves)}: " in result.out
    assert max(map(len, result.out.splitlines())) <= 80
    assert "\x1b" not in result.out


def test_classes_that_add_nothing_say_so(run, pool: Path, task: Path) -> None:
    result = run("select", pool, "--novel", task, "-m", 12, "-k", 1, "--top", 12)
    rows = fb.select(problem_of(pool, task, m=12, k=1)).explain().chosen
    spare = [row for row in rows if row.gain == 0]
    assert len(spare) >= 6  # six novel classes have six nearest at most
    for row in spare:
        assert f"none at K = 1, adds from K = {row.adds_from}" in result.out
    assert f"{len(spare)} of 12 add nothing at K = 1" in result.out
    plain = run("select", pool, "--novel", task, "-m", 4, "-k", 2)
    assert "add nothing" not in plain.out
    other = run("select", pool, "--novel", task, "-m", 12, "-k", 1, "--method", "random")
    assert "add nothing at K = 1\n" in other.out


def test_json_on_stdout_is_the_selection(run, pool: Path, task: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "chosen.json"
    words = ("select", pool, "--novel", task, "-m", 3, "-k", 1, "--lam", 0.2, "--out", out)
    result = run(*words, "--format", "json")
    assert (result.code, result.err) == (0, "")
    printed = json.loads(result.out)
    expected = fb.select(problem_of(pool, task, m=3, k=1, lam=0.2))
    assert printed["indices"] == expected.indices
    assert printed["names"] == expected.names
    assert printed["value"] == expected.value
    assert printed["upper_bound"] == expected.upper_bound
    saved = fb.Selection.load(out)
    assert saved.to_json() + "\n" == result.out
    assert [path.name for path in out.parent.iterdir()] == ["chosen.json"]


def test_csv_on_stdout_has_a_line_for_every_class(run, pool: Path, task: Path) -> None:
    result = run("select", pool, "--novel", task, "-m", 5, "--format", "csv")
    assert (result.code, result.err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(result.out)))
    expected = fb.select(problem_of(pool, task, m=5)).explain().chosen
    assert [row["name"] for row in rows] == [row.name for row in expected]
    assert [int(row["index"]) for row in rows] == [row.index for row in expected]
    assert [float(row["gain"]) for row in rows] == [row.gain for row in expected]
    assert [row["serves"].split("|") for row in rows] == [list(row.serves) for row in expected]


def test_without_a_task_the_candidates_stand_for_it(run, pool: Path) -> None:
    result = run("select", pool, "-m", 3, "--format", "json")
    centroids = read_classes(pool).values
    expected = fb.select(fb.SelectionProblem.from_centroids(centroids, m=3, names=POOL_NAMES))
    assert json.loads(result.out)["names"] == expected.names


@pytest.mark.parametrize("method", fb.methods())
def test_every_method_runs_by_its_name(run, pool: Path, task: Path, method: str) -> None:
    words = ("select", pool, "--novel", task, "-m", 4, "--method", method, "--seed", 3)
    result = run(*words, "--format", "json", "--no-certify")
    assert result.code == 0
    printed = json.loads(result.out)
    expected = fb.select(problem_of(pool, task, m=4), method, seed=3, certify=False)
    assert (printed["method"], printed["seed"]) == (method, 3)
    assert printed["indices"] == expected.indices
    assert printed["upper_bound"] == expected.upper_bound


def test_no_certify_says_so_in_the_table(run, pool: Path) -> None:
    result = run("select", pool, "-m", 2, "--method", "random", "--no-certify")
    assert "bound   not computed" in result.out
    assert "gap" not in result.out.split("class")[0]


def test_selected_classes_count_as_there(run, pool: Path, task: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.csv"
    words = ("select", pool, "--novel", task, "-m", 3, "--format", "json")
    one = json.loads(run(*words, "--out", first).out)
    two = json.loads(run(*words, "--selected", first, "--out", second).out)
    assert two["hyperparameters"]["selected"] == one["indices"]
    assert not set(one["indices"]) & set(two["indices"])
    expected = fb.select(problem_of(pool, task, m=3, selected=one["indices"]))
    assert two["indices"] == expected.indices
    three = json.loads(run(*words, "--selected", first, "--selected", second).out)
    assert three["hyperparameters"]["selected"] == one["indices"] + two["indices"]
    twice = run(*words, "--selected", first, "--selected", first)
    assert twice.code == 2
    assert "again in" in twice.err


def test_selected_classes_are_found_by_name_in_another_pool(
    run, pool: Path, task: Path, tmp_path: Path
) -> None:
    out = tmp_path / "chosen.json"
    words = ("--novel", task, "-m", 3, "--format", "json")
    first = json.loads(run("select", pool, *words, "--out", out).out)
    other = tmp_path / "reversed.npz"
    np.savez(other, centroids=read_classes(pool).values[::-1], names=POOL_NAMES[::-1])
    second = json.loads(run("select", other, *words, "--selected", out).out)
    chosen = [POOL_NAMES[::-1][index] for index in second["hyperparameters"]["selected"]]
    assert chosen == first["names"]


def test_costs_move_the_choice(run, pool: Path, task: Path, tmp_path: Path) -> None:
    words = ("select", pool, "--novel", task, "-m", 3, "--format", "json")
    free = json.loads(run(*words).out)
    cost = tmp_path / "cost.csv"
    with cost.open("w", newline="", encoding="utf-8") as file:
        rows = [[name, int(name == free["names"][0])] for name in POOL_NAMES]
        csv.writer(file).writerows([["name", "cost"], *rows])
    dear = json.loads(run(*words, "--cost", cost, "--mu", 5).out)
    assert free["names"][0] not in dear["names"]
    alone = run(*words, "--cost", cost)
    assert alone.code == 2
    assert "Expected `cost` with a budget" in alone.err
    assert "Expected --cost with --mu but got none" in run(*words, "--mu", 1).err


def test_a_similarity_matrix_in_place_of_centroids(run, pool, task, tmp_path: Path) -> None:
    problem = problem_of(pool, task, m=4, k=2)
    path = tmp_path / "f.npz"
    matrix = problem.similarity
    np.savez(path, similarity=matrix, names=POOL_NAMES, novel_names=TASK_NAMES)
    words = ("-m", 4, "-k", 2, "--format", "json")
    assert json.loads(run("select", "--similarity", path, *words).out)["names"] == (
        fb.select(problem).names
    )
    np.save(tmp_path / "f.npy", matrix)
    bare = json.loads(run("select", "--similarity", tmp_path / "f.npy", *words).out)
    assert bare["names"] == [str(index) for index in fb.select(problem).indices]
    both = run("select", pool, "--similarity", path)
    assert both.code == 2
    assert "Expected either a matrix of --similarity or CANDIDATES" in both.err
    domsim = run("select", "--similarity", path, *words, "--method", "domsim")
    assert domsim.code == 2
    assert "from_centroids" in domsim.err


@pytest.mark.parametrize("name", ["cosine", "centred", "whitened"])
def test_a_similarity_by_name(run, pool, task, name: str) -> None:
    words = ("select", pool, "--novel", task, "-m", 4, "-k", 1, "--similarity", name)
    expected = fb.select(problem_of(pool, task, m=4, k=1, similarity=name))
    found = json.loads(run(*words, "--format", "json").out)
    assert (found["names"], found["value"]) == (expected.names, expected.value)
    assert found["hyperparameters"]["similarity"] == name
    assert f"k = 1, lam = 0, {name}" in run(*words).out
    each = run(*words, "--centre", "each", "--format", "json")
    if name == "cosine":
        assert (each.code, each.out) == (2, "")
        assert "no `centre` with similarity 'cosine'" in each.err
    else:
        assert json.loads(each.out)["value"] != found["value"]


def test_a_file_with_the_name_of_a_similarity_is_named_by_its_path(
    run, pool, task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("select", "--similarity", "./whitened", "-m", 2)
    assert result.code == 2
    assert "Expected a file at whitened but there is nothing" in result.err
    alone = run("select", "--similarity", "whitened", "-m", 2)
    assert alone.code == 2
    assert "Expected a file or folder of CANDIDATES" in alone.err


def test_without_a_task_the_defaults_are_others_but_for_the_paper(run, pool: Path) -> None:
    for words, expected in (
        ((), ("whitened", 1)),
        (("-k", 1), ("whitened", 1)),
        (("-k", 3), ("cosine", 3)),
        (("--similarity", "cosine"), ("cosine", 1)),
        (("--method", "paper"), ("cosine", 3)),
        (("--method", "paper", "-k", 2, "--similarity", "centred"), ("centred", 2)),
    ):
        result = run("select", pool, "-m", 3, *words, "--format", "json")
        settings = json.loads(result.out)["hyperparameters"]
        assert (settings["similarity"], settings["k"]) == expected
    assert "note: k = 1 by default" in run("select", pool, "-m", 3).err


def test_weights_of_the_novel_classes(run, pool: Path, task: Path, tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("name,weight\n" + "".join(f"{n},0\n" for n in TASK_NAMES[1:]))
    with open(tmp_path / "w.csv", "a") as file:
        file.write(f"{TASK_NAMES[0]},3\n")
    words = ("select", pool, "--novel", task, "-m", 1, "-k", 1)
    result = run(*words, "--weights", tmp_path / "w.csv")
    assert "novel classes weighted" in " ".join(result.out.split())
    found = json.loads(run(*words, "--weights", tmp_path / "w.csv", "--format", "json").out)
    alone = read_classes(task)
    only = fb.SelectionProblem.from_centroids(read_classes(pool), alone.values[:1], m=1, k=1)
    assert found["indices"] == fb.select(only).indices
    # The same weights in the file of the task, and in that of a matrix.
    np.savez(tmp_path / "t.npz", centroids=alone.values, weight=[3, 0, 0, 0, 0, 0])
    by_key = run(*words[:3], tmp_path / "t.npz", *words[4:], "--format", "json")
    assert json.loads(by_key.out)["value"] == found["value"]
    matrix = fb.SelectionProblem.from_centroids(read_classes(pool), alone.values, m=1).similarity
    np.savez(tmp_path / "f.npz", similarity=matrix, weights=[3, 0, 0, 0, 0, 0])
    options = ("--similarity", tmp_path / "f.npz", "-m", 1, "-k", 1)
    assert json.loads(run("select", *options, "--format", "json").out)["value"] == found["value"]
    (tmp_path / "none.csv").write_text("name,weight\nsomebody else,1\n")
    foreign = run(*words, "--weights", tmp_path / "none.csv")
    assert f"a weight for each of the 6 classes but got none for '{TASK_NAMES[0]}'" in foreign.err
    refused = run("select", *options, "--centre", "each")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "leave --centre out" in refused.err


def test_explain_prints_every_class_whole(run, pool: Path, task: Path) -> None:
    result = run("select", pool, "--novel", task, "-m", 4, "-k", 2, "--explain")
    explanation = fb.select(problem_of(pool, task, m=4, k=2)).explain()
    assert "…" not in result.out
    assert "nearest base classes (similarity)" in result.out
    for row in explanation.novel:
        assert f"{row.ratio_after:.3f}" in result.out
        assert row.name in result.out
    assert "ratio before" not in result.out
    signed = run("select", pool, "--novel", task, "-m", 4, "--similarity", "whitened", "--explain")
    assert "No similarity ratio: it says nothing about similarities below zero." in signed.out
    assert max(map(len, result.out.splitlines())) <= 80


def test_explain_shows_the_ratio_before_if_classes_were_there(run, pool, task, tmp_path) -> None:
    (tmp_path / "have.txt").write_text(POOL_NAMES[1] + "\n", encoding="utf-8")
    words = ("--selected", tmp_path / "have.txt", "-m", 3, "--explain")
    result = run("select", pool, "--novel", task, *words)
    assert "ratio before" in re.sub(r"\s+", " ", result.out)
    assert "1 already selected" in result.out


def test_top_sets_the_rows_of_the_table(run, pool: Path) -> None:
    result = run("select", pool, "-m", 12, "--top", 2)
    assert "... and 10 more (--top N shows N)" in result.out
    assert "more" not in run("select", pool, "-m", 12, "--top", 12).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-m", "21"], "`m`"),
        (["-m", "-1"], "`m`"),
        (["-m", "3", "-k", "0"], "`k`"),
        (["-m", "3", "--lam", "-1"], "`lam`"),
        (["-m", "3", "--lam", "nan"], "`lam`"),
        (["-m", "3", "--seed", "-1"], "`seed`"),
        (["-m", "3", "--novel", "missing.npz"], "file at missing.npz but there is nothing"),
        (["-m", "3", "--out", "chosen.yaml"], "--out to end in .json or .csv"),
        (["-m", "3", "--out", "/proc/none/chosen.json"], "Expected to write /proc/none"),
        (["-m", "3", "--out", "/dev/null/chosen.json"], "Expected to write /dev/null/"),
        (["-m", "3", "--selected", "none.txt"], "file at none.txt"),
        (["-m", "3", "--top", "-1"], "--top"),
    ],
)
def test_bad_values_are_one_line_and_exit_code_2(run, pool, words: list[str], message: str) -> None:
    result = run("select", pool, *words)
    assert result.code == 2, result.err
    assert result.out == ""
    assert result.err.startswith(("fsl-basesel: error: ", "fsl-basesel select: error: "))
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("centroids", "message"),
    [
        ([[1.0, np.nan], [1.0, 0.0]], "got nan at [0, 1]"),
        ([[1.0, np.inf], [1.0, 0.0]], "got inf at [0, 1]"),
        ([[1.0, 2.0], [0.0, 0.0]], "zero"),
        ([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]], "dimensions"),
        ([1.0, 2.0], "a matrix of numbers"),
    ],
)
def test_bad_centroids_are_one_line_and_exit_code_2(
    run, tmp_path: Path, centroids: list, message: str
) -> None:
    np.save(tmp_path / "pool.npy", np.array(centroids))
    np.save(tmp_path / "task.npy", np.eye(2))
    words = ("--novel", tmp_path / "task.npy", "-m", 1)
    result = run("select", tmp_path / "pool.npy", *words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_novel_classes_among_the_candidates_are_noted(run, pool: Path) -> None:
    result = run("select", pool, "--novel", pool, "-m", 3, "--format", "json")
    assert result.code == 0
    assert result.err.startswith("note: 20 of the 20 novel classes are candidates too (first: 'owl")
    assert result.err.count("\n") == 1
    json.loads(result.out)


def test_a_list_of_names_that_is_not_there_is_one_line(run, pool: Path) -> None:
    words = ("--backbone", "open_clip:ViT-B-32@none", "--novel", "none.txt", "-m", 3)
    result = run("select", pool, *words)
    assert (result.code, result.out) == (2, "")
    assert "file at none.txt but there is nothing" in result.err


def test_no_input_at_all(run) -> None:
    result = run("select")
    assert (result.code, result.out) == (2, "")
    assert "Expected a file or folder of CANDIDATES" in result.err


def test_a_truncated_file_is_one_line_and_exit_code_2(run, pool: Path) -> None:
    pool.write_bytes(pool.read_bytes()[:-40])
    result = run("select", pool, "-m", 2)
    assert (result.code, result.out) == (2, "")
    assert "pool.npz to be a whole .npz file" in result.err
    assert result.err.count("\n") == 1


def test_a_folder_as_out_is_refused_before_the_work(run, pool, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(fb, "select", lambda *_, **__: pytest.fail("worked before checking"))
    folder = tmp_path / "chosen.json"
    folder.mkdir()
    result = run("select", pool, "-m", 2, "--out", folder)
    assert result.code == 2
    assert "to be a file but got the folder" in result.err


def test_a_read_only_folder_is_refused_before_the_work(run, pool, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(fb, "select", lambda *_, **__: pytest.fail("worked before checking"))
    # Root may write anywhere, so the question is asked of a stand-in rather than of the disk.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    result = run("select", pool, "-m", 2, "--out", tmp_path / "chosen.json")
    assert result.code == 2
    assert "the folder is read-only" in result.err
    assert not (tmp_path / "chosen.json").exists()


def test_a_failed_write_leaves_the_old_file_whole(run, pool, tmp_path, monkeypatch) -> None:
    out = tmp_path / "chosen.json"
    out.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = run("select", pool, "-m", 2, "--out", out)
    assert result.code == 2
    assert "No space left on device" in result.err
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chosen.json", "pool.npz"]


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real data in {DATA} (set FSL_BASESEL_DATA)")
def test_real_files_work_directly(run) -> None:
    words = (DATA / "imagenet1k_efflite0_feats.npz", "--novel")
    result = run("select", *words, DATA / "caltech101_efflite0_feats.npz", "--format", "json")
    assert (result.code, result.err) == (0, "")
    selection = json.loads(result.out)
    assert len(set(selection["names"])) == 100
    assert selection["gap"] < 1e-3
    serves = {row["name"]: row["serves"] for row in selection["explanation"]["chosen"]}
    assert "ketch" in serves["n04147183 schooner"]


def test_a_note_says_which_of_m_and_k_were_defaults(run, pool: Path, task: Path) -> None:
    words = ("select", pool, "--novel", task)
    assert "k = 3 by default; give -m and -k to choose" in run(*words, "-m", 5).err
    assert "by default" not in run(*words, "-m", 5, "-k", 3).err
