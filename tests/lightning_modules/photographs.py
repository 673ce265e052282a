"""Folders of real photographs for the tests, made of Tiny-ImageNet's JPEG files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


def photographs(data_folder: Path, root: Path, pool: int, task: int, images: int) -> None:
    """Write `root/pool` and `root/task`, one folder for each class, 64 x 64 JPEG files."""
    path = data_folder / "tinyimagenet_train100.npz"
    if not path.is_file():
        pytest.skip(f"real photographs not found: {path} is no file")
    with np.load(path) as archive:
        content, offset = archive["jpeg"].tobytes(), archive["offset"]
        labels, names = archive["label"], archive["class_name"]
    order = np.random.default_rng(0).permutation(len(names))[: pool + task]
    for number, label in enumerate(order.tolist()):
        name = str(names[label]).split()[0].replace("/", "-")
        folder = root / ("pool" if number < pool else "task") / name
        folder.mkdir(parents=True)
        for item in np.flatnonzero(labels == label)[:images].tolist():
            (folder / f"{item}.jpg").write_bytes(content[offset[item] : offset[item + 1]])
