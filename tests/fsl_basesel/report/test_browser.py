"""The page in a real browser: what a reader sees, in light and dark, with scripts on and off."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fsl_basesel.report.page import PARTS, html_page
from fsl_basesel.report.run import read_run
from tests.fsl_basesel.report.conftest import Show
from tests.fsl_basesel.report.folders import HOSTILE, selected


@pytest.fixture(scope="module")
def page(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html_page(read_run(run_folder)), encoding="utf-8")
    return path


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_part_is_there_and_nothing_goes_wrong(
    show: Show, page: Path, scheme: str, scripts: bool
) -> None:
    shown = show(page, scheme=scheme, scripts=scripts)
    for part in PARTS:
        assert shown.locator(f"#{part}").bounding_box()["height"] > 60, part
    assert shown.locator("#map .mark").count() == 32
    assert shown.locator("#map .mark[data-n]").count() == 8
    assert shown.locator("#neighbours .cards > li").count() == 8
    assert shown.locator("table.methods").count() == 2
    assert shown.locator(".absent").count() == 0
    picture = Image.open(io.BytesIO(shown.screenshot())).convert("L")
    assert (np.asarray(picture).mean() > 128) == (scheme == "light")


def test_without_scripts_every_mark_says_what_it_is(show: Show, page: Path) -> None:
    shown = show(page, scripts=False)
    marks = shown.locator("svg .mark").count()
    assert marks > 50
    assert shown.locator("svg .mark > title").count() == marks


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(show: Show, page: Path, scheme: str) -> None:
    colours = show(page, scheme=scheme).evaluate(
        "['--ink', '--soft', '--chosen', '--novel', '--paper', '--panel'].map(name =>"
        "getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
    )

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    *texts, paper, panel = colours
    for text in texts:
        for ground in (paper, panel):
            low, high = sorted((light(text), light(ground)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_take_the_colours_of_the_page(show: Show, page: Path, scheme: str) -> None:
    """Nothing in a chart has a colour of its own, so that no text is black on black."""
    shown = show(page, scheme=scheme)
    assert shown.locator("svg.chart text").count() > 20
    left = shown.evaluate(
        "[...document.querySelectorAll('svg *')].map(e => e.getAttribute('style') || '')"
        ".filter(style => /#[0-9a-f]{3,}/.test(style))"
    )
    assert left == []


@pytest.mark.parametrize("width", [400, 1400])
def test_text_is_never_scaled_and_nothing_hangs_over_the_side(
    show: Show, page: Path, width: int
) -> None:
    shown = show(page, width=width)
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    scales = shown.evaluate(
        "[...document.querySelectorAll('svg')].filter(s => s.querySelector('text'))"
        ".map(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width)"
    )
    assert len(scales) > 4
    assert scales == pytest.approx([1.0] * len(scales))
    sizes = shown.evaluate(
        "[...document.querySelectorAll('svg text')]"
        ".map(text => parseFloat(getComputedStyle(text).fontSize))"
    )
    assert min(sizes) >= 11
    edges = shown.evaluate(
        "[...document.querySelectorAll('svg.chart text')].map(t => t.getBoundingClientRect())"
        ".flatMap(box => [box.left, box.right])"
    )
    assert min(edges) >= 0
    assert max(edges) <= width


def test_pointing_at_a_class_shows_its_name_picture_and_neighbours(show: Show, page: Path) -> None:
    shown = show(page)
    assert shown.locator("#tip").is_hidden()
    mark = shown.locator("#map .mark[data-n]").last
    mark.scroll_into_view_if_needed()
    name = mark.get_attribute("aria-label")
    box = mark.bounding_box()
    shown.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert shown.locator("#tip").is_visible()
    assert shown.locator("#tip b").text_content() == name.split("\n")[0]
    drawn = "getComputedStyle(document.querySelector('#tip .pic')).backgroundImage.slice(0, 21)"
    assert shown.evaluate(drawn) == 'url("data:image/png;b'
    assert shown.locator("#map .links").get_attribute("d").count("L") == 2
    shown.mouse.move(2, 2)
    assert shown.locator("#tip").is_hidden()


def test_classes_can_be_found_and_tables_sorted(show: Show, page: Path) -> None:
    shown = show(page)
    shown.locator("#map-tools input").fill("chosen in stage 3")
    assert shown.locator("#map .lit").count() == 4
    shown.locator("#map .lit").first.hover()  # what was found stays so when the pointer leaves
    assert shown.locator("#map .lit.near").count() == 1
    shown.locator("h1").hover()
    assert (shown.locator("#map .lit").count(), shown.locator("#map .near").count()) == (4, 0)
    shown.locator("table.methods th button").nth(2).click()
    assert shown.locator("table.methods tbody tr td").first.text_content() == "<b>auto"


def test_hostile_names_are_text_and_nothing_else(show: Show, tmp_path: Path) -> None:
    folder = selected(tmp_path, names=HOSTILE)
    path = tmp_path / "page.html"
    path.write_text(html_page(read_run(folder)), encoding="utf-8")
    shown = show(path)
    assert shown.title() != "owned"
    assert shown.locator("img, main script, main b.x").count() == 0
    assert shown.locator("section").count() == len(PARTS)
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    labels = shown.evaluate(
        "[...document.querySelectorAll('#map .mark')].map(p => p.getAttribute('aria-label'))"
    )
    assert any(label.startswith(HOSTILE[0]) for label in labels)


def test_a_narrow_screen_scrolls_tables_and_not_the_page(show: Show, page: Path) -> None:
    shown = show(page, width=390, is_mobile=True, has_touch=True)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
