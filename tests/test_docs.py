"""The documentation: walks, links, sizes, names, commands, flags, exit codes, code that runs."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import yaml

from fsl_basesel import cli
from fsl_basesel.cli import fit, main

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


def test_the_walk_of_a_selection_is_what_a_trace_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    features = np.random.default_rng(0).random((25, 6))
    np.savez(tmp_path / "pool.npz", features=features[:20])
    np.savez(tmp_path / "task.npz", features=features[20:])
    words = ["select", str(tmp_path / "pool.npz"), "--novel", str(tmp_path / "task.npz"), "-m", "4"]
    main(words)  # imports everything
    package, seen = ROOT / "fsl_basesel", set()

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(Path(frame.f_code.co_filename))

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        main(words)
    finally:
        sys.setprofile(before)
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    helpers = text.split("Helpers that any file may use")[1].split("\n\n")[0]
    named = set(re.findall(r"`([\w/]+\.py)`", "\n".join(walk("One selection"))))
    named = {name.removeprefix("fsl_basesel/") for name in named}
    aside = {f"{name}.py" for name in re.findall(r"`([\w/]+)`", helpers)} | {"__init__.py"}
    files = {path.relative_to(package).as_posix() for path in seen if package in path.parents}
    assert files - aside == named


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


@pytest.mark.parametrize("package", ["fsl_basesel", "lightning_modules"])
def test_every_public_name_is_in_the_python_reference(package: str) -> None:
    listed = re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    names = importlib.import_module(package).__all__
    assert [name for name in names if f"{package}.{name}" not in listed] == []


def long_flags(command: str) -> set[str]:
    """The long flags of a command, `--help` left out."""
    (commands,) = (
        action
        for action in cli.build_parser([command])._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    parser = fit.flags() if command == "fit" else commands.choices[command]
    names = (name for action in parser._actions for name in action.option_strings)
    return {name for name in names if name.startswith("--")} - {"--help"}


def test_the_page_of_the_command_line_has_the_commands_flags_and_exit_codes_of_the_code() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8").replace("--nproc-per-node", "")  # torchrun
    flags = set().union(*map(long_flags, cli.COMMANDS))
    assert [name for name in cli.COMMANDS if f"\n    fsl-basesel {name} " not in page] == []
    assert set(re.findall(r"--[a-z][\w-]*", page)) - flags == {"--help"}
    texts = " ".join(path.read_text(encoding="utf-8") for path in [*PAGES, ROOT / "README.md"])
    assert flags - set(re.findall(r"--[a-z][\w-]*", texts)) == set()
    codes = {value for name, value in vars(cli).items() if name.startswith("EXIT_")}
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert listed == codes | {0, fit.EXIT_WAITING}


def test_the_selection_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    candidates, novel = rng.random((120, 8)), rng.random((30, 8))
    names = [f"class {c}" for c in range(120)]
    scope = {"candidates": candidates, "novel": novel, "names": names}
    exec(blocks(ROOT / "README.md", "python")[0], scope)
    assert len(scope["selection"].names) == 100
    assert (tmp_path / "selection.json").is_file()


@pytest.mark.parametrize(
    "path", sorted((DOCS / "results").glob("*.md")), ids=lambda path: path.stem
)
def test_tables_of_results_name_their_similarity(path: Path) -> None:
    if path.stem == "study-criteria":
        pytest.skip("its similarities are drawn, not computed from features")
    assert re.search("cosine|whitened", path.read_text(encoding="utf-8").split("\n| ")[0])
