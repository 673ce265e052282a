"""`EpisodicHead`: a head that is itself trained, on episodes of the base classes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fsl_basesel.errors import InputError
from lightning_modules.both import Module
from lightning_modules.episodes import Episode, split_task
from lightning_modules.heads.base import Head, full_precision

OptimizerFactory = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]


class EpisodicHead(Head, Module):
    """A head with its backbone as a LightningModule: each batch is one task.

    A task is an `Episode`, or what learn2learn's tasksets give: `(data, labels)` with labels 0 to
    ways - 1, of which the first `shots` inputs of every class are learnt from. Losses and
    accuracies are logged as `train_loss`, `val_accuracy` and so on.

    Args:
        backbone: images to features; None where the tasks hold features.
        shots: inputs of each class that a task is learnt from; None where batches are `Episode`s.
        lr: learning rate of Adam, learn2learn's default.
        optimizer: makes another optimizer of the parameters.
    """

    def __init__(
        self,
        backbone: torch.nn.Module | None = None,
        *,
        shots: int | None = None,
        lr: float = 1e-3,
        optimizer: OptimizerFactory | None = None,
    ) -> None:
        super().__init__(backbone)
        self.shots, self.lr, self.optimizer = shots, lr, optimizer

    @abstractmethod
    def learn(self, episode: Episode) -> Tensor:
        """Logits of the queries, `[Q, ways]`, differentiable, in the mode the module is in."""

    def features(self, images: Tensor) -> Tensor:
        """Features `[B, d]` of images, for class centroids and for other heads."""
        return self.embed(images).flatten(1)

    def _embedded_together(self, episode: Episode) -> list[Tensor]:
        """Features of support and queries, which share a batch."""
        features = self.features(torch.cat([episode.support, episode.query]))
        return list(features.split([len(episode.support), len(episode.query)]))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Cross-entropy of the queries after learning from the support set."""
        episode = self.episode_of(batch)
        return self._log("train", self.learn(episode), episode)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Loss and accuracy of a task; the module is left as it was."""
        episode = self.episode_of(batch)
        self._log("val", self(episode), episode)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Loss and accuracy of a task; the module is left as it was."""
        episode = self.episode_of(batch)
        self._log("test", self(episode), episode)

    def _log(self, part: str, logits: Tensor, episode: Episode) -> Tensor:
        loss = functional.cross_entropy(full_precision(logits), episode.query_labels)
        accuracy = (logits.argmax(-1) == episode.query_labels).float().mean()
        options: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": 1}
        options["sync_dist"] = part != "train"
        self.log(f"{part}_loss", loss, **options)
        self.log(f"{part}_accuracy", accuracy, prog_bar=True, **options)
        return loss

    def episode_of(self, batch: Any) -> Episode:
        """A batch as an `Episode`."""
        if isinstance(batch, Episode):
            return batch
        if self.shots is None:
            raise InputError(
                f"Expected `shots` to be set, as a batch of {type(self).__name__} was a task of "
                "(data, labels) and does not say what to learn from; pass shots=... to it."
            )
        data, labels = batch
        return split_task(data, labels, self.shots)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, or what `optimizer` makes."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        if self.optimizer is not None:
            return self.optimizer(parameters)
        return torch.optim.Adam(parameters, self.lr)
