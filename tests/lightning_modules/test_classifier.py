"""`BaseClassifier`: backbones, the masked head, the paper's schedule, its checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from fsl_basesel.errors import InputError
from lightning_modules import BaseClassifier, ColdStartSelection
from lightning_modules.backbones import build_backbone
from lightning_modules.classifier import MaskedHead, one_cycle
from lightning_modules.evaluation import evaluate_novel
from lightning_modules.heads import NearestCentroid
from tests.lightning_modules.noisy import noisy_task
from tests.lightning_modules.runs import WithDropout, tiny_data, tiny_trainer


@pytest.mark.parametrize(
    ("name", "options", "shape", "width"),
    [
        ("resnet18", {}, (2, 3, 64, 64), 512),
        ("resnet18", {"stem": "cifar"}, (2, 3, 32, 32), 512),
        ("resnet18", {"stem": "cifar", "in_channels": 1}, (2, 1, 28, 28), 512),
        ("resnet18", {}, (2, 1, 64, 64), 512),  # grey, repeated
        ("conv4", {}, (2, 1, 28, 28), 64),
        ("conv3", {"in_channels": 3}, (2, 3, 28, 28), 128),
        ("strided3", {}, (2, 1, 24, 24), 128),
        ("resnet8", {}, (2, 3, 32, 32), 128),
    ],
)
def test_backbones_by_name(name: str, options: dict, shape: tuple[int, ...], width: int) -> None:
    model = BaseClassifier(name, **options).eval()
    features = model.features(torch.rand(shape))
    assert features.shape == (shape[0], width)
    assert (features >= 0).all()  # so that cosines are too


def test_the_weights_are_those_of_torchvision_and_a_function_of_the_seed() -> None:
    from torchvision.models import resnet18

    torch.manual_seed(3)
    expected = resnet18(weights=None).state_dict()
    state = torch.random.get_rng_state()
    built = build_backbone("resnet18", seed=3).state_dict()
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, tensor in built.items():
        assert torch.equal(tensor, expected[name]), name
    other = build_backbone("resnet18", seed=4).state_dict()
    assert not torch.equal(other["conv1.weight"], built["conv1.weight"])


def test_classes_not_in_use_have_no_logit_and_get_no_gradient() -> None:
    head = MaskedHead(features=5, capacity=7)
    head.activate(3)
    logits = head(torch.rand(4, 5))
    assert logits.shape == (4, 3)
    logits.square().sum().backward()
    assert (head.weight.grad[:3] != 0).any()
    assert (head.weight.grad[3:] == 0).all()
    reference = nn.functional.linear(torch.ones(1, 5), head.weight, head.bias)[:, :3]
    torch.testing.assert_close(head(torch.ones(1, 5)), reference)


def test_adding_classes_leaves_the_others_and_draws_new_ones_whatever_decay_did() -> None:
    head, fresh = MaskedHead(4, 6), MaskedHead(4, 6)
    head.activate(2)
    with torch.no_grad():
        head.weight += 1
        head.weight[2:] *= 0.01
    kept = head.weight[:2].clone()
    head.activate(5)
    assert torch.equal(head.weight[:2], kept)
    assert torch.equal(head.weight[2:5], fresh.weight[2:5])
    assert torch.equal(MaskedHead(4, 99).weight[:6], fresh.weight)


def test_a_loaded_head_knows_how_many_classes_it_has() -> None:
    head, other = MaskedHead(4, 6), MaskedHead(4, 6, seed=1)
    head.activate(3)
    other.load_state_dict(head.state_dict())
    assert other(torch.rand(1, 4)).shape == (1, 3)
    with pytest.raises(InputError, match="from 1 to 6 active classes"):
        other.activate(7)


def test_the_rate_falls_as_in_the_paper(tmp_path: Path) -> None:
    model = BaseClassifier("conv3", capacity=2)
    model.stage_epochs = 120
    (optimizer,), (schedule,) = model.configure_optimizers()
    settings = optimizer.param_groups[0]
    assert (settings["momentum"], settings["weight_decay"]) == (0.9, 5e-4)
    rates = []
    for _ in range(120):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    expected = [0.1] * 25 + [0.01] * 25 + [1e-3] * 30 + [1e-4] * 25 + [1e-5] * 15
    torch.testing.assert_close(torch.tensor(rates), torch.tensor(expected))


def test_the_milestones_scale_with_the_epochs_of_the_stage() -> None:
    model = BaseClassifier("conv3", capacity=2)
    model.stage_epochs = 12
    _, (schedule,) = model.configure_optimizers()
    falls = [schedule.lr_lambdas[0](epoch) for epoch in range(12)]
    assert [falls.index(v) for v in sorted(set(falls), reverse=True)] == [0, 3, 5, 8, 11]


def test_one_cycle_goes_up_and_down_within_every_stage(tmp_path: Path) -> None:
    rates: list[tuple[int, float]] = []

    class Rates(pl.Callback):
        def on_train_batch_start(self, trainer: pl.Trainer, *_: object) -> None:
            stage = trainer.callbacks[0].stage_state.stage  # type: ignore[attr-defined]
            rates.append((stage, trainer.optimizers[0].param_groups[0]["lr"]))

    model = BaseClassifier("strided3", lr=0.2, schedule="one-cycle")
    cold_start = ColdStartSelection((2, 4), (2, 1), k=1, verbose=False)
    tiny_trainer(tmp_path, cold_start, Rates()).fit(model, tiny_data())
    for stage in (0, 1):
        seen = [rate for number, rate in rates if number == stage]
        batches = len(seen)
        expected = [0.2 * one_cycle(step / batches) for step in range(batches)]
        torch.testing.assert_close(torch.tensor(seen), torch.tensor(expected))


def test_optimizer_and_schedule_can_be_others() -> None:
    model = BaseClassifier(
        "conv3",
        capacity=2,
        optimizer=lambda parameters: torch.optim.Adam(parameters, 1e-3),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
    )
    (optimizer,), (schedule,) = model.configure_optimizers()
    assert isinstance(optimizer, torch.optim.Adam)
    assert isinstance(schedule, torch.optim.lr_scheduler.ExponentialLR)


def test_trains_on_given_classes_and_loads_from_a_checkpoint(tmp_path: Path) -> None:
    data = tiny_data()
    data.add_classes([3, 5, 1])
    model = BaseClassifier("conv3", lr=0.02, milestones=())
    trainer = tiny_trainer(tmp_path, max_epochs=6)
    trainer.fit(model, data)
    assert trainer.callback_metrics["val_accuracy"] > 0.8
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = BaseClassifier.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    images = data.validation_images().batch([0, 1])[0]
    model.eval(), loaded.eval()
    assert loaded(images).shape == (2, 3)
    assert torch.equal(loaded(images), model(images))
    results = trainer.validate(loaded, data, verbose=False)
    assert results[0]["val_accuracy"] == pytest.approx(
        float(trainer.callback_metrics["val_accuracy"])
    )


def test_a_backbone_of_ones_own_is_measured_without_touching_it(tmp_path: Path) -> None:
    data = tiny_data()
    data.add_classes([0, 1])
    backbone = WithDropout()
    backbone.net[1].eval()
    model = BaseClassifier(backbone)
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    trainer = tiny_trainer(tmp_path, max_epochs=0)
    trainer.fit(model, data)
    assert model.head is not None
    assert model.head.features == 8 * 3 * 3
    assert not backbone.net[1].training
    assert backbone.net[0].training
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_errors_say_what_to_do() -> None:
    with pytest.raises(InputError, match="strided3, resnet8, a pre-trained network or an"):
        BaseClassifier("resnet19")
    with pytest.raises(InputError, match="`stem` to be one of imagenet, cifar but got 'small'"):
        BaseClassifier("resnet18", stem="small")
    with pytest.raises(InputError, match="`schedule` to be one of steps, one-cycle but got 'cos'"):
        BaseClassifier("conv3", schedule="cos")
    with pytest.raises(InputError, match="in_channels=3"):
        BaseClassifier("conv4").features(torch.rand(1, 3, 28, 28))
    with pytest.raises(InputError, match="use `features`"):
        BaseClassifier("conv4")(torch.rand(1, 1, 28, 28))
    with pytest.raises(InputError, match="pass `capacity`"):
        BaseClassifier("conv4").activate(3)


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_a_test_gives_the_accuracy_on_the_novel_task_with_its_interval(
    tmp_path: Path, batch_size: int
) -> None:
    data = tiny_data(novel=noisy_task(), eval_batch_size=batch_size)
    model = BaseClassifier("conv3", capacity=4, seed=3)
    (logged,) = tiny_trainer(tmp_path).test(model, data, verbose=False)
    (expected,) = evaluate_novel(model, data.novel, [NearestCentroid()], shots=4)  # type: ignore[arg-type]
    assert len(set(expected.accuracies)) > 1
    assert logged["test_accuracy"] == pytest.approx(expected.mean, abs=1e-6)
    assert logged["test_accuracy_ci95"] == pytest.approx(expected.interval, abs=1e-6)


def test_a_test_needs_the_data_module(tmp_path: Path) -> None:
    model = BaseClassifier("conv3", capacity=4)
    tiny_trainer(tmp_path, fast_dev_run=True).test(model, tiny_data(), verbose=False)
    with pytest.raises(InputError, match="with a BaseClassDataModule but got NoneType"):
        tiny_trainer(tmp_path).test(model, [torch.rand(2, 1, 8, 8)], verbose=False)
