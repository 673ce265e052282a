"""`fsl-basesel demo`: small, but the whole way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fsl_basesel as fb
from fsl_basesel.cli.demo import edge_histograms


def test_the_demo_compares_explains_and_saves(run, tmp_path: Path) -> None:
    words = ("--candidates", 40, "--novel", 10, "-m", 8, "--domain", "fine", "--out", tmp_path)
    result = run("demo", *words)
    assert (result.code, result.err) == (0, "")
    for method in fb.methods():
        assert f" {method} " in result.out
    assert "Why these classes" in result.out
    assert "latin" in result.out.split("What do the novel classes get?")[1]
    selection = fb.Selection.load(tmp_path / "selection.json")
    assert len(selection.indices) == 8
    assert selection.gap is not None
    assert (tmp_path / "comparison.csv").read_text().count("\n") == len(fb.methods()) + 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--candidates", "20", "--novel", "5", "-m", "21"], "`m`"),
        (["--candidates", "100000"], "candidates"),
        (["--out", "/dev/null/demo"], "Expected to write /dev/null/demo/selection.json"),
    ],
)
def test_bad_settings_are_one_line(run, words: list[str], message: str) -> None:
    result = run("demo", *words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_edges_tell_directions_and_places_but_not_contrast() -> None:
    bar = torch.zeros(1, 1, 28, 28)
    bar[..., 10:14, 3:25] = 0.8
    same, faint = edge_histograms(bar), edge_histograms(0.3 * bar)
    turned = edge_histograms(bar.transpose(2, 3))
    inverted = edge_histograms(1 - bar)
    torch.testing.assert_close(same, faint)
    torch.testing.assert_close(same, inverted, rtol=0, atol=1e-3)
    assert float((same * turned).sum()) < 0.3
    assert float(same.norm()) == pytest.approx(1.0)
    assert not edge_histograms(torch.ones(1, 1, 28, 28)).any()
