"""A map of classes: points in the plane such that classes with similar features are neighbours.

t-SNE (van der Maaten and Hinton, 2008) on cosine distances, started from the principal components,
so that there is nothing random in it; where machines differ in the last digit of a product, maps
may still turn out differently, as good as each other. The sums over all pairs are exact: a map has
at most a thousand points, since more cannot be told apart on a page.
"""

from __future__ import annotations

import numpy as np

ITERATIONS, EXAGGERATED = 350, 100
"""Steps in all, and those at the start in which neighbours attract each other more."""
EXAGGERATION = 12.0


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
    distances = np.maximum(0.0, 2 - 2 * (unit @ unit.T))
    affinities = _affinities(distances, min(perplexity, (len(unit) - 1) / 3))
    return _framed(principal_components(_descend(affinities, start)))  # wider than high


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


def _affinities(distances: np.ndarray, perplexity: float) -> np.ndarray:
    """Symmetric probabilities of being neighbours; each row's width found by bisection."""
    count = len(distances)
    squared = distances.copy()
    np.fill_diagonal(squared, np.inf)
    squared -= squared.min(axis=1, keepdims=True)  # classes that coincide are no problem then
    low: np.ndarray = np.zeros(count)
    high: np.ndarray = np.full(count, np.inf)
    typical = np.where(np.isfinite(squared), squared, 0.0).mean()
    beta: np.ndarray = np.full(count, 1 / max(typical, 1e-12))
    target = np.log(perplexity)
    for _ in range(60):
        weights = np.exp(-squared * beta[:, None])
        total = weights.sum(axis=1)
        product = np.where(np.isfinite(squared), squared, 0.0) * weights
        entropy = np.log(total) + beta * product.sum(axis=1) / total
        wide = entropy > target
        low, high = np.where(wide, beta, low), np.where(wide, high, beta)
        beta = np.where(np.isinf(high), beta * 2, (low + high) / 2)
    conditional = weights / total[:, None]
    return np.maximum((conditional + conditional.T) / (2 * count), 1e-12)


def _descend(affinities: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Gradient descent with momentum and a gain for each coordinate, as in the paper."""
    count = len(start)
    y = start / max(start[:, 0].std(), 1e-12) * 1e-2
    # Classes that coincide would never part; a spiral of a millionth tells them apart.
    turn = np.arange(count) * 2.399963
    y = y + 1e-6 * np.sqrt(np.arange(count) + 1)[:, None] * np.stack(
        [np.cos(turn), np.sin(turn)], 1
    )
    step, gains = np.zeros_like(y), np.ones_like(y)
    rate = max(count / EXAGGERATION, 20.0)
    attraction = affinities.astype(np.float32)
    for iteration in range(ITERATIONS):
        early = iteration < EXAGGERATED
        kernel = _kernel(y)
        q = kernel / kernel.sum()
        force = (attraction * (EXAGGERATION if early else 1.0) - q) * kernel
        gradient = 4 * (force.sum(axis=1)[:, None] * y - force @ y.astype(np.float32))
        same = np.sign(gradient) == np.sign(step)
        gains = np.maximum(np.where(same, gains * 0.8, gains + 0.2), 0.01)
        step = (0.5 if early else 0.8) * step - rate * gains * gradient
        y = y + step
        y -= y.mean(axis=0)
    return y


def _kernel(y: np.ndarray) -> np.ndarray:
    """Student's t kernel of all pairs, zero on the diagonal."""
    small = y.astype(np.float32)
    squares = (small * small).sum(axis=1)
    kernel = squares[:, None] + squares[None, :]
    kernel -= 2 * (small @ small.T)
    np.maximum(kernel, 0, out=kernel)
    kernel += 1
    np.reciprocal(kernel, out=kernel)
    np.fill_diagonal(kernel, 0)
    return kernel


def _framed(plane: np.ndarray) -> np.ndarray:
    """Centred between its extremes and scaled to fit, both coordinates alike."""
    low, high = plane.min(axis=0), plane.max(axis=0)
    return (plane - (low + high) / 2) / max(float((high - low).max()) / 2, 1e-12)
