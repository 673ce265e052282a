"""Studies with planted slopes, for the tests of the study and of its command."""

from __future__ import annotations

import numpy as np

from fsl_basesel.study import Study


def planted(
    seed: int = 0,
    *,
    sets: int = 60,
    novel: int = 20,
    base: int = 60,
    size: int = 20,
    k: int = 3,
    beta1: float = 0.6,
    beta2: float = -0.3,
    noise: float = 0.02,
    **options: object,
) -> Study:
    """Accuracy = level + beta1 x1 + beta2 x2 + noise, with x1 and x2 by plain loops."""
    rng = np.random.default_rng(seed)
    similarity = rng.random((novel, base))
    chosen = [rng.choice(base, size, replace=False).tolist() for _ in range(sets)]
    x1, x2 = by_hand(similarity, chosen, k)
    level = rng.uniform(0.1, 0.3, novel)
    spread = noise * rng.normal(size=x1.shape)
    accuracy = level + beta1 * x1 + beta2 * x2 + spread
    return Study(similarity, chosen, np.clip(accuracy, 0, 1), **options)  # type: ignore[arg-type]


def by_hand(similarity: np.ndarray, sets: list[list[int]], k: int) -> tuple[np.ndarray, np.ndarray]:
    """x1 and x2 from their definition."""
    x1, x2 = np.empty((2, len(sets), len(similarity)))
    for s, members in enumerate(sets):
        for n, row in enumerate(similarity):
            values = sorted((float(row[b]) for b in members), reverse=True)
            x1[s, n] = sum(values[:k]) / k
            x2[s, n] = sum(values) / len(values)
    return x1, x2


def with_gaps(study: Study, share: float = 0.15) -> Study:
    """The same study with some accuracies missing."""
    accuracy = study.accuracy.copy()
    accuracy[np.random.default_rng(9).random(accuracy.shape) < share] = np.nan
    return Study(study.similarity, study.member, accuracy)
