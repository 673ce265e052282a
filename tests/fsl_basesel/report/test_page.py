"""The page as text: what it says for every kind of folder, and how large it gets."""

from __future__ import annotations

import html
import html.parser
import re
import shutil
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.cli import main
from fsl_basesel.errors import InputError
from fsl_basesel.report import content, record
from fsl_basesel.report.page import html_page
from fsl_basesel.report.run import read_run
from fsl_basesel.similarity import ClassCentroids
from tests.fsl_basesel.report.folders import HOSTILE, selected, write_results

VOID = {"meta", "br", "img", "input", "link", "circle", "line", "path", "rect", "polyline", "use"}


class Balance(html.parser.HTMLParser):
    """Checks that elements are closed in order, and collects text and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.addresses += [v for k, v in attrs if k in ("src", "href") and not v.startswith("#")]
        self.ids += [v for k, v in attrs if k == "id"]
        if tag not in VOID or not self.get_starttag_text().endswith("/>"):
            self.open += [tag] if tag not in ("meta", "input") else []

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


def checked(folder: Path) -> tuple[str, Balance]:
    page = html_page(read_run(folder))
    page.encode("utf-8")
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert balance.addresses == []  # nothing to fetch
    assert len(balance.ids) == len(set(balance.ids))
    assert not re.search(r"url\((?!data:)", page)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    return page, balance


def test_a_run_fills_every_part(run_folder):
    page, balance = checked(run_folder)
    assert 'class="absent"' not in page
    for words in ("10 of 24 candidate classes", "in 3 stages for 8 novel classes", "8-way 2-shot"):
        assert words in balance.text
    assert "name: <b>&amp;" in balance.text  # the settings, as they are in the file
    assert "+5." in balance.text  # the method that is better by 5 points
    assert "λ = 0, cosine, by auto" in balance.text
    draws = (
        f"the mean of {content.RATIO_DRAWS} random choices",
        "Random: mean of 100 random choices.",
    )
    assert all(words in balance.text for words in draws)


def test_value_and_bound_stand_beside_what_chance_reaches_without_scripts(tmp_path, capsys):
    """Random sets, those inside the task's domain, and the pool: as the command prints them."""
    draw = np.random.default_rng(0)
    groups = ["bird", "car"] * 10
    pool, task = tmp_path / "pool.npz", tmp_path / "task.npz"
    np.savez(pool, features=draw.random((20, 6)), names=[f"c{u}" for u in range(20)], groups=groups)
    np.savez(task, features=draw.random((5, 6)), names=list("vwxyz"), groups=["bird"] * 5)
    words = ["select", str(pool), "--novel", str(task), "-m", "3", "-k", "1"]
    assert main([*words, "--report", str(tmp_path / "run")]) == 0
    printed = re.sub(r"\s+", " ", capsys.readouterr().out)
    page, _ = checked(tmp_path / "run")
    shown = re.findall(
        r"<li><b>([\d.]+)</b><span>([^<]+)</span></li>", page.split('id="decide"')[0]
    )
    titles = ("value", "bound", "random", "domain", "pool")
    for title, (value, reached) in zip(titles, shown, strict=True):
        assert f"{title} {value}" in printed
        assert html.unescape(reached) in printed or title in ("value", "bound")
    assert shown[3][1].startswith("mean of 100 random choices inside the task")
    assert page.count("<title>domain 0.") == 1  # a mark of the chart


def test_columns_without_a_number_are_left_out_and_the_page_says_why(tmp_path):
    def headings(folder: Path, **settings: object) -> tuple[str, str]:
        folder.mkdir()
        _, balance = checked(selected(folder, **settings))
        return re.findall(r"similarity to nearest|ratio before|ratio after", balance.text), balance

    positive, balance = headings(tmp_path / "positive")
    assert positive == ["similarity to nearest", "ratio after"]  # no base classes before
    later, _ = headings(tmp_path / "later", selected=[3, 4])
    assert later == ["similarity to nearest", "ratio before", "ratio after"]
    assert "no Similarity Ratio" not in balance.text
    signed, balance = headings(tmp_path / "signed", similarity="centred")
    assert signed == ["similarity to nearest"]
    assert "There is no Similarity Ratio: it says nothing about similarities below" in balance.text


def test_the_gap_that_was_asked_for_is_not_taken_for_the_proven_one(tmp_path):
    problem = fb.SelectionProblem(np.random.default_rng(0).random((4, 9)), m=2, k=1)
    fb.select(problem, "auto").save(tmp_path / "selection.json")
    _, balance = checked(tmp_path)
    assert "gap asked for = 0" in balance.text
    assert ", gap = " not in balance.text


def test_the_same_folder_gives_the_same_page(run_folder):
    assert html_page(read_run(run_folder)) == html_page(read_run(run_folder))


def test_a_selection_alone_says_what_the_rest_would_take(tmp_path):
    page, balance = checked(selected(tmp_path, centroids=False))
    assert page.count('class="absent"') == 4  # map, accuracies, methods, configuration
    for file in ("classes-stage-i.npz", "novel_<protocol>.csv", "results.csv", "settings.yaml"):
        assert file in balance.text
    assert "pictures.npz" in balance.text
    assert "not certified" in balance.text


def test_a_selection_under_another_name_is_refused_with_the_name_to_give_it(tmp_path):
    selected(tmp_path, centroids=False)
    (tmp_path / "selection.json").rename(tmp_path / "chosen.json")
    with pytest.raises(InputError, match=r"found no selection-stage-1\.json, selection\.json"):
        read_run(tmp_path)


def test_a_table_of_results_alone_is_a_report(tmp_path):
    write_results(tmp_path)
    page, balance = checked(tmp_path)
    assert page.count('class="methods sortable"') == 2
    assert "selection-stage-1.json" in balance.text


def test_general_selection_has_no_novel_classes_on_its_map(tmp_path):
    page, balance = checked(selected(tmp_path, novel=None))
    assert "no particular task" in balance.text
    assert "data-n=" not in page  # only novel classes have lines to their neighbours
    assert "\nnovel</title>" not in page


def test_a_run_that_only_chose_at_random_so_far_says_so(run_folder, tmp_path):
    shutil.copy(run_folder / "selection-stage-1.json", tmp_path)
    _, balance = checked(tmp_path)
    assert "chosen at random" in balance.text


def test_classes_that_were_there_from_the_start_are_told_from_those_chosen(tmp_path):
    page, balance = checked(selected(tmp_path, selected=[3, 4]))
    assert "base classes before (2)" in balance.text
    assert page.count("class 3\nbase class from the start</title>") == 1


def test_a_run_with_every_class_chosen_and_one_novel_class(tmp_path):
    checked(selected(tmp_path, candidates=5, novel=1, m=5, k=9))


def test_hostile_names_are_escaped(tmp_path):
    page, balance = checked(selected(tmp_path, names=HOSTILE))
    for name in HOSTILE[:2]:
        assert name not in page
    assert "x" * 500 in balance.text
    assert "<script>document" in balance.text
    assert page.count("<script") == 2  # the data and the code


def test_no_character_can_break_a_page():
    assert content.printable("a\x00b\ud800c\x1b<&>\"'") == "a\ufffdb\ufffdc\ufffd<&>\"'"


def test_before_and_after_are_those_of_the_problem(run_folder):
    stage = read_run(run_folder).last
    settings = {name: stage.selection.hyperparameters[name] for name in ("m", "k", "selected")}
    problem = fb.SelectionProblem.from_centroids(
        stage.candidates.values, stage.novel.values, **settings
    )
    served = content.served_by(stage, content.problem_of(stage))
    after = problem.similarity_ratio(stage.selection.indices).tolist()
    assert [row.ratio.after for row in served] == pytest.approx(after, rel=1e-5)
    similarity = problem.similarity
    first = np.sort(similarity[:, list(problem.selected)], axis=1)[:, -problem.k :].mean(axis=1)
    assert [row.nearest.before for row in served] == pytest.approx(first.tolist(), rel=1e-5)
    better = [row.nearest.after >= row.nearest.before for row in served]
    assert all(better)


def test_the_value_of_random_choices_is_below_that_of_the_selection(run_folder):
    run = read_run(run_folder)
    drawn = content.content_of(run).controls
    for stage in run.stages[1:]:
        assert drawn[stage.number][0].mean < stage.selection.value


def test_other_similarities_have_no_random_reference(tmp_path):
    """Centroids that do not give the selection's value are not asked for others."""
    folder = selected(tmp_path)
    names = [f"class {i}" for i in range(30)]
    other = np.random.default_rng(5).random((30, 4))
    record.save_classes(folder, 1, ClassCentroids(other, names))
    assert content.problem_of(read_run(folder).last) is None
    checked(folder)


@pytest.mark.parametrize(
    "how",
    [{"similarity": "centred", "centre": "each"}, {"similarity": "whitened", "shrinkage": 0.2}],
    ids=str,
)
def test_options_of_the_similarity_are_those_of_the_selection(tmp_path, how):
    stage = read_run(selected(tmp_path, **how)).last
    problem = content.problem_of(stage)
    assert problem.value(stage.selection.indices) == pytest.approx(stage.selection.value)
    assert problem.matrix.space.options.items() <= how.items()


def test_a_signed_value_close_to_zero_is_recognised(tmp_path):
    """Rounding of the centroids is small beside similarities, not beside their mean."""
    draw = np.random.default_rng(0)
    base, task = draw.standard_normal((2, 30, 4))
    problem = fb.SelectionProblem.from_centroids(base, task, m=3, k=1, similarity="centred")
    chosen = min(combinations(range(30), 3), key=lambda chosen: abs(problem.value(chosen)))
    selection = fb.Selection.of(problem, list(chosen), method="given")
    rounded = base + 1e-6 * draw.standard_normal((30, 4))
    record.save_stage(tmp_path, 1, selection, (ClassCentroids(rounded), ClassCentroids(task)))
    again = content.problem_of(read_run(tmp_path).last)
    assert again is not None
    error = abs(again.value(selection.indices) - selection.value)
    assert 1e-4 * abs(selection.value) < error < 1e-5


def test_features_too_large_for_single_precision_are_kept(tmp_path):
    base = 1e300 * np.random.default_rng(0).random((6, 4))
    record.save_classes(tmp_path, 1, ClassCentroids(base))
    assert np.array_equal(record.load_classes(tmp_path / "classes-stage-1.npz")[0].values, base)


def test_costs_are_not_made_up(tmp_path):
    """Centroids tell the value but not the costs, without which a budget means nothing."""
    cost = np.arange(30) % 4 + 1
    stage = read_run(selected(tmp_path, cost=cost, budget=12.0)).last
    assert stage.selection.spent > len(stage.selection.indices)
    assert content.problem_of(stage) is None


def test_a_large_run_gives_a_small_page(tmp_path):
    """Of 20 000 candidates with pictures some are shown, and the page says so."""
    draw = np.random.default_rng(0)
    base, task = draw.random((20_000, 4)), draw.random((60, 4))
    names, novel_names = [f"c{i}" for i in range(20_000)], [f"n{i}" for i in range(60)]
    problem = fb.SelectionProblem.from_centroids(
        base, task, m=700, k=1, names=names, novel_names=novel_names
    )
    fb.select(problem, "random", certify=False).save(tmp_path / "selection-stage-1.json")
    classes = ClassCentroids(base, names), ClassCentroids(task, novel_names)
    record.save_classes(tmp_path, 1, *classes)
    pictures = draw.integers(0, 255, (20_000, 12, 12), np.uint8)
    np.savez(
        tmp_path / "pictures.npz",
        candidates=pictures,
        candidate_names=np.array(names),
        novel=pictures[:60],
        novel_names=np.array(novel_names),
    )
    page, balance = checked(tmp_path)
    assert len(page) < 3 * 2**20
    assert f"the map shows {content.MAP_POINTS} of 20060 classes" in balance.text
    assert page.count("data-i=") == content.MAP_POINTS
    assert "1500 of 20060" in balance.text


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("novel_5way_1shot.csv", "stage,head\n1,NC\n"),
        ("classes-stage-1.npz", "no archive"),
        ("pictures.npz", "no archive"),
        ("results.csv", "label,seed\nRandom,0\n"),
        ("selection.json", "{"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, file, text):
    selected(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=re.escape(file) if file != "results.csv" else "accuracy"):
        read_run(tmp_path)
