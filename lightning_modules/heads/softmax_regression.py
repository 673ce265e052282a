"""`SoftmaxRegression`: a linear classifier fitted to the support set, to its optimum."""

from __future__ import annotations

import torch
from torch import Tensor

from fsl_basesel.errors import InputError
from lightning_modules.heads.base import Head, autocast_off
from lightning_modules.heads.lbfgs import minimise
from lightning_modules.heads.nearest_centroid import unit


class SoftmaxRegression(Head):
    """The paper's SR head: multinomial logistic regression by L-BFGS, in double precision.

    It minimises the mean cross-entropy over the support set plus `weight_decay / 2` times the
    squared weights; the intercepts are free. The problem is convex, so there is no randomness and
    no step size to choose.

    Features are brought to length one first, as what a weight decay does depends on their scale,
    and that differs from backbone to backbone. The default is the paper's own for its networks;
    docs/results.md, "Weight decay of softmax regression", has the accuracies of others on real
    features. scikit-learn's `C` is 1 / (weight_decay * support images).

    Args:
        backbone: images to features; None where the episodes hold features.
        weight_decay: see above; it must be above 0.
        normalise: scale features to length one first.
        tolerance: converged where no entry of the gradient is larger.
        iterations: most iterations of L-BFGS.

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
        iterations: int = 1000,
    ) -> None:
        super().__init__(backbone)
        if not weight_decay > 0:
            raise InputError(
                "Expected `weight_decay` to be above 0, without which the optimum of separable "
                f"support sets lies at infinity, but got {weight_decay}."
            )
        self.weight_decay, self.normalise = weight_decay, normalise
        self.tolerance, self.iterations = tolerance, iterations

    def scores(self, support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
        """Logits, `[..., Q, ways]`."""
        with autocast_off(query.device), torch.no_grad():
            weights, intercepts, query = self._fit(support, labels, query, ways)
            return query @ weights + intercepts

    def _fit(
        self, support: Tensor, labels: Tensor, query: Tensor, ways: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and intercepts, and the queries in the coordinates of the weights."""
        support, query = support.double(), query.double()
        if self.normalise:
            support, query = unit(support), unit(query)
        images = support.shape[-2]
        if images < support.shape[-1]:
            # Optimal weights lie in the span of the support set; in an orthonormal basis of it the
            # problem is the same and smaller.
            basis, factor = torch.linalg.qr(support.mT)
            support, query = factor.mT, query @ basis
        decay = self.weight_decay
        batch, dims = support.shape[:-2], support.shape[-1]
        flat = support.reshape(-1, images, dims)
        target = torch.nn.functional.one_hot(labels, ways).to(flat)

        def objective(point: Tensor) -> tuple[Tensor, Tensor]:
            weights, intercepts = _split(point, dims, ways)
            logits = flat @ weights + intercepts
            log_p = logits.log_softmax(-1)
            loss = -(log_p * target).sum((1, 2)) / images
            loss = loss + decay / 2 * weights.square().sum((1, 2))
            error = (log_p.exp() - target) / images
            slope = flat.mT @ error + decay * weights
            return loss, torch.cat([slope.flatten(1), error.sum(1)], 1)

        start = flat.new_zeros(len(flat), (dims + 1) * ways)
        best = minimise(objective, start, self.tolerance, self.iterations)
        weights, intercepts = _split(best, dims, ways)
        return weights.reshape(*batch, dims, ways), intercepts.reshape(*batch, 1, ways), query


def _split(point: Tensor, dims: int, ways: int) -> tuple[Tensor, Tensor]:
    weights = point[:, : dims * ways].reshape(-1, dims, ways)
    return weights, point[:, None, dims * ways :]
