"""Folders of real photographs for the tests, made of Tiny-ImageNet's JPEG files."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.fit_photographs import ARCHIVE, make_folders


def photographs(data_folder: Path, root: Path, pool: int, task: int, images: int) -> None:
    """Write `root/pool` and `root/task`, one folder for each class, 64 x 64 JPEG files."""
    path = data_folder / ARCHIVE
    if not path.is_file():
        pytest.skip(f"real photographs not found: {path} is no file")
    make_folders(path, root, pool, task, images)
