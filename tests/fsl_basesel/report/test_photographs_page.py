"""The page that `select` writes for folders of photographs, in a real browser."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fsl_basesel as fb
from fsl_basesel.cli import main
from tests.fsl_basesel.report.conftest import Show

POOL = ("Persian cat", "cougar", "baboon", "ox", "abacus", "barn", "teapot", "sports car")
TASK = ("tabby", "lion", "chimpanzee")


@pytest.fixture(scope="module")
def chosen(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `--report` leaves behind for folders of JPEGs."""
    path = data_folder / "tinyimagenet_train100.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    root = tmp_path_factory.mktemp("photographs")
    with np.load(path) as pack:
        content, offset, labels = pack["jpeg"].tobytes(), pack["offset"], pack["label"]
        names = [name.partition(" ")[2].split(",")[0] for name in pack["class_name"].tolist()]
    for side, classes in (("pool", POOL), ("task", TASK)):
        for name in classes:
            folder = root / side / name
            folder.mkdir(parents=True)
            for image in np.flatnonzero(labels == names.index(name))[:4]:
                data = content[offset[image] : offset[image + 1]]
                (folder / f"{image}.jpg").write_bytes(data)
    words = ["select", str(root / "pool"), "--novel", str(root / "task"), "-m", "3", "-k", "1"]
    words += ["--size", "64", "--report", str(root / "chosen")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSL_BASESEL_CACHE", str(root / "cache"))
        assert main(words) == 0
    return root / "chosen"


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_of_photographs_opens_in_a_browser(
    show: Show, chosen: Path, scheme: str, width: int
) -> None:
    selection = fb.Selection.load(chosen / "selection.json")
    shown = show(chosen / "report.html", scheme=scheme, width=width)
    marks = [mark.get_attribute("aria-label") for mark in shown.locator("#map .mark").all()]
    assert sorted(mark.split("\n")[0] for mark in marks) == sorted((*POOL, *TASK))
    assert {mark.split("\n")[0] for mark in marks if "\nchosen" in mark} == set(selection.names)
    cards = shown.locator("#neighbours .cards > li")
    assert sorted(card.inner_text().split("\n")[0] for card in cards.all()) == sorted(TASK)
    picture = Image.open(io.BytesIO(cards.locator(".pic").first.screenshot())).convert("RGB")
    assert np.asarray(picture, float).std() > 20  # a photograph, no empty frame
    text = shown.locator("body").inner_text()
    assert "of the way from random sets to the bound" in text
    assert "backbone = efficientnet-lite0, preprocessing = bicubic resize 73, crop 64" in text
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
