"""An experiment small enough for tests: a few characters of 12 pixels, networks of 2 batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SETTINGS: dict[str, Any] = {
    "title": "A small experiment",
    "data": {
        "class_path": "lightning_modules.sources.GlyphDataModule",
        "init_args": {
            "candidates": 14, "novel_classes": 4, "pretraining": 4, "preview": 4, "per_class": 14,
            "queries": 5, "size": 12,
        },
    },
    "datasets": {"plain": {"init_args": {"domain": "plain"}, "paper": "pretrained-imagenet"},
                 "fine": {"init_args": {"domain": "fine"}}},
    "model": {"backbone": "strided3", "lr": 0.1, "schedule": "one-cycle"},
    "training": {"batch_size": 32, "epochs": 1, "trainer": {"accelerator": "cpu"}},
    "pretraining": {"batch_size": 32, "epochs": 1, "trainer": {"accelerator": "cpu"}},
    "m": [4],
    "shots": [1, 2],
    "supports": 2,
    "heads": ["NearestCentroid"],
    "repeats": 2,
    "methods": {
        "Random": {"method": "random"},
        "Alg. 2, K=1": {"method": "greedy-target", "k": 1},
    },
}  # fmt: skip


def small_yaml(folder: Path, **changes: Any) -> str:
    """The experiment with some settings changed, as a file."""
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(SETTINGS | changes, sort_keys=False), encoding="utf-8")
    return str(path)
