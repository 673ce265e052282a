"""A map of classes: points in the plane such that classes with similar features are neighbours.

t-SNE (van der Maaten and Hinton, 2008) of scikit-learn on unit vectors, started from the principal
components, so that nothing in it is random. Machines that differ in the last digit of a product may
still draw different maps, each as good as the other.
"""

from __future__ import annotations

import numpy as np


def class_map(centroids: np.ndarray, perplexity: float = 20.0) -> np.ndarray:
    """Place classes in the plane.

    Args:
        centroids: `[n, d]`; directions count, lengths do not.
        perplexity: About how many neighbours of each class are to stay near it.

    Returns:
        `[n, 2]` float64, centred, each coordinate within -1 to 1.

    Example:
        >>> class_map(np.eye(3)).shape
        (3, 2)
    """
    unit = np.asarray(centroids, np.float64)
    lengths = np.linalg.norm(unit, axis=1, keepdims=True)
    unit = unit / np.where(lengths > 0, lengths, 1.0)
    if not len(unit):
        return np.zeros((0, 2))
    start = principal_components(unit)
    if len(unit) < 8 or not start.any():
        return _framed(start)
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # Classes that coincide would never part; a spiral of a millionth tells them apart.
    turn = np.arange(len(unit))[:, None] * 2.399963 + np.array([0.0, -np.pi / 2])
    spiral = np.sqrt(np.arange(len(unit)) + 1)[:, None] * np.cos(turn)
    begin = start / max(start[:, 0].std(), 1e-12) * 1e-4 + 1e-6 * spiral
    neighbours = min(perplexity, (len(unit) - 1) / 3)
    tsne = TSNE(perplexity=neighbours, init=begin.astype(np.float32), max_iter=500, random_state=0)
    with threadpool_limits(1):  # repeatable, and threads that share a core make it slower
        plane = np.asarray(tsne.fit_transform(unit.astype(np.float32)), np.float64)
    return _framed(principal_components(plane))  # wider than high


def principal_components(points: np.ndarray) -> np.ndarray:
    """The two directions of most variance, `[n, 2]`, each with its largest entry positive."""
    centred = points - points.mean(axis=0)
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    plane = np.zeros((len(points), 2))
    count = min(2, left.shape[1])
    plane[:, :count] = left[:, :count] * scale[:count]
    for column in plane.T:
        if len(column) and column[np.abs(column).argmax()] < 0:
            column *= -1
    return plane


def _framed(plane: np.ndarray) -> np.ndarray:
    """Centred between its extremes and scaled to fit, both coordinates alike."""
    low, high = plane.min(axis=0), plane.max(axis=0)
    return (plane - (low + high) / 2) / max(float((high - low).max()) / 2, 1e-12)
