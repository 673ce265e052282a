"""Batch normalisation without running statistics: keep queries out of one another's scores.

Layers made with `track_running_stats=False`, as those of learn2learn's `OmniglotFC`, normalise each
batch by itself even in evaluation mode. Scores of queries would then depend on which other queries
share the batch. Here such layers use the statistics of the support set.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm


def batch_bound_layers(network: torch.nn.Module) -> list[_BatchNorm]:
    """Layers of batch normalisation that keep no running statistics."""
    return [
        part
        for part in network.modules()
        if isinstance(part, _BatchNorm) and part.running_mean is None
    ]


@torch.no_grad()
def use_support_statistics(network: torch.nn.Module, support: Tensor) -> None:
    """Give the batch-bound layers of `network`, which is changed, the statistics of `support`.

    Example:
        >>> layer = torch.nn.BatchNorm1d(1, track_running_stats=False, affine=False).eval()
        >>> use_support_statistics(layer, torch.tensor([[1.0], [3.0]]))
        >>> layer(torch.tensor([[2.0]]))
        tensor([[0.]])
    """
    layers = batch_bound_layers(network)
    if not layers:
        return
    for layer in layers:
        weight = layer.weight if layer.weight is not None else support
        dtype = weight.dtype if weight.is_floating_point() else torch.float32
        layer.running_mean = torch.zeros(layer.num_features, dtype=dtype, device=support.device)
        layer.running_var = torch.ones_like(layer.running_mean)
        layer.momentum, layer.training, layer.track_running_stats = 1.0, True, True
    network(support)
    for layer in layers:
        layer.training = False
