"""Packaging: what is declared is pinned and explained, and what is shipped is complete."""

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fsl_basesel.multilinear import triton
from lightning_modules import INSTALL_LEARN2LEARN

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("fsl_basesel", "lightning_modules")
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def declared() -> Iterator[Requirement]:
    """Every dependency of pyproject.toml, the extras' too, the project's own name left out."""
    extras = PROJECT["optional-dependencies"].values()
    for requirement in map(Requirement, chain(PROJECT["dependencies"], *extras)):
        if requirement.name != PROJECT["name"]:
            yield requirement


def applies(requirement: Requirement, python: str) -> bool:
    environment = {"python_version": python, "python_full_version": python + ".0", "extra": ""}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def pins(python: str) -> dict[str, list[Requirement]]:
    """The lines of constraints.txt that hold on that Python, by package."""
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            if applies(requirement, python):
                found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def test_constraints_are_plain_exact_versions() -> None:
    text = (ROOT / "constraints.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        requirement = Requirement(line)  # refuses pip options such as --hash and --index-url
        assert requirement.url is None
        assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), line
    assert "://" not in text
    assert "sha256" not in text


@pytest.mark.parametrize("python", PYTHONS)
def test_no_package_is_pinned_twice(python: str) -> None:
    assert {name: found for name, found in pins(python).items() if len(found) != 1} == {}


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_is_pinned_within_its_bounds(python: str) -> None:
    pinned = pins(python)
    for requirement in declared():
        if applies(requirement, python):
            (pin,) = pinned[canonicalize_name(requirement.name)]
            (version,) = pin.specifier
            assert requirement.specifier.contains(version.version), f"{requirement} but {pin}"


def test_versions_that_are_too_old_are_not_allowed() -> None:
    bounds = {requirement.name: requirement.specifier for requirement in declared()}
    assert not bounds["pytorch-lightning"].contains("2.6.5")  # it runs code named in a checkpoint
    before = (triton.OLDEST[0], triton.OLDEST[1] - 1)
    assert not bounds["triton"].contains("{}.{}.9".format(*before))


def imported_by(path: Path) -> set[str]:
    """Modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def test_every_package_that_is_imported_is_declared() -> None:
    known = {canonicalize_name(requirement.name) for requirement in declared()}
    owners = importlib.metadata.packages_distributions()
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    names = {module.partition(".")[0] for path in files for module in imported_by(path)}
    for name in names - set(sys.stdlib_module_names) - set(PACKAGES):
        if name in owners:  # else an optional library that is not installed here
            assert known & set(map(canonicalize_name, owners[name])), name


def test_only_what_trains_imports_lightning_modules() -> None:
    package = ROOT / "fsl_basesel"
    users = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(module.startswith("lightning_modules") for module in imported_by(path))
    }
    assert users == {"cli/fit.py", "cli/demo.py", "cli/reproduce.py", "backbones.py"}


def test_citation_and_workflow_follow_the_project() -> None:
    assert f"version: {PROJECT['version']}" in (ROOT / "CITATION.cff").read_text()
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert all(f'"{python}"' in workflow for python in PYTHONS)


def test_every_dependency_is_explained() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    explained = set(re.findall(r"^\| `([\w.-]+)` \|", text, flags=re.MULTILINE))
    assert {requirement.name for requirement in declared()} - explained == set()


def test_the_learn2learn_commands_agree_everywhere() -> None:
    (pin,) = pins("3.11")["learn2learn"]
    assert INSTALL_LEARN2LEARN.endswith(f" {pin}")
    page = " ".join((ROOT / "docs" / "install.md").read_text().split())
    for command in INSTALL_LEARN2LEARN.split(" && "):
        assert command in page
    for option in ("--no-deps", "--use-pep517", "--config-settings=--build-option=build_ext"):
        assert option in INSTALL_LEARN2LEARN
        assert option in (ROOT / "Makefile").read_text()


def test_the_commands_of_learn2learn_install_what_its_extra_lists() -> None:
    extra = {Requirement(line).name for line in PROJECT["optional-dependencies"]["learn2learn"]}
    first, _ = INSTALL_LEARN2LEARN.split(" && ")
    assert set(first.removeprefix("pip install ").split()) == extra


def test_the_console_script_resolves_and_answers() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="fsl-basesel")
    assert callable(script.load())
    command = Path(sys.executable).with_name("fsl-basesel")
    answer = subprocess.run([command, "--help"], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    assert "select" in answer.stdout


def test_the_version_is_the_one_of_pyproject() -> None:
    assert importlib.metadata.version("fsl-basesel") == PROJECT["version"]


def test_the_wheel_holds_every_file_of_both_packages_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    cached = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=cached)
    (source / "tests").mkdir()
    (source / "tests" / "__init__.py").touch()
    shutil.copytree(ROOT / "configs", source / "configs")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)

    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    made = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=source, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr

    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    expected = {
        path.relative_to(source).as_posix()
        for package in PACKAGES
        for path in (source / package).rglob("*")
        if path.is_file()
    }
    configs = {
        f"fsl_basesel/{path.relative_to(source).as_posix()}"
        for path in (source / "configs").rglob("*")
        if path.is_file()
    }
    assert "fsl_basesel/configs/reproduce/demo.yaml" in configs
    assert shipped == expected | configs
    assert {f"{package}/py.typed" for package in PACKAGES} <= shipped
    assert any(name.endswith("licenses/LICENSE") for name in names)

    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    found = "from lightning_modules.experiments import plan; print(plan.FOLDER, *plan.names())"
    answer = subprocess.run(
        [sys.executable, "-c", found],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
    )
    folder, *experiments = answer.stdout.split()
    assert folder == str(tmp_path / "installed" / "fsl_basesel" / "configs" / "reproduce")
    assert "demo" in experiments


def test_the_repository_has_no_links_which_windows_clones_would_break() -> None:
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git clone")
    assert [line for line in listed.stdout.splitlines() if line.startswith("120000")] == []


def test_make_help_lists_the_targets() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True).stdout
    for target in ("help", "demo", "test", "install", "clean"):
        assert re.search(rf"^make {target} +\w", shown, flags=re.MULTILINE)
