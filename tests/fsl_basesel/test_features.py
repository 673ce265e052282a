"""Class centroids from features and labels, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fsl_basesel.errors import InputError
from fsl_basesel.features import class_centroids


def test_centroids_are_class_means_in_float64() -> None:
    rng = np.random.default_rng(0)
    features = rng.random((50, 3), dtype=np.float32)
    labels = np.concatenate([np.arange(4), rng.integers(0, 4, 46)])
    expected = [features[labels == c].astype(np.float64).mean(0) for c in range(4)]
    found = class_centroids(features, labels, n_classes=4)
    assert found.dtype == np.float64
    assert np.allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("labels", "n_classes", "message"),
    [
        ([0, 1], 2.0, "`n_classes` to be an integer but got 2.0"),
        ([0, 1], "2", "`n_classes` to be an integer but got '2'"),
        ([0, 2], 2, "`labels` between 0 and 1 but got values from 0 to 2"),
        ([-1, 0], None, "`labels` between 0 and 0 but got values from -1 to 0"),
        ([0, 0], 2, "class 1 has none"),
        ([0.0, 1.0], None, "`labels` to be 2 integers"),
        ([0], None, "`labels` to be 2 integers"),
    ],
)
def test_bad_labels_and_counts_are_refused(labels: Any, n_classes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        class_centroids([[1.0], [2.0]], labels, n_classes)
