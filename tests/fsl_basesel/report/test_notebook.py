"""A selection in a notebook: table, data frame, figures."""

from __future__ import annotations

import pytest

import fsl_basesel as fb
from tests.fsl_basesel.report.conftest import Show
from tests.fsl_basesel.report.folders import HOSTILE, selected


@pytest.fixture
def selection(tmp_path):
    selected(tmp_path, names=HOSTILE)
    return fb.Selection.load(tmp_path / "selection.json")


def test_a_selection_shows_itself_as_a_table(show: Show, tmp_path, selection) -> None:
    path = tmp_path / "cell.html"
    path.write_text("<!doctype html><meta charset=utf-8>" + selection._repr_html_(), "utf-8")
    shown = show(path)
    rows = [row.locator("td").all_text_contents() for row in shown.locator("tbody tr").all()]
    printed = [name.replace("\x00", "\ufffd").replace("\x07", "\ufffd") for name in selection.names]
    assert [row[1] for row in rows] == printed
    assert [row[2] for row in rows] == [f"{row['gain']:.5f}" for row in selection.rows()]
    assert shown.locator("img, script").count() == 0


def test_the_rows_come_as_a_data_frame(selection) -> None:
    pytest.importorskip("pandas")
    frame = selection.to_pandas()
    assert frame["name"].tolist() == selection.names
    assert frame["rank"].tolist() == list(range(1, len(selection.names) + 1))
    assert frame["gain"].sum() == pytest.approx(selection.value)  # from nothing, lam = 0
    assert frame["serves"].map(len).sum() == 3 * 10  # k of each novel class


def test_the_figures_are_one_matplotlib_figure(selection) -> None:
    figure = selection.plot()
    figure.canvas.draw()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert {"similarity to 3 nearest", "Similarity Ratio", "h of each selection"} < set(titles)
