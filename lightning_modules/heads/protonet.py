"""`ProtoNet`: prototypical networks, with learn2learn's classifier."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fsl_basesel import checks
from lightning_modules import require_learn2learn
from lightning_modules.episodes import Episode
from lightning_modules.heads.base import autocast_off, class_means, full_precision, one_by_one
from lightning_modules.heads.episodic import EpisodicHead


class ProtoNet(EpisodicHead):
    """Distance to the mean feature of each class (Snell et al. 2017), to evaluate and to train.

    The classifier is learn2learn's `PrototypicalClassifier`; only how it is computed differs.
    Squared euclidean distances are one matrix product where learn2learn's own function makes a
    tensor of ways x queries x dimensions, and the prototypes are another in place of a loop.

    Args:
        backbone: images to features; None where the episodes hold features.
        distance: "euclidean" or "cosine".
        scale: factor on the logits when training. 1 is learn2learn's; cosines, which lie between
            -1 and 1, train better with about 10.
        options: `shots`, `lr` and `optimizer` of `EpisodicHead`.

    Example:
        >>> support = torch.tensor([[0.0, 0.0], [4.0, 4.0]])
        >>> query = torch.tensor([[1.0, 1.0], [3.0, 4.0]])
        >>> ProtoNet().scores(support, torch.tensor([0, 1]), query, ways=2)
        tensor([[ -2., -18.],
                [-25.,  -1.]])
    """

    def __init__(
        self,
        backbone: torch.nn.Module | None = None,
        distance: str = "euclidean",
        *,
        scale: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(backbone, **options)
        self.distance = checks.one_of(distance, ("euclidean", "cosine"), "distance")
        self.scale = scale
        l2l = require_learn2learn()
        function = squared_distances if distance == "euclidean" else distance
        self.classifier = l2l.nn.PrototypicalClassifier(distance=function)
        self.classifier._compute_prototypes = class_means

    @property
    def name(self) -> str:
        """The class and the distance."""
        return f"ProtoNet-{self.distance}"

    def scores(self, support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
        """Negative squared distances, or cosines, `[..., Q, ways]`."""
        if support.ndim > 2:
            return one_by_one(self.scores, support, labels, query, ways)
        with autocast_off(query.device):
            self.classifier.fit_(full_precision(support), labels)
            result = self.classifier(full_precision(query))
        self.classifier.prototypes = None  # they would keep the graph of the last task alive
        return result

    def learn(self, episode: Episode) -> Tensor:
        """Scaled scores; support and queries share a batch, as in learn2learn's training."""
        support, query = self._embedded_together(episode)
        return self.scale * self.scores(support, episode.support_labels, query, episode.ways)


def squared_distances(prototypes: Tensor, queries: Tensor) -> Tensor:
    """Squared euclidean distances, `[ways, d]` and `[Q, d]` to `[Q, ways]`.

    Everything is moved to the mean prototype first, near which the queries lie, so that little is
    lost to cancellation where all features are far from zero.

    Example:
        >>> squared_distances(torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0]]))
        tensor([[1., 4.]])
    """
    centre = prototypes.mean(0)
    moved, away = prototypes - centre, queries - centre
    squares = away.square().sum(1, keepdim=True) + moved.square().sum(1)
    return torch.addmm(squares, away, moved.T, alpha=-2).clamp_min(0)
