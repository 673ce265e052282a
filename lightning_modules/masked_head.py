"""A linear classifier of fixed size of which only the first classes are in use."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsl_basesel.errors import InputError
from lightning_modules.loader import step_seed


class MaskedHead(nn.Module):
    """Logits of the first `active` classes out of `capacity`.

    Classes are added without a parameter being made or resized, so the optimizer, the gradient
    buckets of DDP and old checkpoints stay valid. A class that is not in use gets no gradient; if
    others have been trained when it comes into use, its weights are drawn anew, whatever weight
    decay did to them until then.

    Args:
        features: number of features.
        capacity: the most classes there will be.
        seed: seed of the weights; class c has the same ones whatever the capacity.

    Example:
        >>> head = MaskedHead(features=8, capacity=10)
        >>> head.activate(4)
        >>> head(torch.zeros(2, 8)).shape
        torch.Size([2, 4])
    """

    active: Tensor

    def __init__(self, features: int, capacity: int, seed: int = 0) -> None:
        super().__init__()
        self.features, self.capacity, self.seed = features, capacity, seed
        self.weight = nn.Parameter(torch.empty(capacity, features))
        self.bias = nn.Parameter(torch.zeros(capacity))
        self.register_buffer("active", torch.zeros((), dtype=torch.int64))
        self._count = 0  # `active` as a number: reading a tensor on a GPU would wait for it
        self._draw(0, capacity)

    def activate(self, count: int) -> None:
        """Use the first `count` classes; those that join others start with fresh weights."""
        if not 1 <= count <= self.capacity:
            raise InputError(
                f"Expected from 1 to {self.capacity} active classes, the capacity of the head, but "
                f"got {count}; build the model with a larger `capacity`."
            )
        if 0 < self._count < count:
            self._draw(self._count, count)
        self._count = count
        self.active.fill_(count)

    @torch.no_grad()
    def _draw(self, first: int, last: int) -> None:
        bound = 1 / math.sqrt(self.features)
        for row in range(first, last):
            generator = torch.Generator().manual_seed(step_seed(self.seed, "head", row))
            values = torch.rand(self.features, generator=generator) * 2 * bound - bound
            self.weight[row] = values.to(self.weight)
        self.bias[first:last] = 0

    def forward(self, features: Tensor) -> Tensor:
        """Logits `[B, active]` of features `[B, d]`."""
        return functional.linear(features, self.weight[: self._count], self.bias[: self._count])

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._count = int(self.active)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"features={self.features}, capacity={self.capacity}, active={self._count}"
