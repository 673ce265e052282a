"""Studies and suggestions on disk, figures, and what is imported when."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.study import Study, Suggestion

from .study_data import planted, with_gaps


def test_the_same_seed_gives_the_same_suggestion() -> None:
    study = planted()
    assert study.suggest(seed=4).to_json() == study.suggest(seed=4).to_json()
    assert study.suggest(seed=4).lam_interval != study.suggest(seed=5).lam_interval


def test_a_study_is_read_back_as_it_was(tmp_path: Path) -> None:
    names = [f"狐 {i}" for i in range(60)]
    study = planted(names=names)
    similarity = study.similarity.astype(np.float32)
    study = Study(similarity, study.member, with_gaps(study).accuracy, names)
    path = study.save(tmp_path / "new" / "study.npz")
    again = Study.load(path)
    assert [file.name for file in path.parent.iterdir()] == ["study.npz"]
    assert (again.names, again.novel_names) == (study.names, study.novel_names)
    for field in ("similarity", "member", "accuracy"):
        one, two = getattr(study, field), getattr(again, field)
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)
    assert again.suggest([3]).to_json() == study.suggest([3]).to_json()


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    path = planted().save(tmp_path / "study.npz")
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="no space"):
        planted(1).save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["study.npz"]
    assert path.read_bytes() == before


def test_files_that_are_no_study_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    np.savez(other, similarity=np.ones((2, 2)))
    torn = tmp_path / "torn.npz"
    torn.write_bytes(planted().save(tmp_path / "whole.npz").read_bytes()[:2000])
    for path in (other, torn, tmp_path / "none.npz", tmp_path / "study.txt"):
        with pytest.raises(fb.InputError, match=path.name):
            Study.load(path)
    with pytest.raises(fb.InputError, match=r"ends in \.npz"):
        planted().save(tmp_path / "study.json")


def test_a_suggestion_is_read_back_as_it_was(tmp_path: Path) -> None:
    for study in (planted(), planted(beta1=0.0, beta2=0.0, noise=0.05)):  # the second holds NaN
        suggestion = study.suggest()
        again = Suggestion.load(suggestion.save(tmp_path / "new" / "suggestion.json"))
        assert again.to_json() == suggestion.to_json()
        assert (again.k, again.lam, again.reason) == (
            suggestion.k,
            suggestion.lam,
            suggestion.reason,
        )
        assert dataclasses.astuple(again.chosen)[:4] == dataclasses.astuple(suggestion.chosen)[:4]
    for text in ("{}", "[1]", "no json", '{"format": "fsl-basesel suggestion 1"}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(fb.InputError, match="could not be read"):
            Suggestion.load(tmp_path / "bad.json")


def test_figures_are_written_as_png_and_svg_and_no_backend_is_chosen(tmp_path: Path) -> None:
    import matplotlib
    from PIL import Image

    before = dict(matplotlib.rcParams)
    study = planted()
    written = study.figures(tmp_path / "new", study.suggest([1, 3, 10]))
    assert len(written) == 6
    for path in written:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert min(picture.size) > 500
                assert picture.convert("L").getextrema() == (0, 255)
        else:
            assert "<svg" in path.read_text()
    assert dict(matplotlib.rcParams) == before
    twice = study.figures(tmp_path / "again", study.suggest([1, 3, 10]))
    for one, two in zip(written, twice, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_figures_are_drawn_where_little_can_be_said(tmp_path: Path) -> None:
    study = planted(beta1=0.0, beta2=0.0, noise=0.05)
    assert len(study.figures(tmp_path, study.suggest([4]))) == 6


def test_plots_and_data_frames_are_imported_only_where_they_are_used() -> None:
    code = (
        "import sys, fsl_basesel.study, fsl_basesel.cli.suggest, fsl_basesel.cli.select\n"
        "import fsl_basesel.report.page, fsl_basesel.report.record\n"
        "assert not {'statsmodels', 'pandas', 'matplotlib', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
