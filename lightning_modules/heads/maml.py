"""`MAML` and `ANIL`: a few gradient steps on a copy of the model, with learn2learn's MAML."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fsl_basesel import checks
from fsl_basesel.errors import InputError
from lightning_modules import require_learn2learn
from lightning_modules.episodes import Episode
from lightning_modules.heads.base import evaluation_mode, full_precision, one_by_one
from lightning_modules.heads.episodic import EpisodicHead
from lightning_modules.heads.normalisation import use_support_statistics


class MAML(EpisodicHead):
    """Model-agnostic meta-learning (Finn et al. 2017); learn2learn's `MAML` adapts a clone.

    As an evaluator it adapts and predicts; nothing of it changes. As a LightningModule it learns
    weights from which few steps suffice. The classifier starts at zero, so that an untrained one
    has no preference among labels, which mean something else in every task.

    Evaluation works in the Trainer's inference mode. No query has a part in the score of another:
    batch normalisation uses running statistics, or those of the support set where there are none.

    Args:
        ways: classes of a task at most; tasks with fewer use the first outputs.
        dims: number of features.
        backbone: images to features, adapted with the classifier; without one the tasks hold
            features and the classifier alone is adapted.
        inner_lr: step size of the adaptation.
        steps: steps of the adaptation.
        eval_steps: steps when evaluating; None is `steps`.
        first_order: leave second derivatives out when training.
        options: `shots`, `lr` and `optimizer` of `EpisodicHead`.

    Example:
        >>> support = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> labels = torch.tensor([1, 0])
        >>> MAML(ways=2, dims=2, steps=5).scores(support, labels, support, ways=2).argmax(-1)
        tensor([1, 0])
    """

    def __init__(
        self,
        ways: int,
        dims: int,
        backbone: torch.nn.Module | None = None,
        *,
        inner_lr: float = 0.1,
        steps: int = 1,
        eval_steps: int | None = None,
        first_order: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(None, **options)
        counts = {"ways": ways, "dims": dims, "steps": steps, "eval_steps": eval_steps or steps}
        for name, value in counts.items():
            checks.integer(value, name, 1)
        if not inner_lr > 0:
            raise InputError(f"Expected `inner_lr` to be above 0 but got {inner_lr}.")
        self.ways, self.steps, self.eval_steps = ways, steps, eval_steps or steps
        classifier = torch.nn.Linear(dims, ways)
        torch.nn.init.zeros_(classifier.weight)
        torch.nn.init.zeros_(classifier.bias)
        self.learner = require_learn2learn().algorithms.MAML(
            self._adapting(backbone, classifier),
            lr=inner_lr,
            first_order=first_order,
            allow_nograd=True,  # parts of the backbone may be frozen
        )

    def _adapting(
        self, backbone: torch.nn.Module | None, classifier: torch.nn.Linear
    ) -> torch.nn.Module:
        """The network that a task changes a copy of."""
        if backbone is None:
            return classifier
        self.adapts_backbone = True
        flatten = torch.nn.Flatten()
        parts = {"backbone": backbone, "flatten": flatten, "classifier": classifier}
        return torch.nn.Sequential(OrderedDict(parts))

    def features(self, images: Tensor) -> Tensor:
        """Features `[B, d]` of images under the weights that tasks start from."""
        if self.adapts_backbone:
            return full_precision(self.learner.module.backbone(images)).flatten(1)
        return super().features(images)

    def learn(self, episode: Episode) -> Tensor:
        """Logits after adaptation, differentiable down to the weights the adaptation starts at."""
        clone = self.learner.clone()
        support, query = episode.support, episode.query
        if self.backbone is not None:  # they share a batch, as in learn2learn's training
            support, query = self._embedded_together(episode)
        self._adapt(clone, support, episode.support_labels, episode.ways, self.steps)
        return clone(query)[:, : episode.ways]

    def scores(self, support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
        """Logits after adaptation, `[..., Q, ways]`, of images if the backbone adapts."""
        if support.ndim > 2 and not self.adapts_backbone:
            return one_by_one(self.scores, support, labels, query, ways)
        # The Trainer may have turned on inference mode. Tensors made in it cannot take part in
        # gradients; their clones can.
        with evaluation_mode(self), torch.inference_mode(False), torch.enable_grad():
            clone = self.learner.clone(first_order=True)  # the same values, without the graph
            support = support.clone()
            self._adapt(clone, support, labels.clone(), ways, self.eval_steps)
            with torch.no_grad():
                use_support_statistics(clone, support)
                return full_precision(clone(query)[:, :ways])

    def _adapt(self, clone: Any, support: Tensor, labels: Tensor, ways: int, steps: int) -> None:
        """Change `clone` by `steps` gradient steps on the support set."""
        if ways > self.ways:
            raise InputError(
                f"Expected tasks of at most {self.ways} ways, the outputs of this "
                f"{type(self).__name__}, but got {ways}; build it with ways={ways}."
            )
        for _ in range(steps):
            logits = full_precision(clone(support)[:, :ways])
            clone.adapt(functional.cross_entropy(logits, labels))


class ANIL(MAML):
    """Almost no inner loop (Raghu et al. 2020): the backbone is learnt across tasks only.

    Arguments are those of `MAML`. As the backbone does not adapt, features can be computed once for
    all episodes.

    Example:
        >>> anil = ANIL(ways=5, dims=8, backbone=torch.nn.Flatten())
        >>> anil.features(torch.zeros(3, 1, 2, 4)).shape, anil.adapts_backbone
        (torch.Size([3, 8]), False)
    """

    def _adapting(
        self, backbone: torch.nn.Module | None, classifier: torch.nn.Linear
    ) -> torch.nn.Module:
        self.backbone = backbone
        return classifier
