"""`BaseClassDataModule`: training images of the base classes chosen so far, and of those only."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn
from torch.utils.data import DataLoader

from fsl_basesel.data import ClassPool, ImageSet, LabelsPending, NovelTask, require_disjoint
from fsl_basesel.errors import InputError
from lightning_modules.loader import Augmentation, EpochLoader, batches_in_order
from lightning_modules.sameness import novel_fingerprint, require_same

# Lightning's remark on a run without validation images, which is what was asked for.
warnings.filterwarnings("ignore", message="Total length of `list` across ranks is zero")


class BaseClassDataModule(pl.LightningDataModule):
    """Loaders over the chosen classes of a pool; classes may be added while training goes on.

    The label of a class is its position in the order of choice, and that list only grows, so labels
    never move. A selection callback (`SelectBaseClasses`, `ColdStartSelection`) fills it; without
    one, the classes that the pool has expanded are used, or those given to `add_classes`.

    The order of the images is a function of (seed, epoch). Together with the state kept in the
    checkpoint this makes a resumed run see the batches that it would have seen anyway.

    Args:
        pool: the candidate classes.
        novel: the task to select for; None is General Selection.
        batch_size: images of a batch in one process.
        seed: seed of the order of the images and of the augmentation.
        val_per_class: images of every class kept out of training for validation.
        min_epoch_images: training images of an epoch at least. Where the classes have fewer, an
            epoch goes over them more than once, the last time in part, so that a model of few
            classes is trained as long as one of more.
        augment: random change of a batch of training images; see `loader.BatchedImages`.
        eval_batch_size: images of a batch where nothing is trained.
        num_workers: processes that fetch images.
        pin_memory: as in `torch.utils.data.DataLoader`.
        persistent_workers: keep the workers from epoch to epoch. They are started anew when the
            classes change.

    Example:
        >>> import torch
        >>> from fsl_basesel.data import from_arrays
        >>> source = from_arrays(torch.rand(8, 1, 4, 4), [0, 0, 1, 1, 2, 2, 3, 3], list("abcd"))
        >>> dm = BaseClassDataModule(ClassPool(source), batch_size=2)
        >>> dm.add_classes(["c"])
        >>> dm.add_classes(["a"])
        >>> dm.classes, len(dm.train_dataloader())
        (('c', 'a'), 2)
    """

    def __init__(
        self,
        pool: ClassPool,
        novel: NovelTask | None = None,
        batch_size: int = 64,
        *,
        seed: int = 0,
        val_per_class: int = 0,
        min_epoch_images: int = 0,
        augment: Augmentation | None = None,
        eval_batch_size: int = 128,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("eval_batch_size", eval_batch_size, 1),
            ("val_per_class", val_per_class, 0),
            ("min_epoch_images", min_epoch_images, 0),
            ("num_workers", num_workers, 0),
        ):
            if value < least:
                raise InputError(f"Expected `{name}` to be at least {least} but got {value}.")
        if novel is not None:
            require_disjoint(pool, novel)
        self.pool, self.novel = pool, novel
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.seed, self.val_per_class, self.augment = seed, val_per_class, augment
        self.min_epoch_images = min_epoch_images
        self.workers: dict[str, Any] = {
            "num_workers": num_workers,
            "pin_memory": pin_memory,
            "persistent_workers": persistent_workers and num_workers > 0,
        }
        self.chooser: Callable[[], None] | None = None
        """Called before a loader is made; a selection callback adds classes there."""
        self.capacity: int | None = None
        """The most classes there will be, where a selection callback knows it."""
        self._chosen: list[int] = []
        self._loaders: dict[str, tuple[tuple[Any, ...], EpochLoader]] = {}
        self._resume: dict[str, int] | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the base classes chosen so far, in label order."""
        return tuple(self.pool.names[c] for c in self._chosen)

    @property
    def class_numbers(self) -> tuple[int, ...]:
        """Their numbers in the pool, in label order."""
        return tuple(self._chosen)

    def add_classes(self, classes: Iterable[Any]) -> None:
        """Expand these classes of the pool and give them the next labels.

        Args:
            classes: numbers or names; none of them chosen before.

        Raises:
            LabelsPending: from a pool whose classes are labelled by people, while they are not.
        """
        new = self.pool.source.positions(classes)
        double = [self.pool.names[c] for c in new if c in self._chosen]
        if double:
            raise InputError(
                f"Expected classes that are not chosen yet but {double[0]!r} is ({len(double)} "
                "such); leave them out."
            )
        self._expand(new)
        self._chosen.extend(new)

    def clear_classes(self) -> None:
        """Forget which classes were chosen, for a new run."""
        self._chosen.clear()
        self._resume = None
        self._close()

    def _expand(self, classes: list[int]) -> None:
        """Process 0 first: a pool that people label notes in a file what the others then read."""
        trainer = self.trainer
        if trainer is None or trainer.world_size == 1 or not classes:
            self.pool.expand(classes)
            return
        pending: LabelsPending | None = None
        if trainer.is_global_zero:
            try:
                self.pool.expand(classes)
            except LabelsPending as error:
                pending = error
        trainer.strategy.barrier("expand")
        if pending is not None:
            raise pending
        if not trainer.is_global_zero:
            self.pool.expand(classes)

    def training_images(self) -> ImageSet:
        """The images to train on: all of the chosen classes but those kept for validation."""
        return self._part(held_out=False)

    def validation_images(self) -> ImageSet:
        """The last `val_per_class` images of each chosen class."""
        return self._part(held_out=True)

    def _part(self, held_out: bool) -> ImageSet:
        everything = self.pool.training_set(self._chosen)
        sizes = np.bincount(everything.labels, minlength=len(self._chosen))
        small = np.flatnonzero(sizes <= self.val_per_class)
        if len(small):
            raise InputError(
                f"Expected more than `val_per_class` = {self.val_per_class} images in every class "
                f"but {self.classes[small[0]]!r} has {sizes[small[0]]}; lower `val_per_class`."
            )
        held = everything.items >= (sizes - self.val_per_class)[everything.labels]
        mask = held if held_out else ~held
        return ImageSet(
            everything.source,
            everything.classes[mask],
            everything.items[mask],
            everything.labels[mask],
        )

    def train_dataloader(self) -> EpochLoader:
        """Batches of the chosen classes; the same loader while classes and settings stay."""
        self._choose()
        # To overfit some batches is to see the same ones in every epoch.
        overfit = getattr(self.trainer, "overfit_batches", 0) > 0
        epoch = _first_epoch if overfit else self._epoch
        loader = self._kept("train", epoch, self.batch_size)
        if self._resume is not None:
            loader.load_state_dict(self._resume)
            self._resume = None
        return loader

    def val_dataloader(self) -> EpochLoader | list[EpochLoader]:
        """The images kept for validation, in order; nothing where `val_per_class` is 0."""
        if self.val_per_class == 0:
            return []
        self._choose()
        return self._kept("val", _first_epoch, self.eval_batch_size)

    def _kept(self, part: str, epoch: Callable[[], int], batch_size: int) -> EpochLoader:
        """The loader there is, or a new one if the classes or the settings have changed."""
        rank, world = self._place()
        settings = (batch_size, self.val_per_class, self.min_epoch_images)
        key = (self.class_numbers, *settings, rank, world, epoch)
        if part not in self._loaders or self._loaders[part][0] != key:
            self._close(part)
            training = part == "train"
            loader = EpochLoader(
                self.training_images() if training else self.validation_images(),
                batch_size,
                epoch,
                self.seed,
                rank=rank,
                world=world,
                augment=self.augment if training else None,
                shuffle=training,
                least=self.min_epoch_images if training else 0,
                **self.workers,
            )
            self._loaders[part] = (key, loader)
        return self._loaders[part][1]

    def preview_dataloader(self, rank: int = 0, world: int = 1) -> DataLoader:
        """Preview images of all candidates, labelled with the class's number in the pool."""
        return self._in_order(self.pool.preview_set(), rank, world)

    def support_dataloader(self, rank: int = 0, world: int = 1) -> DataLoader:
        """Support images of the novel classes, labelled with their position in `novel.names`."""
        if self.novel is None:
            raise InputError(
                "Expected a novel task but this data module has none (General Selection); pass "
                "`novel` to it."
            )
        return self._in_order(self.novel.support_set(), rank, world)

    def _in_order(self, images: ImageSet, rank: int, world: int) -> DataLoader:
        options = self.workers | {"persistent_workers": False}
        return batches_in_order(images, self.eval_batch_size, rank, world, **options)

    def _choose(self) -> None:
        if self.chooser is not None:
            self.chooser()
        elif not self._chosen and self.pool.expanded:
            self.add_classes(self.pool.expanded)
        if not self._chosen:
            raise InputError(
                "Expected base classes to train on but none was chosen; add SelectBaseClasses or "
                "ColdStartSelection to the Trainer's callbacks, or call `add_classes`."
            )

    def _epoch(self) -> int:
        return 0 if self.trainer is None else self.trainer.current_epoch

    def _place(self) -> tuple[int, int]:
        if self.trainer is None:
            return 0, 1
        return self.trainer.global_rank, self.trainer.world_size

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree on to be resumed with this data module."""
        return {
            "pool": self.pool.fingerprint,
            "novel": novel_fingerprint(self.novel),
            "data seed": self.seed,
            "val_per_class": self.val_per_class,
            "min_epoch_images": self.min_epoch_images,
        }

    def state_dict(self) -> dict[str, Any]:
        """The classes in label order and the place in the epoch, as plain types."""
        train = self._loaders.get("train")
        position = self._resume if train is None else train[1].state_dict()
        return {"identity": self.identity(), "classes": list(self.classes), "position": position}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the classes and the place in the epoch; refuse another pool, task or seed."""
        fitting = self.trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
        if fitting:
            require_same(state_dict["identity"], self.identity())
        elif state_dict["identity"]["pool"] != self.pool.fingerprint:
            return  # another pool may be evaluated with the weights of a checkpoint
        self.clear_classes()
        self.add_classes(state_dict["classes"])
        self._resume = state_dict["position"] if fitting else None

    def teardown(self, stage: str) -> None:
        """Let worker processes go."""
        self._close()

    def _close(self, *parts: str) -> None:
        for part in parts or tuple(self._loaders):
            if part in self._loaders:
                self._loaders.pop(part)[1].close()


def _first_epoch() -> int:
    return 0
