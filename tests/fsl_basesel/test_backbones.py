"""Networks by name: the right weights and preprocessing, nothing downloaded, errors of one line."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from fsl_basesel.backbones import Backbone, Preprocessing, load_backbone
from fsl_basesel.errors import InputError
from fsl_basesel.photographs import embed_texts


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("something was downloaded")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    torch.hub.set_dir(str(tmp_path / "torch" / "hub"))


def photograph(width: int = 150, height: int = 100) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


def test_the_default_is_trained_and_in_its_own_range() -> None:
    backbone = load_backbone()
    assert backbone.trained
    image = backbone.preprocessing(photograph())
    assert image.shape == (3, 224, 224)
    assert image.min() < -0.9
    assert image.max() > 0.9
    assert load_backbone(size=64).preprocessing.resize == 73


def test_torchvision_weights_from_its_cache_from_a_file_and_random(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"resnet18-f37072fd\.pth.*--download"):
        load_backbone("torchvision:resnet18")
    random = load_backbone("torchvision:resnet18@random")
    assert not random.trained
    torch.manual_seed(3)
    trained = torchvision.models.resnet18()
    images = torch.rand(2, 3, 64, 64)
    whole = nn.Sequential(*list(trained.children())[:-1]).eval()
    with torch.no_grad():
        expected = whole(images).flatten(1)
    state = trained.state_dict()
    cached = tmp_path / "torch" / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    cached.parent.mkdir(parents=True)
    torch.save(state, cached)
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "x.pth")
    headless = {f"backbone.{k}": v for k, v in state.items() if not k.startswith("fc.")}
    save_file(headless, str(tmp_path / "x.safetensors"))
    names = ["torchvision:resnet18", "torchvision:resnet18@IMAGENET1K_V1"]
    names += [f"torchvision:resnet18@{tmp_path / file}" for file in ("x.pth", "x.safetensors")]
    found = [load_backbone(name) for name in names]
    for backbone in found:
        assert backbone.module is not None
        with torch.no_grad():
            assert torch.equal(backbone.module.eval()(images), expected)
    assert len({backbone.identity for backbone in found}) == 1
    assert found[0].identity != random.identity


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "shufflenet_v2_x0_5", "convnext_tiny"])
def test_networks_of_torchvision_lose_their_classifier(name: str) -> None:
    backbone = load_backbone(f"torchvision:{name}@random")
    side = backbone.preprocessing.size
    with torch.no_grad():
        features = backbone.extract(torch.rand(2, 3, side, side))
    assert features.flatten(1).shape[1] != 1000
    assert features.std() > 0


def test_preprocessing_is_that_of_the_weights() -> None:
    for picture in (photograph(), photograph(100, 163), photograph(300, 257)):
        for name in ("resnet18", "efficientnet_b0"):
            weights = torchvision.models.get_model_weights(name).DEFAULT
            preset = weights.transforms()
            found = load_backbone(f"torchvision:{name}@random").preprocessing
            assert torch.equal(found(picture), preset(picture)), name


def test_timm_networks_with_their_own_preprocessing(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    backbone = load_backbone("timm:tf_efficientnet_lite0@random")
    model = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=0)
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    torch.testing.assert_close(backbone.preprocessing(photograph()), transform(photograph()))
    torch.save(model.state_dict(), tmp_path / "lite.pth")
    loaded = load_backbone(f"timm:tf_efficientnet_lite0@{tmp_path / 'lite.pth'}")
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert loaded.module is not None
        assert torch.equal(loaded.module.eval()(images), model.eval()(images))
    with pytest.raises(InputError, match=r"Hugging Face \(timm/resnet18.*--download"):
        load_backbone("timm:resnet18")
    with pytest.raises(InputError, match="did you mean resnet18"):
        load_backbone("timm:esnet18@random")


def test_the_default_network_in_timm_gives_the_same_features() -> None:
    pytest.importorskip("timm")
    ours = load_backbone().preprocessing
    theirs = load_backbone("timm:tf_efficientnet_lite0@random").preprocessing
    assert ours == theirs


def test_open_clip_compares_pictures_with_names(tmp_path: Path) -> None:
    open_clip = pytest.importorskip("open_clip")
    tower = {"layers": 1, "width": 64}
    config = {
        "embed_dim": 32,
        "vision_cfg": {"image_size": 32, "patch_size": 16, "head_width": 32, **tower},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "heads": 2, **tower},
    }
    (tmp_path / "tiny-test.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "tiny-test.json")
    backbone = load_backbone("open_clip:tiny-test@random")
    image = backbone.preprocessing(photograph())
    assert image.shape == (3, 32, 32)
    *_, transform = open_clip.create_model_and_transforms("tiny-test")
    with torch.no_grad():
        assert backbone.extract(image[None]).shape == (1, 32)
    torch.testing.assert_close(image, transform(photograph()))
    task = embed_texts(["cat", "dog"], backbone)
    assert task.names == ("cat", "dog")
    assert task.values.shape == (2, 32)
    assert task.made_by["backbone"] == "open_clip:tiny-test@random"
    with pytest.raises(InputError, match="weights of tiny-test after an @"):
        load_backbone("open_clip:tiny-test")
    with pytest.raises(InputError, match="knows text"):
        embed_texts(["cat"], "torchvision:resnet18@random")


def test_a_checkpoint_of_our_own_runs(tmp_path: Path) -> None:
    import pytorch_lightning as pl

    from lightning_modules import BaseClassifier

    model = BaseClassifier("conv3", in_channels=1, seed=5)
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy.connect(model)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    backbone = load_backbone(str(tmp_path / "last.ckpt"), size=28)
    images = torch.rand(2, 1, 28, 28)
    assert backbone.module is not None
    with torch.no_grad():
        assert torch.equal(backbone.module.eval()(images).flatten(1), model.eval().features(images))
    assert backbone.preprocessing(photograph()).shape == (1, 28, 28)
    assert backbone.preprocessing(photograph()).min() >= 0
    with pytest.raises(InputError, match="`size`"):
        load_backbone(str(tmp_path / "last.ckpt"))


def test_functions_and_networks_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def build(): return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())\n"
        "def nothing(): return 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    backbone = load_backbone("my_networks:build", size=32, normalize="none")
    images = torch.rand(1, 3, 32, 32)
    assert backbone.extract(images).shape == (1, 12)
    assert backbone.preprocessing == Preprocessing(32, 36, (0.0,) * 3, (1.0,) * 3)
    own = load_backbone(nn.Flatten(), size=8)
    assert isinstance(own, Backbone)
    assert load_backbone(own) is own
    assert load_backbone(own, size=16).preprocessing.size == 16
    with pytest.raises(InputError, match="returned 3"):
        load_backbone("my_networks:nothing")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("efficientnet-lite", "did you mean efficientnet-lite0"),
        ("resnet18", r"Expected a backbone as .*torchvision:NAME.* but got 'resnet18'"),
        ("torchvision:resnet81", "did you mean resnet18"),
        ("torchvision:resnet18@V9", "one of IMAGENET1K_V1, DEFAULT, random or a file"),
        ("torchvision:resnet18@nowhere.pth", r"there is no file 'nowhere\.pth'"),
        ("torchvision:fcn_resnet50@random", "classifies images"),
        ("weights.pth", r"torchvision:resnet18@weights\.pth"),
        ("no.such.package:build", "could not be imported"),
        (5, "by name or a network but got 5"),
    ],
)
def test_wrong_names_are_one_line(name: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_backbone(name)
    assert "\n" not in str(caught.value)


def test_weights_of_another_network_and_settings_are_refused(tmp_path: Path) -> None:
    torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "r18.pth")
    with pytest.raises(InputError, match=r"weights of ResNet but .* \(\d+ such\); name the arch"):
        load_backbone(f"torchvision:resnet50@{tmp_path / 'r18.pth'}")
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(InputError, match=r"to be a state dict but it could not be read"):
        load_backbone(f"torchvision:resnet18@{tmp_path / 'text.pth'}")
    torch.save([nn.Linear(2, 2)], tmp_path / "code.pth")  # pickled code is never run
    with pytest.raises(InputError, match=r"to be a state dict"):
        load_backbone(f"torchvision:resnet18@{tmp_path / 'code.pth'}")
    with pytest.raises(InputError, match="`size` from 8"):
        load_backbone("torchvision:resnet18@random", size=0)
    with pytest.raises(InputError, match="imagenet, half, none"):
        load_backbone("torchvision:resnet18@random", normalize="z")


def test_only_a_classifier_may_be_missing(tmp_path: Path) -> None:
    """A network of timm comes without one: its last linear layer is needed."""
    timm = pytest.importorskip("timm")
    state = timm.create_model("vit_tiny_patch16_224", num_classes=0).state_dict()
    torch.save({k: v for k, v in state.items() if "blocks.11.mlp.fc2" not in k}, tmp_path / "x.pth")
    with pytest.raises(InputError, match=r"blocks\.11\.mlp\.fc2\.weight is missing"):
        load_backbone(f"timm:vit_tiny_patch16_224@{tmp_path / 'x.pth'}")
