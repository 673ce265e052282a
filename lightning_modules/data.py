"""`BaseClassDataModule`: training images of the base classes chosen so far, and its loader.

A run that was killed and resumed must see the same batches as an uninterrupted run. They depend
neither on the global random state nor on earlier draws: batch b of epoch e of a seed is the same in
every process, with any number of workers.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fsl_basesel import checks
from fsl_basesel.controls import even_counts
from fsl_basesel.data import ClassPool, ImageSet, NovelTask, counter, require_disjoint
from fsl_basesel.data.cache import fingerprint
from fsl_basesel.data.reading import text_of
from fsl_basesel.errors import InputError
from lightning_modules.both import DataModule
from lightning_modules.resume import require_same

NEWER = ("augment", "batch_size", "cost", "extractor", "model")
"""Settings by which a run is recognised that checkpoints of 0.1.0 lack."""

# Returns images too; a command line would take a `Tensor` here for a class to be built.
Augmentation = Callable[[Tensor], Any]


def batch_count(images: int, batch_size: int, world: int = 1) -> int:
    """Batches in an epoch, the same for each of `world` processes.

    A last batch with fewer than two images for a process is left out, since batch normalisation
    cannot train on a single one; the order changes every epoch, so those images come next time.

    Example:
        >>> batch_count(100, 8), batch_count(97, 8), batch_count(100, 8, world=2)
        (13, 12, 7)
    """
    full, rest = divmod(images, batch_size * world)
    return full + (rest >= 2 * world or full == 0)


def epoch_order(images: int, seed: int, epoch: int, min_images: int = 0) -> np.ndarray:
    """Positions of the images in the order of an epoch.

    If there are fewer than `min_images`, passes over all of them follow one another, each in an
    order of its own, until there are so many; the last pass is cut short.
    """
    passes = max(1, -(-min_images // images))
    keys = [counter.key(seed, "epoch", epoch)]
    keys += [counter.key(seed, "epoch", epoch, "pass", number) for number in range(1, passes)]
    orders = [counter.shuffled(key, np.arange(images)) for key in keys]
    return np.concatenate(orders)[: max(images, min_images)]


def epoch_batches(
    images: int,
    batch_size: int,
    seed: int,
    epoch: int,
    rank: int = 0,
    world: int = 1,
    min_images: int = 0,
) -> list[np.ndarray]:
    """Positions of the images in each batch of an epoch.

    Batch b of the processes together is what one process with `world` times the batch size would
    get. Where the last batch cannot be shared out evenly, images from the start of the order fill
    it up. For `min_images` see `epoch_order`.
    """
    order = epoch_order(images, seed, epoch, min_images)
    return _share_out(order, batch_count(len(order), batch_size, world), batch_size, rank, world)


def _share_out(
    order: np.ndarray, count: int, batch_size: int, rank: int, world: int
) -> list[np.ndarray]:
    """The first `count` batches of an order, for one of `world` processes."""
    together = batch_size * world
    batches = []
    for start in range(0, count * together, together):
        shared = order[start : start + together]
        missing = -len(shared) % world
        if missing:
            shared = np.concatenate([shared, np.resize(order, missing)])
        batches.append(shared[rank::world])
    return batches


class BatchedImages(Dataset):
    """Images by the batch, augmented as a function of (seed, epoch, batch, process)."""

    def __init__(
        self, images: ImageSet, augment: Augmentation | None = None, seed: int = 0, rank: int = 0
    ) -> None:
        self.images, self.augment, self.seed, self.rank = images, augment, seed, rank

    def __getitem__(self, batch: tuple[int, int, np.ndarray]) -> tuple[Tensor, Tensor]:
        epoch, number, positions = batch
        pictures, labels = self.images.batch(positions)
        if self.augment is not None:
            with isolate_rng(include_cuda=False):
                reseed(step_seed(self.seed, "augment", epoch, number, self.rank))
                pictures = self.augment(pictures)
        return pictures, labels


def step_seed(seed: int, purpose: str, *numbers: int) -> int:
    """A seed that is a function of what it is for."""
    return int(counter.key(seed, purpose, *numbers)) & 0x7FFFFFFFFFFFFFFF


def reseed(seed: int) -> None:
    """Set the global random numbers of torch on the CPU, of `numpy.random` and of `random`."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002
    random.seed(seed)


class EpochLoader:
    """Iterates over the batches `(images, labels)` of the current epoch; has a length and a state.

    Nothing is fetched before the first batch is asked for: only then is the epoch looked up, since
    Lightning makes iterators before it knows the epoch, and more of them than it uses.

    Without `shuffle` it gives every image once, as they come, every epoch alike. `workers` are
    options of `torch.utils.data.DataLoader` (`num_workers`, `pin_memory`, ...).
    """

    def __init__(
        self,
        images: ImageSet,
        batch_size: int,
        epoch: Callable[[], int] = lambda: 0,
        seed: int = 0,
        *,
        rank: int = 0,
        world: int = 1,
        augment: Augmentation | None = None,
        shuffle: bool = True,
        min_images: int = 0,
        **workers: Any,
    ) -> None:
        self.dataset = images
        self.batch_size = checks.integer(batch_size, "batch_size", 1)
        self._epoch = epoch
        self._seed, self._rank, self._world = seed, rank, world
        self._shuffle, self._min_images = shuffle, min_images
        self._order: list[tuple[int, int, np.ndarray]] = []
        self._fetching = BatchedImages(images, augment, seed, rank)
        self._options = workers
        self._loader = self._make_loader()
        self._state = {"epoch": -1, "batches": 0}
        self._resume: dict[str, int] | None = None

    def _make_loader(self) -> DataLoader:
        return DataLoader(
            self._fetching,
            batch_size=None,
            sampler=self._order,
            # Without a generator of its own every iteration would draw from the global one.
            generator=torch.Generator().manual_seed(step_seed(self._seed, "workers", self._rank)),
            **self._options,
        )

    def _batches(self, epoch: int) -> list[np.ndarray]:
        count, rank, world = len(self.dataset), self._rank, self._world
        if self._shuffle:
            shared = (rank, world, self._min_images)
            return epoch_batches(count, self.batch_size, self._seed, epoch, *shared)
        return _share_out(np.arange(count), len(self), self.batch_size, rank, world)

    def __len__(self) -> int:
        if self._shuffle:
            images = max(len(self.dataset), self._min_images)
            return batch_count(images, self.batch_size, self._world)
        return -(-len(self.dataset) // (self.batch_size * self._world))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        epoch = self._epoch()
        resume, self._resume = self._resume, None
        first = resume["batches"] if resume is not None and resume["epoch"] == epoch else 0
        batches = enumerate(self._batches(epoch)[first:], first)
        self._order[:] = [(epoch, number, positions) for number, positions in batches]
        for number, batch in enumerate(self._loader, first + 1):
            self._state = {"epoch": epoch, "batches": number}
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The current epoch and how many of its batches were given out."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next iteration go on where `state` was taken, if it is of the same epoch."""
        self._resume = {"epoch": int(state["epoch"]), "batches": int(state["batches"])}
        self._state = dict(self._resume)

    def close(self) -> None:
        """Let go of worker processes that were to persist."""
        self._loader = self._make_loader()


# Lightning's remark on a run without validation images, which is what was asked for.
warnings.filterwarnings("ignore", message="Total length of `list` across ranks is zero")


def saved_identity(state: dict[str, Any]) -> dict[str, Any]:
    """What a run must agree on with the saved state of a data module.

    Before the first batch the batch size may still change, as it does when Lightning searches it.
    """
    position = state["position"]
    begun = position is not None and (position["epoch"] or position["batches"])
    free = () if begun else ("batch_size",)
    return {name: value for name, value in state["identity"].items() if name not in free}


class BaseClassDataModule(DataModule):
    """Loaders over the chosen classes of a pool; classes may be added during training.

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
        max_images: train on this many images at most, as evenly from the classes as they allow
            (`fsl_basesel.controls.even_counts`); None uses all. Networks on different classes can
            be trained on equal numbers of images that way.
        min_epoch_images: training images of an epoch at least. Where the classes have fewer, an
            epoch goes over them more than once, the last time in part, so that a model of few
            classes is trained as long as one of more.
        augment: random change of a batch of training images `[B, ...]`; it may use the global
            random numbers of torch, numpy and Python, which are set for it and put back.
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
        max_images: int | None = None,
        min_epoch_images: int = 0,
        augment: Augmentation | None = None,
        eval_batch_size: int = 128,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
    ) -> None:
        super().__init__()
        for name, value, minimum in (
            ("batch_size", batch_size, 1),
            ("eval_batch_size", eval_batch_size, 1),
            ("val_per_class", val_per_class, 0),
            ("min_epoch_images", min_epoch_images, 0),
            ("num_workers", num_workers, 0),
        ):
            checks.integer(value, name, minimum)
        if max_images is not None:
            checks.integer(max_images, "max_images", 1)
        if novel is not None:
            require_disjoint(pool, novel)
        self.pool, self.novel = pool, novel
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.seed, self.val_per_class, self.augment = seed, val_per_class, augment
        self.max_images, self.min_epoch_images = max_images, min_epoch_images
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
    def trainer(self) -> pl.Trainer | None:
        """The Trainer of the run, if there is one."""
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: pl.Trainer | None) -> None:
        """Set by Lightning when a run begins, before it looks for a checkpoint to resume from."""
        self._trainer = trainer
        for callback in getattr(trainer, "callbacks", ()):
            prepare = getattr(callback, "before_checkpoints_are_found", None)
            if callable(prepare):
                prepare(trainer, self)

    @property
    def task(self) -> NovelTask:
        """The novel task, for those who need one."""
        if self.novel is None:
            raise InputError(
                "Expected a novel task to test on but this data module has none (General "
                "Selection); pass `novel` to it."
            )
        return self.novel

    @property
    def workers_once(self) -> dict[str, Any]:
        """Options of a `DataLoader` that goes over its images once."""
        return self.workers | {"persistent_workers": False}

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
                f"Expected classes that are not chosen yet but {double[0]!r} is ({len(double)} of "
                f"{len(new)} classes); leave them out."
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
        first = self.trainer is None or self.trainer.is_global_zero
        try:
            if first:
                self.pool.expand(classes)
        finally:
            if self.trainer is not None:
                self.trainer.strategy.barrier("expand")
        if not first:
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
        first = sizes - self.val_per_class
        if held_out:
            mask = everything.items >= first[everything.labels]
        else:
            taken = first if self.max_images is None else even_counts(first, self.max_images)
            mask = everything.items < taken[everything.labels]
        chosen = (everything.classes[mask], everything.items[mask], everything.labels[mask])
        return ImageSet(everything.source, *chosen)

    def train_dataloader(self) -> EpochLoader:
        """Batches of the chosen classes; the same loader while classes and settings stay."""
        self._choose()
        loader = self._cached_loader("train")
        if self._resume is not None:
            loader.load_state_dict(self._resume)
            self._resume = None
        return loader

    def val_dataloader(self) -> EpochLoader | list[EpochLoader]:
        """The images kept for validation, in order; nothing where `val_per_class` is 0."""
        if self.val_per_class == 0:
            return []
        self._choose()
        return self._cached_loader("val")

    def test_dataloader(self) -> Any:
        """One batch, the novel task, on which `BaseClassifier.test_step` judges the model.

        A set, since Lightning would take a list for several loaders.
        """
        return frozenset([self.task])

    def _cached_loader(self, part: str) -> EpochLoader:
        """The loader there is, or a new one if the classes or the settings have changed."""
        settings = self._loader_settings(part)
        key = (self.class_numbers, self.val_per_class, self.max_images, *settings.items())
        if part not in self._loaders or self._loaders[part][0] != key:
            self._close(part)
            images = self.training_images() if part == "train" else self.validation_images()
            self._loaders[part] = (key, self._make_loader(images, **settings))
        return self._loaders[part][1]

    def _loader_settings(self, part: str) -> dict[str, Any]:
        """What a loader of this part ("train" or "val") is made with, images aside."""
        rank, world = self._rank_and_world()
        shared: dict[str, Any] = {"rank": rank, "world": world}
        if part != "train":
            return shared | {"batch_size": self.eval_batch_size, "shuffle": False}
        return shared | {
            "batch_size": self.batch_size,
            "epoch": self._epoch,
            "augment": self.augment,
            "min_images": self.min_epoch_images,
        }

    def _make_loader(self, images: ImageSet, **settings: Any) -> EpochLoader:
        return EpochLoader(images, seed=self.seed, **settings, **self.workers)

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
        # To overfit some batches is to see the same ones in every epoch.
        if self.trainer is None or self.trainer.overfit_batches > 0:  # type: ignore[attr-defined]
            return 0
        return self.trainer.current_epoch

    def _rank_and_world(self) -> tuple[int, int]:
        if self.trainer is None:
            return 0, 1
        return self.trainer.global_rank, self.trainer.world_size

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree on to be resumed with this data module."""
        limit = {} if self.max_images is None else {"max_images": self.max_images}
        augment = None if self.augment is None else text_of(self.augment)
        if augment is not None and len(augment) > 80:  # that of a function
            augment = fingerprint([augment])
        return limit | {
            "pool": self.pool.fingerprint,
            "novel": "none" if self.novel is None else self.novel.fingerprint,
            "data seed": self.seed,
            "val_per_class": self.val_per_class,
            "min_epoch_images": self.min_epoch_images,
            "batch_size": self.batch_size,
            "augment": augment,
        }

    def state_dict(self) -> dict[str, Any]:
        """The classes in label order and the place in the epoch, as plain types."""
        train = self._loaders.get("train")
        position = self._resume if train is None else train[1].state_dict()
        return {
            "identity": self.identity(),
            "classes": list(self.classes),
            "position": position,
            "processes": self._rank_and_world()[1],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the classes and the place in the epoch; refuse another pool, task or seed."""
        fitting = self.trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
        if fitting:
            require_same(saved_identity(state_dict), self.identity(), NEWER)
        elif state_dict["identity"]["pool"] != self.pool.fingerprint:
            return  # another pool may be evaluated with the weights of a checkpoint
        self.clear_classes()
        self.add_classes(state_dict["classes"])
        if fitting:
            self._resume = state_dict["position"]
            self._check_processes(state_dict.get("processes"))

    def _check_processes(self, before: int | None) -> None:
        """Allow another number of processes at the start of an epoch only."""
        _, now = self._rank_and_world()
        if before in (None, now):
            return
        batches = 0 if self._resume is None else self._resume["batches"]
        if batches not in (0, self.batches_of_an_epoch(before)):
            raise InputError(
                f"Expected {before} process(es), as when the checkpoint was written in the middle "
                f"of an epoch, but got {now}; resume with {before}, or from the end of an epoch."
            )
        warnings.warn(
            f"The run continues with {now} process(es) instead of {before}: a step now has "
            f"{self.batch_size * now} images instead of {self.batch_size * before}.",
            stacklevel=2,
        )

    def batches_of_an_epoch(self, world: int = 1) -> int:
        """Training batches of an epoch in each of `world` processes, with the present classes."""
        images = max(len(self.training_images()), self.min_epoch_images)
        return batch_count(images, self.batch_size, world)

    def teardown(self, stage: str) -> None:
        """Let worker processes go."""
        self._close()

    def _close(self, *parts: str) -> None:
        for part in parts or tuple(self._loaders):
            if part in self._loaders:
                self._loaders.pop(part)[1].close()
