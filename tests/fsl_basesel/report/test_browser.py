"""The page in a real browser: what a reader sees, in light and dark, with scripts on and off."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fsl_basesel.report.page import html_page
from fsl_basesel.report.run import read_run
from tests.fsl_basesel.report.browser import Browser
from tests.fsl_basesel.report.folders import HOSTILE, selected

PARTS = "classes ratio neighbours gains bound accuracy methods configuration".split()


@pytest.fixture(scope="module")
def page(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html_page(read_run(run_folder)), encoding="utf-8")
    return path


def brightness(browser: Browser) -> float:
    return float(np.asarray(Image.open(io.BytesIO(browser.screenshot())).convert("L")).mean())


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_part_is_there_and_nothing_goes_wrong(
    browser: Browser, page: Path, scheme: str, scripts: bool
) -> None:
    browser.show(page, scheme, scripts)
    assert browser.faults == []
    assert browser.requests == []
    for part in PARTS:
        height = browser.value(f"document.querySelector('#{part}').getBoundingClientRect().height")
        assert height > 60, part
    assert browser.value("document.querySelectorAll('#map .p').length") == 32
    assert browser.value("document.querySelectorAll('#map .p.novel').length") == 8
    assert browser.value("document.querySelectorAll('.cards li').length") == 8
    assert browser.value("document.querySelectorAll('table.methods').length") == 2
    assert browser.value("document.querySelectorAll('.absent').length") == 0
    sides = "document.documentElement.scrollWidth <= innerWidth"
    assert browser.value(sides)  # nothing hangs over the side
    assert (brightness(browser) > 128) == (scheme == "light")


def test_without_scripts_every_mark_says_what_it_is(browser: Browser, page: Path) -> None:
    browser.show(page, scripts=False)
    titled = "[...document.querySelectorAll('#map .p')].every(p => p.querySelector('title'))"
    assert browser.value(titled)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(browser: Browser, page: Path, scheme: str) -> None:
    browser.show(page, scheme)
    colours = browser.value(
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


def test_pointing_at_a_class_shows_its_name_picture_and_neighbours(
    browser: Browser, page: Path
) -> None:
    browser.show(page)
    assert browser.value("document.querySelector('#tip').hidden")
    # The last mark drawn lies on top, so the mouse reaches it.
    last = "#map .p.novel:last-child"
    name = browser.value(f"document.querySelector('{last}').getAttribute('aria-label')")
    browser.point_at(last)
    assert not browser.value("document.querySelector('#tip').hidden")
    assert browser.value("document.querySelector('#tip b').textContent") == name.split("\n")[0]
    drawn = "getComputedStyle(document.querySelector('#tip .pic')).backgroundImage.slice(0, 21)"
    assert browser.value(drawn) == 'url("data:image/png;b'
    assert browser.value("document.querySelectorAll('#map .links line').length") == 2


def test_classes_can_be_found_and_tables_sorted_and_filtered(browser: Browser, page: Path) -> None:
    browser.show(page)
    browser.value(
        "(() => { const i = document.querySelector('#map-tools input');"
        "i.value = 'chosen in stage 3'; i.dispatchEvent(new Event('input')); })()"
    )
    assert browser.value("document.querySelectorAll('#map .lit').length") == 4
    browser.value("document.querySelectorAll('table.methods th button')[2].click()")
    first = "document.querySelector('table.methods tbody tr td').textContent"
    assert browser.value(first) == "<b>auto"
    browser.value(
        "(() => { const s = document.querySelector('#method-tools select'); s.value = '10';"
        "s.dispatchEvent(new Event('change')); })()"
    )
    assert browser.value("document.querySelectorAll('table.methods:not([hidden])').length") == 1
    assert browser.faults == []


def test_hostile_names_are_text_and_nothing_else(browser: Browser, tmp_path: Path) -> None:
    folder = selected(tmp_path, names=HOSTILE)
    page = tmp_path / "page.html"
    page.write_text(html_page(read_run(folder)), encoding="utf-8")
    browser.show(page)
    assert browser.faults == []
    assert browser.requests == []
    assert browser.value("document.title") != "owned"
    assert browser.value("document.querySelectorAll('img, main script, main b.x').length") == 0
    assert browser.value("document.querySelectorAll('section').length") == len(PARTS)
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    labels = browser.value(
        "[...document.querySelectorAll('#map .p')].map(p => p.getAttribute('aria-label'))"
    )
    assert any(label.startswith(HOSTILE[0]) for label in labels)


def test_a_narrow_screen_scrolls_figures_and_not_the_page(browser: Browser, page: Path) -> None:
    browser.show(page)
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.send("Emulation.setDeviceMetricsOverride", **size)
    assert browser.value("document.documentElement.scrollWidth") <= 390
