"""`SoftmaxRegression`: a linear classifier fitted to the support set, to its optimum."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fsl_basesel.errors import InputError
from lightning_modules.heads.base import Head, autocast_off
from lightning_modules.heads.nearest_centroid import unit

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]

# Sufficient decrease asked of a step (Nocedal and Wright, Numerical Optimization, Eq. 3.4).
DECREASE = 1e-4
HALVINGS = 40


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


def minimise(
    objective: Objective,
    start: Tensor,
    tolerance: float = 1e-6,
    iterations: int = 1000,
    memory: int = 10,
) -> Tensor:
    """Minimise `E` independent functions of `n` variables, each with steps of its own.

    A problem that has converged keeps its point while others go on, so what one problem returns
    does not depend on its neighbours. No autograd: it works in inference mode.

    Args:
        objective: `[E, n]` points to (`[E]` values, `[E, n]` gradients).
        start: `[E, n]` first points.
        tolerance: converged where no entry of the gradient is larger in size.
        iterations: stop after so many, converged or not.
        memory: pairs of steps and gradient changes that stand for the Hessian.

    Returns:
        `[E, n]` minimisers.

    Example:
        >>> goal = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> scale = torch.tensor([[1.0, 9.0], [4.0, 1.0]])
        >>> def bowl(x):
        ...     return (scale * (x - goal) ** 2).sum(1) / 2, scale * (x - goal)
        >>> minimise(bowl, torch.zeros(2, 2)).round(decimals=4).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    point = start
    value, gradient = objective(point)
    steps: list[Tensor] = []
    changes: list[Tensor] = []
    done = gradient.abs().amax(1) <= tolerance
    for _ in range(iterations):
        if bool(done.all()):
            break
        direction = _direction(gradient, steps, changes)
        slope = _dot(direction, gradient)
        uphill = (slope >= 0)[:, None]  # only rounding can bring it about
        direction = torch.where(uphill, -gradient, direction)
        slope = _dot(direction, gradient)
        length = torch.ones_like(value)
        if not steps:  # nothing is known about the scale yet
            length = 1 / gradient.norm(dim=1).clamp_min(1)
        found = done.clone()
        new_point, new_value, new_gradient = point, value, gradient
        for _ in range(HALVINGS):
            trial = point + length[:, None] * direction
            trial_value, trial_gradient = objective(trial)
            good = ~found & (trial_value <= value + DECREASE * length * slope)
            new_point = torch.where(good[:, None], trial, new_point)
            new_value = torch.where(good, trial_value, new_value)
            new_gradient = torch.where(good[:, None], trial_gradient, new_gradient)
            found = found | good
            if bool(found.all()):
                break
            length = torch.where(found, length, length / 2)
        # No step goes down any further: the point is as good as the arithmetic allows.
        done = done | ~found
        steps.append(new_point - point)
        changes.append(new_gradient - gradient)
        del steps[:-memory], changes[:-memory]
        point, value, gradient = new_point, new_value, new_gradient
        done = done | (gradient.abs().amax(1) <= tolerance)
    return point


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(1)


def _direction(gradient: Tensor, steps: list[Tensor], changes: list[Tensor]) -> Tensor:
    """The two-loop recursion; a pair without positive curvature counts for nothing."""
    direction = -gradient
    products = [_dot(step, change) for step, change in zip(steps, changes, strict=True)]
    tiny = torch.finfo(gradient.dtype).tiny
    usable = [product > tiny for product in products]
    inverse = [
        torch.where(keep, 1 / torch.where(keep, product, 1), 0)
        for keep, product in zip(usable, products, strict=True)
    ]
    weights = []
    for step, change, rho in reversed(list(zip(steps, changes, inverse, strict=True))):
        weight = rho * _dot(step, direction)
        direction = direction - weight[:, None] * change
        weights.append(weight)
    scale = torch.ones_like(gradient[:, 0])
    for change, product, keep in zip(changes, products, usable, strict=True):  # the latest wins
        scale = torch.where(keep, product / _dot(change, change).clamp_min(tiny), scale)
    direction = direction * scale[:, None]
    pairs = zip(steps, changes, inverse, reversed(weights), strict=True)
    for step, change, rho, weight in pairs:
        correction = weight - rho * _dot(change, direction)
        direction = direction + correction[:, None] * step
    return direction
