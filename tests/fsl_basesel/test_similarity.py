"""Class centroids from features and labels, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fsl_basesel.errors import InputError
from fsl_basesel.similarity import ClassCentroids, class_centroids


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


def test_class_centroids_keep_names_groups_and_numbers_of_images() -> None:
    kept = ClassCentroids(np.eye(2, dtype=np.float16), ["a", "b"], ["x", "x"], [3, 4])
    assert kept.values.dtype == np.float32
    assert len(kept) == 2
    assert (kept.names, kept.groups) == (("a", "b"), ("x", "x"))
    assert kept.images is not None
    assert kept.images.tolist() == [3, 4]
    bare = ClassCentroids([[1, 2]])
    assert (bare.names, bare.groups, bare.images) == (("0",), None, None)
    with pytest.raises(AttributeError):
        bare.names = ("b",)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0],), "`values` to be a matrix"),
        ((np.eye(2), ["a", "a"]), "`names` to be unique but 'a'"),
        ((np.eye(2), ["a"]), r"`names` to name every class \(2\) but got 1"),
        (
            (np.eye(2), None, ["x"]),
            "`groups` to have one entry for each of the 2 classes but got 1",
        ),
        ((np.eye(2), None, None, [1]), "`images` to be 2 integers"),
        ((np.eye(2), None, None, [1, -1]), "got -1 for class 1"),
        ((np.eye(2), None, None, [1.5, 2.0]), "`images` to be 2 integers"),
    ],
)
def test_class_centroids_that_do_not_fit_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClassCentroids(*arguments)
