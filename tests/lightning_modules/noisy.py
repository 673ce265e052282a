"""A novel task that is hard enough for accuracies to differ."""

from __future__ import annotations

import numpy as np

from fsl_basesel.data import NovelTask, from_arrays


def noisy_task(classes: int = 6, shots: int = 4, queries: int = 5, seed: int = 1) -> NovelTask:
    """Faint patterns under noise, 8 x 8 pixels, 12 images per class."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((classes, 1, 1, 8, 8)) * (rng.random((classes, 1, 1, 8, 8)) > 0.7)
    noise = rng.random((classes, 12, 1, 8, 8))
    pictures = (0.4 * patterns + 0.6 * noise).reshape(-1, 1, 8, 8).astype(np.float32)
    labels = np.repeat(np.arange(classes), 12)
    source = from_arrays(pictures, labels, [f"novel {c}" for c in range(classes)])
    return NovelTask(source, shots=shots, queries=queries, seed=3)
