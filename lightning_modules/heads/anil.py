"""`ANIL`: MAML that adapts the classifier and leaves the backbone as it is."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_modules.episodes import Episode
from lightning_modules.heads.maml import MAML, MAMLMethods


class ANILMethods(MAMLMethods):
    """All of `ANIL` but the package its LightningModule is of."""

    def _adapting(
        self, backbone: torch.nn.Module | None, classifier: torch.nn.Linear
    ) -> torch.nn.Module:
        self.backbone = backbone
        return classifier

    def _inputs(self, episode: Episode) -> tuple[Tensor, Tensor]:
        """Features; support and queries share a batch, as in learn2learn's training."""
        features = self.features(torch.cat([episode.support, episode.query]))
        support, query = features.split([len(episode.support), len(episode.query)])
        return support, query


class ANIL(ANILMethods, MAML):
    """Almost no inner loop (Raghu et al. 2020): the backbone is learnt across tasks only.

    Arguments are those of `MAML`. As the backbone does not adapt, features can be computed once for
    all episodes.

    Example:
        >>> anil = ANIL(ways=5, dims=8, backbone=torch.nn.Flatten())
        >>> anil.features(torch.zeros(3, 1, 2, 4)).shape, anil.adapts_backbone
        (torch.Size([3, 8]), False)
    """
