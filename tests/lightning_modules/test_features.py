"""Centroids taken inside a run: right, and nothing of the run is disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import RichProgressBar
from torch import nn

from fsl_basesel.data import ImageSet
from fsl_basesel.errors import InputError
from lightning_modules.features import feature_function, image_centroids
from tests.lightning_modules.runs import (
    WithDropout,
    images_of,
    tiny_cold_start,
    tiny_data,
    tiny_model,
    tiny_pool,
    tiny_trainer,
)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = WithDropout()
        self.net.net[1].running_mean += 0.3

    def features(self, images: torch.Tensor) -> torch.Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        return self.net(images)


def test_centroids_are_the_class_means_whatever_the_batches() -> None:
    module, pool = Encoder(), tiny_pool()
    previews = pool.preview_set()
    images, labels = previews.batch(range(len(previews)))
    with torch.no_grad():
        features = module.eval().features(images).flatten(1).double().numpy()
    expected = np.stack([features[labels.numpy() == c].mean(0) for c in range(12)])
    for batch_size in (1, 7, 48, 1000):
        found = image_centroids(previews, 12, module, batch_size=batch_size)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    two = image_centroids(previews, 12, module, batch_size=7, num_workers=2)
    np.testing.assert_array_equal(two, image_centroids(previews, 12, module, batch_size=7))


def test_modes_buffers_and_gradients_stay_as_they_were() -> None:
    module = Encoder()
    module.net.net[1].eval()  # someone froze the batch normalisation
    modes = [part.training for part in module.modules()]
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    random = torch.random.get_rng_state()
    image_centroids(tiny_pool().preview_set(), 12, module)
    assert [part.training for part in module.modules()] == modes
    assert torch.equal(torch.random.get_rng_state(), random)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, state[name])
    assert all(parameter.grad is None for parameter in module.parameters())


def test_modes_come_back_after_an_error() -> None:
    module = Encoder()
    module.features = lambda images: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        image_centroids(tiny_pool().preview_set(), 12, module)
    assert module.training


def test_a_selection_between_epochs_does_not_change_the_training(tmp_path: Path) -> None:
    """The same training with and without an extraction before every epoch."""

    class Extract(pl.Callback):
        def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
            previews = trainer.datamodule.pool.preview_set()  # type: ignore[attr-defined]
            image_centroids(previews, 12, pl_module, trainer=trainer)

    def trained(*callbacks: pl.Callback) -> dict[str, torch.Tensor]:
        model, data = tiny_model(), tiny_data()
        data.add_classes([1, 2])
        torch.manual_seed(0)
        tiny_trainer(tmp_path, *callbacks, max_epochs=2).fit(model, data)
        return model.state_dict()

    plain, extracting = trained(), trained(Extract())
    for name, tensor in plain.items():
        assert torch.equal(extracting[name], tensor), name


def test_mixed_precision_is_used(tmp_path: Path) -> None:
    seen: list[torch.dtype] = []
    model = tiny_model()
    original = model.features

    def features(images: torch.Tensor) -> torch.Tensor:
        result = original(images)
        if not model.training:
            seen.append(result.dtype)
        return result

    model.features = features  # type: ignore[method-assign]
    trainer = tiny_trainer(
        tmp_path,
        tiny_cold_start(),
        precision="bf16-mixed",
        limit_train_batches=1,
        limit_val_batches=0,
    )
    trainer.fit(model, tiny_data())
    assert seen
    assert set(seen) == {torch.bfloat16}


def test_the_progress_bar_of_lightning_shows_the_extraction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = RichProgressBar()
    titles: list[str] = []

    class Spy(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
            assert bar.progress is not None
            add = bar.progress.add_task
            monkeypatch.setattr(
                bar.progress, "add_task", lambda title, **o: titles.append(title) or add(title, **o)
            )

    trainer = tiny_trainer(
        tmp_path, bar, Spy(), tiny_cold_start(), enable_progress_bar=True, limit_train_batches=1
    )
    trainer.fit(tiny_model(), tiny_data())
    assert titles.count("Candidates") == titles.count("Novel classes") == 2


def test_a_module_without_features_is_told_to_name_them() -> None:
    with pytest.raises(InputError, match=r'WithDropout to have `features`.*features="encoder"'):
        feature_function(WithDropout())
    with pytest.raises(InputError, match="to have `net2`"):
        feature_function(WithDropout(), "net2")


def test_a_class_without_images_is_an_error() -> None:
    source = images_of(["a", "b"])
    pictures = ImageSet(source, [0, 0], [0, 1], [0, 0])
    with pytest.raises(InputError, match="class 1 has none"):
        image_centroids(pictures, 2, Encoder())
