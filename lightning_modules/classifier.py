"""`BaseClassifier`: the model trained on the base classes, whose features the novel task uses."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics.classification import MulticlassAccuracy

from fsl_basesel import checks
from fsl_basesel.data import NovelTask
from fsl_basesel.embedding import evaluation_mode
from fsl_basesel.errors import InputError
from lightning_modules.backbones import build_backbone
from lightning_modules.both import Module
from lightning_modules.data import BaseClassDataModule, step_seed
from lightning_modules.evaluation import evaluate_novel
from lightning_modules.heads import NearestCentroid

RISE = 0.2
"""Share of a cycle in which the rate goes up."""


def one_cycle(progress: float) -> float:
    """Share of the highest rate after this share of the training.

    Example:
        >>> [round(one_cycle(p), 3) for p in (0.0, 0.1, 0.2, 0.6, 1.0)]
        [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if progress < RISE:
        return 0.04 + 0.96 * progress / RISE
    return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (progress - RISE) / (1 - RISE)))


class MaskedHead(nn.Module):
    """Logits of the first `active` classes out of `capacity`.

    Classes are added without a parameter being made or resized, so the optimizer, the gradient
    buckets of DDP and old checkpoints stay valid. A class that is not in use gets no gradient; if
    others have been trained when it comes into use, its weights are drawn anew, whatever weight
    decay did to them until then.

    The weights of class c are a function of `seed` and c, whatever the capacity.

    Example:
        >>> head = MaskedHead(features=8, capacity=10)
        >>> head.activate(4)
        >>> head(torch.zeros(2, 8)).shape
        torch.Size([2, 4])
    """

    active: Tensor

    def __init__(self, features: int, capacity: int, seed: int = 0) -> None:
        super().__init__()
        self.features, self.capacity, self.seed = features, capacity, seed
        self.weight = nn.Parameter(torch.empty(capacity, features))
        self.bias = nn.Parameter(torch.zeros(capacity))
        self.register_buffer("active", torch.zeros((), dtype=torch.int64))
        self._count = 0  # `active` as a number: reading a tensor on a GPU would wait for it
        self._draw(0, capacity)

    def activate(self, count: int) -> None:
        """Use the first `count` classes; those that join others start with fresh weights."""
        if not 1 <= count <= self.capacity:
            raise InputError(
                f"Expected from 1 to {self.capacity} active classes, the capacity of the head, but "
                f"got {count}; build the model with a larger `capacity`."
            )
        if 0 < self._count < count:
            self._draw(self._count, count)
        self._count = count
        self.active.fill_(count)

    @torch.no_grad()
    def _draw(self, first: int, last: int) -> None:
        bound = 1 / math.sqrt(self.features)
        for row in range(first, last):
            generator = torch.Generator().manual_seed(step_seed(self.seed, "head", row))
            values = torch.rand(self.features, generator=generator) * 2 * bound - bound
            self.weight[row] = values.to(self.weight)
        self.bias[first:last] = 0

    def forward(self, features: Tensor) -> Tensor:
        """Logits `[B, active]` of features `[B, d]`."""
        return functional.linear(features, self.weight[: self._count], self.bias[: self._count])

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._count = int(self.active)


class BaseClassifier(Module):
    """A backbone and a linear head over the base classes, trained as in the paper.

    The head is made when training starts and has room for all classes the schedule will reach; see
    `MaskedHead`. All weights are a function of `seed`, so that a run that is killed before its
    first checkpoint starts again the same.

    Args:
        backbone: "resnet18", "conv4", "conv3" or a pre-trained network such as "efficientnet-lite0"
            (see `build_backbone`), or any module that turns images into features; what it returns
            is flattened.
        stem: stem of resnet18, "imagenet" or "cifar".
        in_channels: channels of the images for a backbone named by a word. Grey images are
            repeated where a backbone expects colour.
        capacity: the most classes there will be; None asks the data module.
        lr: learning rate.
        momentum: momentum of SGD.
        weight_decay: weight decay of SGD.
        milestones: epochs, out of `schedule_epochs`, from which on the rate is a tenth.
        schedule: "steps": the paper's, a rate that falls tenfold at the milestones. "one-cycle":
            up to `lr` in the first fifth of the batches and down to nothing along a cosine, which
            makes more of a training of few epochs.
        schedule_epochs: epochs for which `milestones` are given; they are scaled to the epochs of
            a stage of a cold start, or to the Trainer's `max_epochs`.
        optimizer: makes another optimizer of the parameters.
        lr_scheduler: makes another schedule of the optimizer; stepped every epoch.
        seed: seed of the weights.

    Example:
        >>> model = BaseClassifier("conv3", capacity=5)
        >>> model.features(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 128])
    """

    def __init__(
        self,
        backbone: str | nn.Module = "resnet18",
        *,
        stem: str = "imagenet",
        in_channels: int | None = None,
        capacity: int | None = None,
        lr: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        milestones: Sequence[float] = (25, 50, 80, 105),
        schedule: str = "steps",
        schedule_epochs: int = 120,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        checks.one_of(schedule, ("steps", "one-cycle"), "schedule")
        # Plain types only: a checkpoint must load with weights_only=True.
        plain = ["stem", "in_channels", "capacity", "lr", "momentum", "weight_decay", "seed"]
        plain += ["schedule", "schedule_epochs"]
        plain += ["backbone"] if isinstance(backbone, str) else []
        self.save_hyperparameters(*plain)
        self.hparams["milestones"] = [float(m) for m in milestones]
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.milestones, self.schedule_epochs = tuple(sorted(milestones)), schedule_epochs
        self.schedule, self.optimizer, self.lr_scheduler = schedule, optimizer, lr_scheduler
        self.capacity, self.seed = capacity, seed
        self.stage_epochs: int | None = None
        """Epochs the present stage lasts; a selection callback sets it."""
        self._rebuild: Callable[[int], nn.Module] | None = None
        if isinstance(backbone, str):
            self._rebuild = partial(build_backbone, backbone, in_channels, stem)
            self.backbone = self._rebuild(seed)
        else:
            self.backbone = backbone
        self.head: MaskedHead | None = None
        width = getattr(self.backbone, "out_features", None)
        if capacity is not None and isinstance(width, int):
            self._make_head(width, capacity)

    def features(self, images: Tensor) -> Tensor:
        """Features `[B, d]` of images `[B, C, H, W]`."""
        expected = getattr(self.backbone, "in_channels", None)
        if isinstance(expected, int) and images.dim() == 4 and images.shape[1] != expected:
            if images.shape[1] != 1:
                raise InputError(
                    f"Expected images with {expected} channel(s) but got {images.shape[1]}; build "
                    f"the model with in_channels={images.shape[1]}."
                )
            images = images.expand(-1, expected, -1, -1)
        return self.backbone(images).flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        """Logits `[B, classes in use]`."""
        return self._present_head()(self.features(images))

    def activate(self, classes: int) -> None:
        """Say how many base classes there are from now on."""
        self._present_head().activate(classes)

    def _present_head(self) -> MaskedHead:
        if self.head is None:
            raise InputError(
                "Expected a head but this model has none until training starts; use `features`, or "
                "pass `capacity` and call `activate`."
            )
        return self.head

    def _make_head(self, width: int, capacity: int) -> None:
        self.head = MaskedHead(width, capacity, step_seed(self.seed, "head")).to(self.device)
        # Which class wins is all that counts, so it does not matter that logits grow in number.
        self.train_accuracy = MulticlassAccuracy(capacity, average="micro", validate_args=False)
        self.val_accuracy = MulticlassAccuracy(capacity, average="micro", validate_args=False)

    def setup(self, stage: str) -> None:
        """Make the head for as many classes as the data module will have."""
        if self.head is not None or stage != "fit":
            return
        data: Any = getattr(self.trainer, "datamodule", None)
        capacity = self.capacity or getattr(data, "capacity", None)
        capacity = capacity or len(getattr(getattr(data, "pool", None), "expanded", ()))
        if not capacity:
            raise InputError(
                "Expected to learn the number of classes from a BaseClassDataModule but got "
                f"{type(data).__name__}; pass `capacity` to BaseClassifier."
            )
        width = getattr(self.backbone, "out_features", None)
        if not isinstance(width, int):  # it does not say: try one image
            image, _ = data.pool.preview_set([0]).batch([0])
            with torch.no_grad(), evaluation_mode(self.backbone):
                width = self.features(image).shape[1]
        self._make_head(width, capacity)

    def on_fit_start(self) -> None:
        """Use the classes there are, where no selection callback says how many."""
        data = getattr(self.trainer, "datamodule", None)
        if self.head is not None and getattr(data, "chooser", None) is None:
            self.head.activate(len(getattr(data, "classes", ())) or self.head.capacity)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the head before its weights are loaded; its size is that of the checkpoint."""
        weight = checkpoint["state_dict"].get("head.weight")
        if self.head is None and weight is not None:
            self._make_head(weight.shape[1], weight.shape[0])

    def fresh_state(self, seed: int) -> dict[str, Tensor] | None:
        """Weights of a new model of that seed; None if the backbone cannot be built anew."""
        if self._rebuild is None or self.head is None:
            return None
        head = MaskedHead(self.head.features, self.head.capacity, step_seed(seed, "head"))
        parts = {"backbone": self._rebuild(seed), "head": head}
        return nn.ModuleDict(parts).state_dict()

    def configure_optimizers(self) -> Any:
        """SGD with the schedule that was asked for."""
        if self.optimizer is not None:
            optimizer = self.optimizer(self.parameters())
        else:
            optimizer = torch.optim.SGD(
                self.parameters(), self.lr, self.momentum, weight_decay=self.weight_decay
            )
        if self.lr_scheduler is not None:
            return [optimizer], [self.lr_scheduler(optimizer)]
        epochs = self.stage_epochs or self.trainer.max_epochs or -1
        if epochs < 0:
            epochs = self.schedule_epochs
        if self.schedule == "one-cycle":

            def factor(step: int) -> float:
                # Asked for after a batch, when the Trainer knows how many the stage's epochs have.
                return one_cycle(step / (epochs * self.trainer.num_training_batches) if step else 0)

            cycle = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
            return [optimizer], [{"scheduler": cycle, "interval": "step"}]
        falls = [m * epochs / self.schedule_epochs for m in self.milestones]
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda epoch: 0.1 ** bisect_right(falls, epoch)
        )
        return [optimizer], [schedule]

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Cross-entropy over the classes in use."""
        return self._step(batch, "train", self.train_accuracy)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss and accuracy on images kept out of training."""
        self._step(batch, "val", self.val_accuracy)

    def test_step(self, batch: NovelTask, batch_idx: int) -> None:
        """Accuracy on the novel task: nearest centroid, mean and 95 % interval over ten draws."""
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, BaseClassDataModule):
            raise InputError(
                "Expected trainer.test(model, data) with a BaseClassDataModule but got "
                f"{type(data).__name__}; pass one that has the novel task."
            )
        (found,) = evaluate_novel(
            self,
            batch,
            [NearestCentroid()],
            shots=batch.shots,
            batch_size=data.eval_batch_size,
            trainer=self.trainer,
            **data.workers_once,
        )
        log = partial(self.log, batch_size=1, sync_dist=True)
        log("test_accuracy", found.mean, prog_bar=True)
        log("test_accuracy_ci95", found.interval)

    def _step(
        self, batch: tuple[Tensor, Tensor], part: str, accuracy: MulticlassAccuracy
    ) -> Tensor:
        images, labels = batch
        logits = self(images)
        loss = functional.cross_entropy(logits, labels)
        accuracy(logits.argmax(1), labels)
        log = partial(self.log, on_step=False, on_epoch=True, prog_bar=True, batch_size=len(labels))
        log(f"{part}_loss", loss, sync_dist=part == "val")
        log(f"{part}_accuracy", accuracy)
        return loss
