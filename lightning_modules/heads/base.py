"""`Head`: the interface of few-shot classifiers."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from fsl_basesel.embedding import evaluation_mode, full_precision
from lightning_modules.episodes import Episode
from lightning_modules.heads.normalisation import batch_bound_layers, use_support_statistics


class Head(torch.nn.Module, ABC):
    """A few-shot classifier: learns from a support set, then scores queries.

    Heads work on features. With a `backbone` they take images and pass them through it; without one
    they take features that some network has already computed.

    Args:
        backbone: images `[n, ...]` to features `[n, d]`.

    Attributes:
        adapts_backbone: whether an episode changes a copy of the backbone, so that features cannot
            be computed once for all episodes and `scores` takes images, one episode at a time.
    """

    adapts_backbone: bool = False

    def __init__(self, backbone: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.backbone = backbone

    @property
    def name(self) -> str:
        """What tables and logs call it."""
        return type(self).__name__

    @abstractmethod
    def scores(self, support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
        """Learn from the support set and score the queries; the highest score is the prediction.

        Several episodes with the same labels can be given at once, in leading dimensions.

        Args:
            support: `[..., S, d]` features.
            labels: `[S]` int64, 0 to `ways - 1`, every one of them at least once.
            query: `[..., Q, d]` features.
            ways: number of classes.

        Returns:
            `[..., Q, ways]`.
        """

    def embed(self, inputs: Tensor) -> Tensor:
        """Features of `inputs`, in single precision at least; as they are without a backbone."""
        features = inputs if self.backbone is None else self.backbone(inputs)
        return full_precision(features)

    def forward(self, episode: Episode) -> Tensor:
        """Scores of the episode's queries, `[Q, ways]`.

        The backbone runs in evaluation mode whatever mode it is in, and is left as it was: batch
        normalisation uses running statistics, or those of the support set where there are none, so
        no query has a part in the score of another.
        """
        support, query = episode.support, episode.query
        with evaluation_mode(self):
            if self.backbone is not None:
                with torch.no_grad():
                    fixed = self.backbone
                    if batch_bound_layers(fixed):
                        fixed = copy.deepcopy(fixed)
                        use_support_statistics(fixed, support)
                    support = full_precision(self.backbone(support))
                    query = full_precision(fixed(query))
            return self.scores(support, episode.support_labels, query, episode.ways)

    def accuracy(self, episode: Episode) -> Tensor:
        """Share of the queries that get their own label, a float64 scalar."""
        correct = self(episode).argmax(-1) == episode.query_labels
        return correct.double().mean()


def class_means(support: Tensor, labels: Tensor, ways: int | None = None) -> Tensor:
    """Mean of each class over the support set, `[..., S, d]` to `[..., ways, d]`.

    One product with a matrix of 0 and 1 in place of a loop over the classes: differentiable, and
    unlike scattered additions the same bits in every run on a GPU.

    Example:
        >>> class_means(torch.tensor([[1.0], [5.0], [3.0]]), torch.tensor([0, 1, 0]))
        tensor([[2.],
                [5.]])
    """
    count = int(labels.max()) + 1 if ways is None else ways
    member = torch.nn.functional.one_hot(labels, count).to(support)
    return member.mT @ support / member.sum(0)[:, None]


def one_by_one(
    scores: Callable[..., Tensor], support: Tensor, labels: Tensor, query: Tensor, ways: int
) -> Tensor:
    """Scores of several episodes by a head that takes one at a time."""
    pairs = zip(support, query, strict=True)
    return torch.stack([scores(part, labels, mine, ways) for part, mine in pairs])


def autocast_off(device: torch.device) -> torch.autocast:
    """Single precision inside: small sums over few images are not where half precision pays."""
    return torch.autocast(device.type, enabled=False)
