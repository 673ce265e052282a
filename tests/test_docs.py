"""The documentation: walks that lead through files that exist, links, sizes, and code that runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def prose(text: str) -> list[str]:
    """Lines that are neither empty nor part of a table or of code."""
    found, code = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            code = not code
        elif not code and line.strip() and not line.startswith(("    ", "|")):
            found.append(line)
    return found


def blocks(path: Path, language: str) -> list[str]:
    """The code of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def walk(title: str) -> list[str]:
    """The steps of a walk of the architecture page."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. (.*)$", section, re.MULTILINE)


@pytest.mark.parametrize("title", ["One selection", "One stage of a cold start"])
def test_a_walk_has_at_most_25_steps_through_files_that_exist(title: str) -> None:
    steps = walk(title)
    assert 10 < len(steps) <= 25
    for step in steps:
        names = re.findall(r"`([\w/]+\.py|[\w/]+/)`", step)
        assert names, step
        for name in names:
            places = (ROOT, ROOT / "fsl_basesel", ROOT / "lightning_modules")
            assert any((place / name).exists() for place in places), name


def test_the_readme_and_the_pages_are_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130
    assert sum(len(prose(page.read_text(encoding="utf-8"))) for page in PAGES) <= 1500


def test_links_of_the_readme_lead_to_files() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)", text) + re.findall(r'src="([^"]+)"', text)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = set(re.findall(r"[\w/-]+\.md", str(settings["nav"])))
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert named == there


def test_the_selection_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    candidates, novel = rng.random((120, 8)), rng.random((30, 8))
    names = [f"class {c}" for c in range(120)]
    scope = {"candidates": candidates, "novel": novel, "names": names}
    exec(blocks(ROOT / "README.md", "python")[0], scope)
    assert len(scope["selection"].names) == 100
    assert (tmp_path / "selection.json").is_file()
