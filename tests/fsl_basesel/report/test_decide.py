"""The page to decide with, used as people use it: mouse, touch and keyboard."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fsl_basesel as fb
from fsl_basesel.cli import main
from fsl_basesel.report.page import html_page
from fsl_basesel.report.record import load_problem, save_classes, save_problem
from fsl_basesel.report.run import read_run
from fsl_basesel.selectors.swap import WithSwaps
from fsl_basesel.similarity import ClassCentroids
from tests.fsl_basesel.report.conftest import Show
from tests.fsl_basesel.report.folders import HOSTILE, selected


def written(folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(html_page(read_run(folder)), encoding="utf-8")
    return path


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """30 candidates, 10 novel classes, m = 8, k = 3."""
    return written(selected(tmp_path))


def names(shown) -> list[str]:
    """Chosen classes as the table lists them."""
    return shown.evaluate(
        "[...document.querySelectorAll('#choice tbody tr')].filter(row => !row.className)"
        ".map(row => row.querySelector('.name bdi').textContent)"
    )


def test_the_chosen_classes_come_first_with_names_ranks_gains_and_whom_they_serve(
    show: Show, page: Path
) -> None:
    selection = fb.Selection.load(page.parent / "selection.json")
    for scripts in (False, True):
        shown = show(page, scripts=scripts)
        assert shown.locator("section").first.get_attribute("id") == "chosen"
        rows = [
            row.locator("td").all_inner_texts() for row in shown.locator("#choice tbody tr").all()
        ]
        assert [int(row[0]) for row in rows] == list(range(1, 9))
        assert [row[1].strip() for row in rows] == selection.names
        chosen = selection.explanation.chosen
        assert [row[2] for row in rows] == [f"{one.gain:.5f}" for one in chosen]
        for row, one in zip(rows, chosen, strict=True):
            assert int(row[3].partition("task")[0]) == len(one.serves)
            assert all(name in row[3] for name in one.serves[:6])


def test_without_scripts_nothing_is_offered_that_would_not_work(show: Show, page: Path) -> None:
    shown = show(page, scripts=False)
    assert shown.locator("#decide").is_hidden()
    assert shown.locator("#find").is_hidden()
    assert shown.locator("#verdict").inner_text()


def test_a_vetoed_class_goes_and_the_rest_is_chosen_again(show: Show, page: Path) -> None:
    shown = show(page)
    before = names(shown)
    shown.locator("button.veto").first.click()
    after = names(shown)
    assert before[0] not in after
    assert len(after) == len(before)
    changes = shown.locator("#changes").inner_text()
    assert before[0] in changes
    assert "served worse" in changes
    assert "of the best possible" in shown.locator("#verdict").inner_text()  # the bound holds
    value = float(shown.locator("#track-key li:has(.now) b").inner_text())
    then = float(shown.locator("#track-key li:has(.then) b").inner_text())
    assert value < then
    shown.locator("#reset").click()
    assert names(shown) == before
    assert shown.locator("#changes").is_hidden()


def test_a_forced_class_comes_in_although_it_is_bad(show: Show, page: Path) -> None:
    shown = show(page)
    before = names(shown)
    worst = next(name for name in (f"class {i}" for i in range(29, -1, -1)) if name not in before)
    shown.locator("#search").fill(worst)
    shown.locator("tr", has=shown.locator(f"bdi:text-is('{worst}')")).locator(
        "button.force"
    ).click()
    shown.locator("#search").fill("")
    after = names(shown)
    assert worst in after
    assert len(after) == len(before)


def test_a_smaller_m_keeps_the_bound_and_a_larger_one_does_not(show: Show, page: Path) -> None:
    shown = show(page)
    shown.locator("#m-number").fill("4")
    shown.wait_for_function("document.querySelectorAll('#choice tbody tr').length === 4")
    assert "of the best possible" in shown.locator("#verdict").inner_text()
    shown.locator("#m-number").fill("9")
    shown.wait_for_function("document.querySelectorAll('#choice tbody tr').length === 9")
    assert "does not hold" in shown.locator("#verdict").inner_text()
    key = shown.locator("#track-key").inner_text()
    assert "bound of the original limits" in key
    assert re.search(r"mean of 100 random choices; best [\d.]+, under the original limits", key)
    assert "of the way from random" not in shown.locator("#verdict").inner_text()
    shown.locator("#reset").click()
    assert "original limits" not in shown.locator("#track-key").inner_text()
    assert "of the way from random" in shown.locator("#verdict").inner_text()


def test_with_a_diversity_term_a_smaller_m_has_no_bound(show: Show, tmp_path: Path) -> None:
    shown = show(written(selected(tmp_path, lam=0.5)))
    shown.locator("button.veto").first.click()
    assert "does not hold" not in shown.locator("#verdict").inner_text()
    shown.locator("#m-number").fill("4")
    shown.wait_for_function("document.querySelectorAll('#choice tbody tr').length === 4")
    assert "does not hold" in shown.locator("#verdict").inner_text()


def test_what_is_saved_names_limits_and_choice(show: Show, page: Path) -> None:
    shown = show(page, accept_downloads=True)
    vetoed = names(shown)[0]
    shown.locator("button.veto").first.click()
    forced = names(shown)[3]
    shown.locator("button.force").nth(3).click()
    with shown.expect_download() as download:
        shown.locator("#save").click()
    assert download.value.suggested_filename == "limits.json"
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert saved["format"] == "fsl-basesel limits 1"
    assert (saved["m"], saved["exclude"], saved["include"]) == (8, [vetoed], [forced])
    assert saved["classes"] == names(shown)


def test_names_and_table_are_copied(show: Show, page: Path) -> None:
    shown = show(page, permissions=["clipboard-read", "clipboard-write"])
    shown.locator("#copy-text").click()
    shown.locator("#copy-text:text('Copied')").wait_for()
    assert shown.evaluate("navigator.clipboard.readText()").split("\n")[:-1] == names(shown)
    shown.locator("#copy-csv").click()
    shown.locator("#copy-csv:text('Copied')").wait_for()
    rows = list(csv.DictReader(io.StringIO(shown.evaluate("navigator.clipboard.readText()"))))
    assert [row["class"] for row in rows] == names(shown)
    selection = fb.Selection.load(page.parent / "selection.json")
    gains = [one.gain for one in selection.explanation.chosen]
    assert [float(row["gain"]) for row in rows] == pytest.approx(gains, abs=1e-6)
    assert rows[0]["serves"].split("; ") == list(selection.explanation.chosen[0].serves)


def test_the_table_sorts_and_finds(show: Show, page: Path) -> None:
    shown = show(page)
    in_order = names(shown)
    shown.locator("#choice th button", has_text="class").click()
    assert names(shown) == sorted(in_order, key=str.lower)
    shown.locator("#choice th button", has_text="rank").click()
    assert names(shown) == in_order
    shown.locator("#search").fill("class 2")
    found = shown.locator("#choice tbody .name bdi").all_text_contents()
    assert set(found) == {f"class {i}" for i in (2, *range(20, 30))}
    shown.locator("#search").fill("no such class")
    assert shown.locator("#choice tbody tr").count() == 0
    assert shown.locator("#listed").inner_text() == "0 listed"


def test_everything_works_by_keyboard_alone(show: Show, page: Path) -> None:
    shown = show(page, accept_downloads=True)
    focused = "document.activeElement.id || document.activeElement.className"

    def tab_to(wanted: str) -> None:
        for _ in range(80):
            shown.keyboard.press("Tab")
            if shown.evaluate(focused) == wanted:
                return
        raise AssertionError(f"{wanted} cannot be reached")

    tab_to("m")
    shown.keyboard.press("ArrowLeft")
    shown.wait_for_function("document.querySelectorAll('#choice tbody tr').length === 7")
    first = names(shown)[0]
    tab_to("toggle veto")
    shown.keyboard.press("Space")
    assert first not in names(shown)
    shown.evaluate("document.activeElement.blur()")
    tab_to("save")
    with shown.expect_download() as download:
        shown.keyboard.press("Enter")
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert (saved["m"], saved["exclude"]) == (7, [first])


def test_it_works_by_touch_on_a_telephone(show: Show, page: Path) -> None:
    shown = show(page, width=400, is_mobile=True, has_touch=True)
    button = shown.locator("button.veto").first
    box = button.bounding_box()
    assert box["height"] >= 32
    assert box["x"] + box["width"] <= 400
    first = names(shown)[0]
    button.tap()
    assert first not in names(shown)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 400


def test_on_paper_there_is_the_table_and_no_button(show: Show, page: Path) -> None:
    shown = show(page)
    shown.emulate_media(media="print")
    assert shown.locator("#choice tbody tr").count() == 8
    assert shown.locator("#choice tbody").is_visible()
    assert shown.locator("button:visible").count() == shown.locator("th button:visible").count()


def test_hostile_names_stay_text_after_choosing_again(show: Show, tmp_path: Path) -> None:
    shown = show(written(selected(tmp_path, names=HOSTILE)))
    shown.locator("#view").select_option("all")
    texts = shown.locator("#choice tbody .name bdi").all_text_contents()
    assert HOSTILE[0] in texts
    assert {HOSTILE[5], HOSTILE[6]} <= set(texts)  # letters from right to left
    row = shown.locator("#choice tbody tr").nth(texts.index(HOSTILE[6]))
    ends = row.locator("td").evaluate_all(
        "cells => cells.map((one) => one.getBoundingClientRect().left)"
    )
    assert ends == sorted(ends)
    shown.locator("button.veto").first.click()
    assert shown.locator("main img, main script").count() == 0
    assert shown.title() != "owned"
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_1000_candidates_and_100_novel_classes_with_pictures_stay_below_2_mb(
    show: Show, tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    base, task = draw.random((1000, 24)), draw.random((100, 24))
    labels = [f"n{i:08d} some animal, or another one" for i in range(1000)]
    novel = [f"novel class {i}" for i in range(100)]
    problem = fb.SelectionProblem.from_centroids(
        base, task, m=50, k=3, names=labels, novel_names=novel
    )
    fb.select(problem).save(tmp_path / "selection.json")
    save_classes(tmp_path, 1, ClassCentroids(base, labels), ClassCentroids(task, novel))
    smooth = draw.integers(0, 255, (1100, 8, 8, 3), np.uint8)
    pictures = np.stack([np.asarray(Image.fromarray(one).resize((64, 64))) for one in smooth])
    pictures = np.clip(pictures + draw.normal(0, 12, pictures.shape), 0, 255).astype(np.uint8)
    np.savez(
        tmp_path / "pictures.npz",
        candidates=pictures[:1000],
        candidate_names=np.array(labels),
        novel=pictures[1000:],
        novel_names=np.array(novel),
    )
    path = written(tmp_path)
    assert path.stat().st_size < 2_000_000
    shown = show(path)
    before = names(shown)
    shown.locator("button.veto").first.click()
    assert len(set(names(shown)) - set(before)) >= 1
    assert shown.locator("#choice tbody .pic.none").count() == 0


def limited(folder: Path) -> tuple[fb.SelectionProblem, Path]:
    """A problem with costs, a budget, groups and a cap, given as a matrix; and its page."""
    rng = np.random.default_rng(4)
    similarity = rng.random((12, 40)).astype(np.float32)
    problem = fb.SelectionProblem(
        similarity,
        m=10,
        k=2,
        cost=rng.integers(1, 9, 40),
        budget=30.0,
        groups=[f"group {u % 5}" for u in range(40)],
        at_most=3,
        names=[f"class {u}" for u in range(40)],
    )
    fb.select(problem).save(folder / "selection.json")
    save_problem(folder, 1, problem)
    return problem, written(folder)


def test_a_floor_of_ones_own_is_kept(tmp_path: Path) -> None:
    problem = fb.SelectionProblem(np.random.default_rng(0).random((3, 6)), m=1, k=2, floor=-2.0)
    selection = fb.select(problem)
    save_problem(tmp_path, 1, problem)
    again = load_problem(tmp_path / "problem-stage-1.npz", selection)
    assert (again.floor, again.value(selection.indices)) == (-2.0, selection.value)


def chosen(shown, problem: fb.SelectionProblem) -> list[int]:
    return [problem.names.index(name) for name in names(shown)]


def test_budgets_and_caps_are_those_of_python(show: Show, tmp_path: Path) -> None:
    problem, path = limited(tmp_path)
    shown = show(path)
    assert chosen(shown, problem) == fb.Selection.load(tmp_path / "selection.json").indices
    assert shown.locator("#choice th", has_text="cost").is_visible()
    assert "It costs" in shown.locator("#verdict").inner_text()
    steps: list[tuple[str, str, dict, bool]] = [
        ("#budget-number", "15", {"budget": 15.0}, True),
        ("#at_most", "1", {"at_most": 1}, True),
        ("#budget-number", "40", {"budget": 40.0}, False),  # more than the bound was proven for
        ("#at_most", "", {"at_most": None}, False),
        ("#at_least", "1", {"at_least": 1}, False),
    ]
    for field, value, change, holds in steps:
        problem = problem.replace(**change)
        shown.locator(field).fill(value)
        shown.wait_for_timeout(100)
        assert chosen(shown, problem) == WithSwaps().select(problem).indices, field
        assert ("does not hold" in shown.locator("#verdict").inner_text()) != holds, field
    with shown.expect_download() as download:
        shown.locator("#save").click()
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert (saved["budget"], saved["at_least"]) == (40, 1)
    assert "at_most" not in saved
    assert saved["groups"]["class 7"] == "group 2"
    assert saved["cost"]["class 7"] == problem.cost[7]


def test_limits_that_contradict_each_other_are_named_and_the_choice_stays(
    show: Show, tmp_path: Path
) -> None:
    _, path = limited(tmp_path)
    shown = show(path)
    before = names(shown)
    shown.locator("#at_least").fill("4")  # at most 3 of each group
    assert "too few classes for what it must have" in shown.locator("#verdict").inner_text()
    assert names(shown) == before
    shown.locator("#at_least").fill("")
    shown.locator("button.force").first.click()
    shown.locator("#budget-number").fill("0")
    shown.wait_for_timeout(100)
    assert "more than the budget" in shown.locator("#verdict").inner_text()
    shown.locator("#reset").click()
    assert names(shown) == before


def test_the_command_takes_what_the_page_saves_and_is_never_worse(
    show: Show, tmp_path: Path, capsys
) -> None:
    """Veto the best, force a bad one, halve m, set a budget, save, run again: proven."""
    rng = np.random.default_rng(2)
    pool, task = tmp_path / "pool.npz", tmp_path / "task.npz"
    np.savez(pool, features=rng.random((40, 8)), names=[f"c{u}" for u in range(40)])
    np.savez(task, features=rng.random((12, 8)), names=[f"t{n}" for n in range(12)])
    costs = "\n".join(["name,cost", *(f"c{u},{1 + u % 4}" for u in range(40))])
    (tmp_path / "cost.csv").write_text(costs)
    command = ["select", str(pool), "--novel", str(task), "-k", "2"]
    money = ["--cost", str(tmp_path / "cost.csv"), "--budget", "60"]
    assert main([*command, "-m", "10", *money, "--report", str(tmp_path / "chosen")]) == 0
    shown = show(tmp_path / "chosen" / "report.html", accept_downloads=True)
    best = names(shown)[0]
    shown.locator("button.veto").first.click()
    bad = next(f"c{u}" for u in range(39, -1, -1) if f"c{u}" not in names(shown))
    shown.locator("#search").fill(bad)
    shown.get_by_role("button", name=f"Force {bad}", exact=True).click()
    shown.locator("#search").fill("")
    shown.locator("#m-number").fill("5")
    shown.locator("#budget-number").fill("12")
    shown.wait_for_timeout(200)
    ours = names(shown)
    value = float(shown.locator("#track-key li:has(.now) b").inner_text())
    with shown.expect_download() as download:
        shown.locator("#save").click()
    download.value.save_as(tmp_path / "limits.json")
    again = tmp_path / "again.json"
    limits = ["--limits", str(tmp_path / "limits.json")]
    assert main([*command, *limits, "--out", str(again)]) == 0
    found = fb.Selection.load(again)
    assert best not in found.names
    assert bad in found.names
    assert len(found.names) <= 5
    assert found.spent <= 12
    assert found.value >= value - 1e-6
    assert set(found.names) == set(ours) or found.value > value
    assert found.upper_bound >= found.value
    assert found.gap < 0.05
