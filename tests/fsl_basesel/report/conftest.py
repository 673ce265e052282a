"""One trained run, and one real browser, for all tests of the report."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fsl_basesel.report.folders import trained

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)

Show = Callable[..., "Page"]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run; do not write to it."""
    return trained(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The installed browser."""
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium or Chrome is installed (Debian: apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def show(chromium: Browser) -> Iterator[Show]:
    """Opens a file; afterwards the console must be empty and nothing may have been fetched."""
    faults: list[str] = []
    contexts: list[Any] = []

    def fetched(request: Any) -> None:
        if not request.url.startswith(("data:", "file:", "about:", "blob:")):
            faults.append(f"fetched {request.url}")

    def opened(path: Path, *, scheme: str = "light", scripts: bool = True, width: int = 1200,
               **options: Any) -> Page:  # fmt: skip
        context = chromium.new_context(
            color_scheme=scheme,  # type: ignore[arg-type]
            java_script_enabled=scripts,
            viewport={"width": width, "height": 1000},
            **options,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", fetched)
        page.goto(path.resolve().as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []
