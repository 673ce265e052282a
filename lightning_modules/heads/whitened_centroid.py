"""`WhitenedCentroid`: nearest class mean in features whitened with the help of the base classes."""

from __future__ import annotations

import torch
from torch import Tensor

from fsl_basesel.errors import InputError
from lightning_modules.heads.base import Head, autocast_off, class_means, one_by_one
from lightning_modules.heads.nearest_centroid import unit

SHRINKAGE = 0.5
OWN = 0.8
NEIGHBOURS = 2


class WhitenedCentroid(Head):
    """A head for frozen features that knows the images of the base classes too.

    In an episode S is the covariance of base and support images together around the means of their
    classes. All features are divided by the Cholesky factor of 0.5 S + 0.5 tr(S) / d I. A class is
    then 0.8 of its own support mean and 0.2 of the mean of the two base classes nearest to it by
    cosine, and a query goes to the class that is nearest by cosine. Nothing is random and nothing
    is trained.

    Args:
        base: `[n, d]` features of images of the base classes.
        base_labels: `[n]` int64, 0 to C - 1, every one of them at least once.

    Example:
        >>> base = torch.tensor([[1.0, 0.0], [1.2, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> head = WhitenedCentroid(base, torch.tensor([0, 0, 1, 1]))
        >>> support = torch.tensor([[2.0, 0.1], [0.2, 1.0]])
        >>> head.scores(support, torch.tensor([0, 1]), support, ways=2).argmax(-1)
        tensor([0, 1])
    """

    base_means: Tensor
    scatter: Tensor

    def __init__(self, base: Tensor, base_labels: Tensor) -> None:
        super().__init__()
        if base.dim() != 2 or len(base) != len(base_labels) or not len(base):
            raise InputError(
                "Expected features of base images, one row and one label for each, but got shapes "
                f"{tuple(base.shape)} and {tuple(base_labels.shape)}."
            )
        means = class_means(base.double(), base_labels)
        away = (base.double() - means[base_labels]).float()
        self.images = len(base)
        self.register_buffer("base_means", means)
        # Sums of products are taken in single precision: shrinkage hides their last digits.
        self.register_buffer("scatter", (away.T @ away).double())

    def scores(self, support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
        """Cosines, `[..., Q, ways]`."""
        if support.ndim > 2:
            return one_by_one(self.scores, support, labels, query, ways)
        with autocast_off(query.device), torch.no_grad():
            support, query = support.double(), query.double()
            means = class_means(support, labels, ways)
            away = support - means[labels]
            covariance = (self.scatter + away.T @ away) / (self.images + len(support))
            size = covariance.diagonal().mean()
            covariance = (1 - SHRINKAGE) * covariance
            covariance.diagonal().add_(SHRINKAGE * size + torch.finfo(torch.float64).tiny)
            factor = torch.linalg.cholesky(covariance)

            def whitened(rows: Tensor) -> Tensor:
                return torch.linalg.solve_triangular(factor, rows.T, upper=False).T

            own, base = whitened(means), whitened(self.base_means)
            near = (unit(own) @ unit(base).T).topk(min(NEIGHBOURS, len(base)), dim=1).indices
            classes = OWN * own + (1 - OWN) * base[near].mean(1)
            return unit(whitened(query)) @ unit(classes).T
