"""`NearestCentroid`: the class whose mean support feature is nearest by cosine."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_modules.heads.base import Head, autocast_off, class_means, full_precision


class NearestCentroid(Head):
    """The paper's 1-NN head: cosine similarity of a query to the mean feature of each class.

    Nothing is trained and nothing is random.

    Args:
        backbone: images to features; None where the episodes hold features.

    Example:
        >>> support = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> query = torch.tensor([[3.0, 1.0], [1.0, 2.0]])
        >>> NearestCentroid().scores(support, torch.tensor([0, 1]), query, ways=2).argmax(-1)
        tensor([0, 1])
    """

    def scores(self, support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
        """Cosines, `[..., Q, ways]`; 0 for a query or a centroid of length 0."""
        with autocast_off(query.device):
            centroids = unit(class_means(full_precision(support), labels, ways))
            query = full_precision(query)
            # Dividing the products by the queries' lengths reads the queries once, not three times.
            products = query @ centroids.mT
            return products / length(query)


def length(rows: Tensor) -> Tensor:
    """Euclidean length of each row, `[..., n, d]` to `[..., n, 1]`, always above zero."""
    tiny = torch.finfo(rows.dtype).tiny
    return torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_min(tiny)


def unit(rows: Tensor) -> Tensor:
    """Rows scaled to length one; a row of zeros stays."""
    return rows / length(rows)
