"""`SoftmaxRegression`: a linear classifier fitted to the support set, to its optimum."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import Tensor

from fsl_basesel.errors import InputError
from lightning_modules.heads.base import Head, autocast_off, one_by_one
from lightning_modules.heads.nearest_centroid import unit


class SoftmaxRegression(Head):
    """The paper's SR head: multinomial logistic regression by L-BFGS, in double precision.

    It minimises the mean cross-entropy over the support set plus `weight_decay / 2` times the
    squared weights; the intercepts are free. The problem is convex, so there is no randomness and
    no step size to choose.

    Features are scaled to length one first, because the effect of a weight decay depends on their
    scale, which differs between backbones. The default is the paper's own for its networks.
    scikit-learn's `C` is 1 / (weight_decay * support images).

    Args:
        backbone: images to features; None where the episodes hold features.
        weight_decay: see above; it must be above 0.
        normalise: scale features to length one first.
        tolerance: converged where no entry of the gradient is larger.

    Example:
        >>> support = torch.tensor([[2.0, 0.1], [0.0, 1.0], [1.5, 0.2], [0.1, 3.0]])
        >>> labels = torch.tensor([0, 1, 0, 1])
        >>> SoftmaxRegression().scores(support, labels, support, ways=2).argmax(-1)
        tensor([0, 1, 0, 1])
    """

    def __init__(
        self,
        backbone: torch.nn.Module | None = None,
        weight_decay: float = 5e-4,
        normalise: bool = True,
        tolerance: float = 1e-6,
    ) -> None:
        super().__init__(backbone)
        if not weight_decay > 0:
            raise InputError(
                "Expected `weight_decay` to be above 0, without which the optimum of separable "
                f"support sets lies at infinity, but got {weight_decay}."
            )
        self.weight_decay, self.normalise, self.tolerance = weight_decay, normalise, tolerance

    def scores(self, support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
        """Logits, `[..., Q, ways]`."""
        if support.ndim > 2:
            return one_by_one(self.scores, support, labels, query, ways)
        with autocast_off(query.device), torch.no_grad():
            support, query = support.double(), query.double()
            if self.normalise:
                support, query = unit(support), unit(query)
            if len(support) < support.shape[1]:
                # Optimal weights lie in the span of the support set; in an orthonormal basis of it
                # the problem is the same and smaller.
                basis, factor = torch.linalg.qr(support.T)
                support, query = factor.T, query @ basis
            table = self._fit(support.cpu().numpy(), labels.cpu().numpy(), ways)
            weights = torch.from_numpy(table).to(query)
            return query @ weights[:-1] + weights[-1]

    def _fit(self, support: np.ndarray, labels: np.ndarray, ways: int) -> np.ndarray:
        """Weights `[d, ways]` with the intercepts below them."""
        images, dims = support.shape
        target = np.eye(ways)[labels]

        def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
            table = point.reshape(dims + 1, ways)
            weights = table[:-1]
            log_p = log_softmax(support @ weights + table[-1], axis=1)
            loss = -np.sum(log_p * target) / images
            error = (np.exp(log_p) - target) / images
            slope = support.T @ error + self.weight_decay * weights
            decay = self.weight_decay / 2 * np.sum(weights**2)
            return loss + decay, np.vstack([slope, error.sum(axis=0)]).ravel()

        # Only the gradient says when it is done: values may fall by less than they can show.
        options = {"gtol": self.tolerance, "ftol": 0.0, "maxiter": 1000}
        start = np.zeros((dims + 1) * ways)
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        return found.x.reshape(dims + 1, ways)
