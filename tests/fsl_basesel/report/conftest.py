"""One trained run, and one browser, for all tests of the report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fsl_basesel.report.browser import Browser, find_browser
from tests.fsl_basesel.report.folders import trained


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run; do not write to it."""
    return trained(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real browser, where one is installed."""
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium or Chrome is installed (Debian: apt-get install chromium)")
    found = Browser(program)
    yield found
    found.close()
