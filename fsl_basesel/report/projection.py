"""A map of classes: points in the plane such that classes with similar features are neighbours.

t-SNE (van der Maaten and Hinton, 2008) on unit vectors, started from the principal components, both
of scikit-learn, so that nothing in it is random. Machines that differ in the last digit of a
product may still draw different maps, each as good as the other.
"""

from __future__ import annotations

import numpy as np


def class_map(centroids: np.ndarray) -> np.ndarray:
    """Places in the plane for classes `[n, d]`, of which directions count and lengths do not.

    They are `[n, 2]` float64, centred, each coordinate within -1 to 1.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from sklearn.preprocessing import normalize
    from threadpoolctl import threadpool_limits

    if len(centroids) < 2:
        return np.zeros((len(centroids), 2))
    unit = np.pad(normalize(np.asarray(centroids, np.float64)), ((0, 0), (0, 1)))  # d of at least 2
    components = PCA(2, svd_solver="full")
    plane = components.fit_transform(unit)
    spread = plane[:, 0].std()
    if len(unit) >= 8 and spread > 0:
        neighbours = min(20.0, (len(unit) - 1) / 3)  # about as many are to stay near each class
        start = (plane / spread * 1e-4).astype(np.float32)
        tsne = TSNE(perplexity=neighbours, init=start, max_iter=500, random_state=0)
        with threadpool_limits(1):  # repeatable, and threads that share a core make it slower
            plane = tsne.fit_transform(unit.astype(np.float32)).astype(np.float64)
        plane = components.fit_transform(plane)  # wider than high
    low, high = plane.min(axis=0), plane.max(axis=0)
    return (plane - (low + high) / 2) / max(float((high - low).max()) / 2, 1e-12)
