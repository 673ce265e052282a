"""Networks from images to features, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fsl_basesel import checks
from fsl_basesel.backbones import load_backbone
from fsl_basesel.embedding import evaluation_mode
from fsl_basesel.errors import InputError
from lightning_modules.resume import require_whole

if TYPE_CHECKING:
    from lightning_modules.classifier import BaseClassifier


class ConvNet(nn.Module):
    """Blocks of convolution, batch normalisation and ReLU that halve the image, then the mean.

    Features are non-negative, so that cosine similarities are too, as in the paper. `strided`
    halves by convolutions of stride 2 instead of 2x2 pooling: about a third of the work.
    """

    def __init__(self, widths: tuple[int, ...], in_channels: int, strided: bool = False) -> None:
        super().__init__()
        self.in_channels, self.out_features = in_channels, widths[-1]
        layers: list[nn.Module] = []
        for before, width in zip((in_channels, *widths), widths, strict=False):
            # A wide look at the pixels makes up for coarse steps.
            size, stride = 3 if layers or not strided else 5, 2 if strided else 1
            layers += [
                nn.Conv2d(before, width, size, stride=stride, padding=size // 2, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            layers += [] if strided else [nn.MaxPool2d(2, ceil_mode=True)]
        self.blocks = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Features `[B, widths[-1]]` of images `[B, C, H, W]`."""
        return self.blocks(images).mean((2, 3))


class SmallResNet(nn.Module):
    """A stem and one residual block for each width, each but the first halving the image."""

    def __init__(self, widths: tuple[int, ...], in_channels: int) -> None:
        from torchvision.models.resnet import BasicBlock

        super().__init__()
        self.in_channels, self.out_features = in_channels, widths[-1]
        layers: list[nn.Module] = [
            nn.Conv2d(in_channels, widths[0], 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(inplace=True),
        ]
        for before, width in zip((widths[0], *widths), widths, strict=False):
            stride = 1 if len(layers) == 3 else 2
            shortcut = None
            if stride > 1:
                shortcut = nn.Sequential(
                    nn.Conv2d(before, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
                )
            layers.append(BasicBlock(before, width, stride, shortcut))
        self.blocks = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Features `[B, widths[-1]]`, non-negative, of images `[B, C, H, W]`."""
        return self.blocks(images).mean((2, 3))


def resnet18(in_channels: int, stem: str) -> nn.Module:
    """torchvision's ResNet-18 without its classifier: the paper's 512 features after conv5_x.

    The stem "imagenet" is a 7x7 convolution of stride 2 and pooling, "cifar" a 3x3 of stride 1 and
    no pooling, for images of about 32 pixels.
    """
    from torchvision.models import resnet18 as build

    network = build(weights=None)
    network.fc = nn.Identity()
    if stem == "cifar":
        network.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
        network.maxpool = nn.Identity()
    elif in_channels != 3:
        network.conv1 = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
    if stem == "cifar" or in_channels != 3:
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.in_channels, network.out_features = in_channels, 512
    return network


class Pretrained(nn.Module):
    """A network of `fsl_basesel.backbones.load_backbone` for images from 0 to 1, to train on."""

    mean: Tensor
    std: Tensor

    def __init__(self, name: str) -> None:
        super().__init__()
        found = load_backbone(name)
        if found.module is None or found.extract is not found.module:
            raise InputError(
                f"Expected a backbone that can be trained but {name!r} only gives features; use "
                "--train scratch or frozen."
            )
        needs = found.preprocessing
        self.network, self.in_channels = found.module, needs.channels
        shape = (needs.channels, 1, 1)
        self.register_buffer("mean", torch.tensor(needs.mean[: shape[0]]).reshape(shape))
        self.register_buffer("std", torch.tensor(needs.std[: shape[0]]).reshape(shape))
        with torch.no_grad(), evaluation_mode(self):
            self.out_features = self(torch.zeros(1, shape[0], 64, 64)).shape[1]

    def forward(self, images: Tensor) -> Tensor:
        """Features `[B, d]` of images `[B, C, H, W]` from 0 to 1."""
        return self.network((images - self.mean) / self.std).flatten(1)


BACKBONES: dict[str, Callable[[int | None, str], nn.Module]] = {
    "resnet18": lambda channels, stem: resnet18(channels or 3, stem),
    "conv4": lambda channels, stem: ConvNet((64, 64, 64, 64), channels or 1),
    "conv3": lambda channels, stem: ConvNet((32, 64, 128), channels or 1),
    "strided3": lambda channels, stem: ConvNet((32, 64, 128), channels or 1, strided=True),
    "resnet8": lambda channels, stem: SmallResNet((32, 64, 128), channels or 3),
}
"""Networks that `BaseClassifier` knows by name; each has `in_channels` and `out_features`."""


def build_backbone(
    name: str, in_channels: int | None = None, stem: str = "imagenet", seed: int = 0
) -> nn.Module:
    """A network with weights that are a function of `seed`; the global random state stays.

    Args:
        name: one of `BACKBONES`: "resnet18", its small relation "resnet8" for images of about 32
            pixels, or "conv4", the smaller "conv3" and the fast "strided3" for about 28 pixels. Or
            a checkpoint of a `BaseClassifier` (.ckpt), or any other network that
            `fsl_basesel.backbones.load_backbone` knows by name, with its weights.
        in_channels: channels of the images; None is 3 for residual networks and 1 for the others.
        stem: see `resnet18`.
        seed: seed of the weights.

    Example:
        >>> build_backbone("conv3").out_features
        128
    """
    if name.endswith(".ckpt"):
        return saved_classifier(name).backbone
    if name not in BACKBONES:
        try:
            return Pretrained(name).to(memory_format=torch.channels_last)
        except InputError as error:
            raise InputError(
                f"Expected `backbone` to be one of {', '.join(BACKBONES)}, a pre-trained network "
                f"or an nn.Module but got {name!r}. {error}"
            ) from error
    checks.one_of(stem, ("imagenet", "cifar"), "stem")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = BACKBONES[name](in_channels, stem)
    # With its weights laid out so, a small network is 1.5 to 2 times faster on the CPU.
    return network.to(memory_format=torch.channels_last)


def saved_classifier(path: str | Path) -> BaseClassifier:
    """The `BaseClassifier` of a checkpoint."""
    from lightning_modules.classifier import BaseClassifier  # it imports this module

    require_whole(Path(path))
    try:
        return BaseClassifier.load_from_checkpoint(
            path, map_location=torch.device("cpu"), weights_only=True
        )
    except (KeyError, TypeError, RuntimeError, UnpicklingError) as error:
        line = " ".join(str(error).split())[:200]
        raise InputError(
            f"Expected {path} to be a checkpoint of a BaseClassifier but it is not ({line}); "
            "name a network that load_backbone knows, or pass a module."
        ) from error
