"""An experiment small enough for tests: a few characters of 12 pixels, networks of 2 batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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


def known_result(accuracy: float, rng: np.random.Generator) -> dict:
    """A result as `run_trial` gives it."""
    return {
        "accuracy": {"NearestCentroid": {"1": [accuracy, accuracy], "2": [accuracy + 0.1] * 2}},
        "per_class": {
            "NearestCentroid": {"1": rng.random(4).tolist(), "2": rng.random(4).tolist()}
        },
        "classes": rng.choice(14, 4, replace=False).tolist(),
        "value": 0.5,
        "upper_bound": 0.51,
        "gap": 0.0196,
        "shares": {"1": 0.9, "3": 0.8},
        "selection_seconds": 0.1,
        "seconds": 1.0,
    }
