"""The map of classes: neighbours stay neighbours, and there is nothing random in it."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from fsl_basesel.report.projection import class_map


def families(count: int, each: int, dimensions: int = 32) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(count, dimensions))
    points = np.repeat(centres, each, axis=0) + 0.3 * draw.normal(size=(count * each, dimensions))
    return points, np.repeat(np.arange(count), each)


def share_of_own(plane: np.ndarray, labels: np.ndarray, k: int = 3) -> float:
    """How many of the nearest neighbours on the map are of the same family."""
    distances = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :k]
    return float((labels[nearest] == labels[:, None]).mean())


def test_families_stay_together_better_than_on_principal_components():
    points, labels = families(15, 8)
    ours = share_of_own(class_map(points), labels)
    assert ours > 0.97
    assert ours > share_of_own(PCA(2).fit_transform(points), labels) + 0.1


def test_the_map_fits_its_frame_and_is_the_same_every_time():
    points, _ = families(6, 6)
    plane = class_map(points)
    assert np.abs(plane).max() == pytest.approx(1)
    assert np.array_equal(plane, class_map(points))


def test_lengths_do_not_count():
    points, _ = families(4, 4)
    scaled = points * 2.0 ** (np.arange(len(points)) % 5)[:, None]  # exact, so not a bit differs
    assert np.array_equal(class_map(points), class_map(scaled))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_few_classes_have_a_map(count):
    plane = class_map(np.eye(9)[:count])
    assert plane.shape == (count, 2)
    assert np.isfinite(plane).all()


def test_classes_that_coincide_have_a_map():
    assert np.isfinite(class_map(np.ones((12, 3)))).all()
    points = np.concatenate([np.eye(3).repeat(5, axis=0), np.zeros((2, 3))])
    assert np.isfinite(class_map(points)).all()
