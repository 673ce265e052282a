"""learn2learn's own unit tests, as far as they need no download, pass in this environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

l2l = pytest.importorskip("learn2learn")

PASSING = {
    "nn/protonet_test.py": 3,
    "nn/kroneckers_test.py": 10,
    "data/transforms_test.py": 5,
    "data/utils_test.py": 2,
    "data/task_dataset_test.py": 5,
    "algorithms/maml_test.py": 8,
    "algorithms/metasgd_test.py": 5,
    "algorithms/gbml_test.py": 5,
    "utils_test.py": 10,
}
"""Files and numbers of tests; docs/learn2learn.md has the same list."""

# One of them calls an assertion by an old name, which Python 3.12 no longer has.
OLD_NAMES = """
from unittest import TestCase

TestCase.assertAlmostEquals = TestCase.assertAlmostEqual
"""


def test_they_pass(tmp_path: Path):
    folder = Path(l2l.__file__).parents[1] / "tests" / "unit"
    if not folder.is_dir():
        pytest.skip("this build of learn2learn came without its tests")
    # In a folder and with settings of its own: the package is called `tests`, like ours.
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider"]
    command += ["--rootdir", str(folder), "-W", "ignore", "-p", "old_names"]
    (tmp_path / "old_names.py").write_text(OLD_NAMES)
    done = subprocess.run(
        [*command, *(str(folder / name) for name in PASSING)],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) == sum(PASSING.values()) == 53


def test_the_list_is_in_the_documents():
    page = Path(__file__).resolve().parents[2] / "docs" / "learn2learn.md"
    text = page.read_text(encoding="utf-8")
    for name, count in PASSING.items():
        assert f"| `{name}` | {count} |" in text
