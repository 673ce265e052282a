"""Figures for papers."""

import os
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

import fsl_basesel as fb
from fsl_basesel.report.figures import save_figures
from fsl_basesel.report.run import read_run
from tests.fsl_basesel.report.folders import HOSTILE, selected

ALL = {
    "accuracy",
    "class-map",
    "gains",
    "methods",
    "similarity",
    "similarity-ratio",
    "value-and-bound",
}


def test_every_figure_is_a_picture_with_something_in_it(run_folder, tmp_path):
    written = save_figures(read_run(run_folder), tmp_path)
    assert {path.stem for path in written} == ALL
    for path in written:
        if path.suffix == ".png":
            assert np.asarray(Image.open(path).convert("L")).std() > 4
        else:
            assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_figures_without_data_are_left_out(tmp_path):
    folder = selected(tmp_path, names=HOSTILE, centroids=False)
    written = save_figures(read_run(folder), tmp_path)
    names = {path.stem for path in written}
    assert names == {"gains", "similarity", "similarity-ratio", "value-and-bound"}


def test_the_same_run_gives_the_same_files(tmp_path):
    run = read_run(selected(tmp_path))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        save_figures(run, tmp_path / folder)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_figure_that_could_not_be_finished_leaves_the_old_one(tmp_path, monkeypatch):
    run = read_run(selected(tmp_path / "run", centroids=False))
    folder = tmp_path / "figures"
    before = {path: path.read_bytes() for path in save_figures(run, folder)}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_figures(read_run(selected(tmp_path / "other", m=3, centroids=False)), folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_titles_stand_above_the_legends(tmp_path):
    figure = fb.Selection.load(selected(tmp_path) / "selection.json").plot()
    figure.canvas.draw()
    for axes in figure.axes:
        legend = axes.get_legend()
        title = axes._left_title.get_window_extent()
        assert legend is None or title.y0 >= legend.get_window_extent().y1 - 1
