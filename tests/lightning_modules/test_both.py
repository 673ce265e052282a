"""`lightning.pytorch` as well as `pytorch_lightning`: the same run, bit for bit, in both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning
import torch
from torch import nn

from fsl_basesel.errors import InputError
from lightning_modules import BaseClassifier, NovelEvaluation
from lightning_modules.heads import NearestCentroid
from tests.lightning_modules.runs import WithDropout, tiny_cold_start, tiny_data

lightning = pytest.importorskip("lightning.pytorch")
PACKAGES = {"pytorch_lightning": pytorch_lightning, "lightning.pytorch": lightning}
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}


def classifier() -> BaseClassifier:
    torch.manual_seed(5)
    return BaseClassifier(WithDropout(), lr=0.05)


def run(package: Any, folder: Path, model: Any = None, **options: Any) -> tuple[Any, Any, Any]:
    novel = NovelEvaluation([NearestCentroid()], shots=2, episodes=3, verbose=False)
    saver = package.callbacks.ModelCheckpoint(folder, save_last=True)
    trainer = package.Trainer(
        default_root_dir=folder,
        callbacks=[tiny_cold_start(), novel, saver],
        logger=False,
        **(QUIET | options),
    )
    model, data = model or classifier(), tiny_data()
    trainer.fit(model, data, ckpt_path="last", weights_only=True)
    return trainer, model, (data, novel)


def test_both_packages_give_the_same_run_and_each_resumes(tmp_path: Path) -> None:
    weights, accuracies = {}, {}
    for name, package in PACKAGES.items():
        folder = tmp_path / name
        run(package, folder, limit_train_batches=3, max_epochs=3)
        trainer, model, (data, novel) = run(package, folder, limit_train_batches=3)
        assert isinstance(model, package.LightningModule)
        assert trainer.current_epoch == 5
        assert len(data.classes) == 7
        weights[name] = model.state_dict()
        accuracies[name] = [row["accuracy"] for row in novel.rows]
        (logged,) = trainer.test(model, data, verbose=False)
        assert 0 < logged["test_accuracy"] <= 1
    first, second = weights.values()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    assert len(set(map(tuple, accuracies.values()))) == 1
    whole = run(pytorch_lightning, tmp_path / "whole", limit_train_batches=3)[1].state_dict()
    assert all(torch.equal(tensor, whole[name]) for name, tensor in first.items())


class Mine(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """Twenty lines of somebody's own."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(72, 7)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.head(self.net(batch[0])), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def test_a_model_of_ones_own_for_lightning(tmp_path: Path) -> None:
    _, _, (data, novel) = run(lightning, tmp_path, Mine(), limit_train_batches=2)
    assert len(data.classes) == 7
    assert len(novel.rows) == 3


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_a_loader_without_validation_is_enough(package: Any, tmp_path: Path) -> None:
    images = torch.utils.data.TensorDataset(torch.rand(6, 1, 8, 8), torch.arange(6) % 3)
    model = BaseClassifier("conv3", capacity=3)
    trainer = package.Trainer(default_root_dir=tmp_path, max_epochs=1, logger=False, **QUIET)
    trainer.fit(model, torch.utils.data.DataLoader(images, batch_size=3))
    assert trainer.global_step == 2


def test_early_stopping_of_lightning_is_refused_too(tmp_path: Path) -> None:
    stop = lightning.callbacks.EarlyStopping("train_loss")
    trainer = lightning.Trainer(
        default_root_dir=tmp_path, callbacks=[tiny_cold_start(), stop], logger=False, **QUIET
    )
    with pytest.raises(InputError, match="use StageEarlyStopping"):
        trainer.fit(classifier(), tiny_data())
