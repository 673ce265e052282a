"""Few-shot classifiers on features: how well can novel classes be distinguished?

`NearestCentroid`, `SoftmaxRegression` and `WhitenedCentroid` only evaluate;
`ProtoNet`, `MAML` and `ANIL` evaluate and can be trained on tasks of the base classes. To make one
of those three, learn2learn must be installed.
"""

from lightning_modules.heads.base import Head
from lightning_modules.heads.episodic import EpisodicHead
from lightning_modules.heads.maml import ANIL, MAML
from lightning_modules.heads.nearest_centroid import NearestCentroid
from lightning_modules.heads.protonet import ProtoNet
from lightning_modules.heads.softmax_regression import SoftmaxRegression
from lightning_modules.heads.whitened_centroid import WhitenedCentroid

__all__ = [
    "ANIL",
    "MAML",
    "EpisodicHead",
    "Head",
    "NearestCentroid",
    "ProtoNet",
    "SoftmaxRegression",
    "WhitenedCentroid",
]
