"""Limited-memory BFGS for many small smooth convex problems at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]

# Sufficient decrease asked of a step (Nocedal and Wright, Numerical Optimization, Eq. 3.4).
DECREASE = 1e-4
HALVINGS = 40


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
