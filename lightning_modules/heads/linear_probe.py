"""`LinearProbe`: a linear classifier trained on the support set by stochastic gradient descent."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fsl_basesel.errors import InputError
from lightning_modules.heads.base import Head, autocast_off, full_precision
from lightning_modules.heads.nearest_centroid import unit


class LinearProbe(Head):
    """The objective of `SoftmaxRegression`, minimised the way networks are trained.

    SGD with momentum over shuffled batches, the step size falling along a half cosine. It stops
    after `epochs`, near the optimum but not at it, and suits support sets of thousands of images.
    Weights start at zero and the order of the batches is a function of `seed` alone, the same for
    every episode and on every device.

    Args:
        backbone: images to features; None where the episodes hold features.
        weight_decay: as in `SoftmaxRegression`.
        normalise: scale features to length one first.
        lr: step size at the start; 1 suits features of length one.
        momentum: share of the last step that the next one keeps.
        epochs: passes over the support set.
        batch_size: support images of a step.
        seed: seed of the order of the images.

    Example:
        >>> support = torch.tensor([[2.0, 0.1], [0.0, 1.0], [1.5, 0.2], [0.1, 3.0]])
        >>> labels = torch.tensor([0, 1, 0, 1])
        >>> LinearProbe().scores(support, labels, support, ways=2).argmax(-1)
        tensor([0, 1, 0, 1])
    """

    def __init__(
        self,
        backbone: torch.nn.Module | None = None,
        weight_decay: float = 5e-4,
        normalise: bool = True,
        lr: float = 1.0,
        momentum: float = 0.9,
        epochs: int = 100,
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        super().__init__(backbone)
        for name, value in (("lr", lr), ("epochs", epochs), ("batch_size", batch_size)):
            if not value > 0:
                raise InputError(f"Expected `{name}` to be above 0 but got {value}.")
        if not 0 <= momentum < 1 or weight_decay < 0:
            raise InputError(
                "Expected `momentum` from 0 to below 1 and `weight_decay` of at least 0 but got "
                f"{momentum} and {weight_decay}."
            )
        self.weight_decay, self.normalise, self.lr = weight_decay, normalise, lr
        self.momentum, self.epochs, self.batch_size = momentum, epochs, batch_size
        self.seed = seed

    def scores(self, support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
        """Logits, `[..., Q, ways]`."""
        with autocast_off(query.device), torch.no_grad():
            support, query = full_precision(support), full_precision(query)
            if self.normalise:
                support, query = unit(support), unit(query)
            weights, intercepts = self._train(support, labels, ways)
            return query @ weights + intercepts

    def _train(self, support: Tensor, labels: Tensor, ways: int) -> tuple[Tensor, Tensor]:
        images, dims = support.shape[-2:]
        target = torch.nn.functional.one_hot(labels, ways).to(support)
        weights = support.new_zeros(*support.shape[:-2], dims, ways)
        intercepts = support.new_zeros(*support.shape[:-2], 1, ways)
        pace, pace_intercepts = torch.zeros_like(weights), torch.zeros_like(intercepts)
        generator = torch.Generator().manual_seed(self.seed)  # on the CPU: one order everywhere
        steps = self.epochs * math.ceil(images / self.batch_size)
        step = 0
        for _ in range(self.epochs):
            order = torch.randperm(images, generator=generator).to(support.device)
            for batch in order.split(self.batch_size):
                lr = self.lr * (1 + math.cos(math.pi * step / steps)) / 2
                inputs = support[..., batch, :]
                p = (inputs @ weights + intercepts).softmax(-1)
                error = (p - target[batch]) / len(batch)
                pace = self.momentum * pace + inputs.mT @ error + self.weight_decay * weights
                pace_intercepts = self.momentum * pace_intercepts + error.sum(-2, keepdim=True)
                weights = weights - lr * pace
                intercepts = intercepts - lr * pace_intercepts
                step += 1
        return weights, intercepts
