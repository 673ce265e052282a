"""A data loader whose order is a function of (seed, epoch) and which can start in mid-epoch.

A run that was killed and is resumed must see the very batches that it would have seen. Neither the
global random state nor what was drawn before has a part in them: batch b of epoch e of a seed is
the same in every process, with any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from fsl_basesel.data import ImageSet, counter
from fsl_basesel.errors import InputError

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


def epoch_order(images: int, seed: int, epoch: int, least: int = 0) -> np.ndarray:
    """Positions of the images in the order of an epoch.

    Where there are fewer than `least` images, passes over all of them follow one another, each in
    an order of its own, until there are so many; the last pass is cut short.

    Example:
        >>> epoch_order(3, seed=0, epoch=0).tolist()
        [1, 0, 2]
        >>> epoch_order(3, seed=0, epoch=0, least=8).tolist()
        [1, 0, 2, 2, 0, 1, 2, 0]
    """
    passes = max(1, -(-least // images))
    keys = [counter.key(seed, "epoch", epoch)]
    keys += [counter.key(seed, "epoch", epoch, "pass", number) for number in range(1, passes)]
    orders = [counter.shuffled(key, np.arange(images)) for key in keys]
    return np.concatenate(orders)[: max(images, least)]


def epoch_batches(
    images: int,
    batch_size: int,
    seed: int,
    epoch: int,
    rank: int = 0,
    world: int = 1,
    least: int = 0,
) -> list[np.ndarray]:
    """Positions of the images in each batch of an epoch.

    Batch b of the processes together is what one process with `world` times the batch size would
    get. Where the last batch cannot be shared out evenly, images from the start of the order fill
    it up.

    Args:
        images: how many images there are.
        batch_size: images of a batch in one process.
        seed: seed of all orders.
        epoch: number of the epoch.
        rank: number of this process.
        world: number of processes.
        least: images of an epoch at least; see `epoch_order`.

    Example:
        >>> [batch.tolist() for batch in epoch_batches(5, 2, seed=0, epoch=0)]
        [[4, 1], [3, 0]]
        >>> [batch.tolist() for batch in epoch_batches(5, 2, seed=0, epoch=1)]
        [[3, 2], [0, 4]]
    """
    order = epoch_order(images, seed, epoch, least)
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


class Batch(NamedTuple):
    """What a worker needs to know to make a batch: which one it is and which images it has."""

    epoch: int
    number: int
    positions: np.ndarray


class BatchedImages(Dataset):
    """Images fetched a batch at a time, augmented as a function of (seed, epoch, batch, process).

    Args:
        images: the images with their labels.
        augment: random change of a batch of images `[B, ...]`; it may use torch's global random
            numbers, which are set for it and put back afterwards.
        seed: seed of the augmentation.
        rank: number of this process.
    """

    def __init__(
        self, images: ImageSet, augment: Augmentation | None = None, seed: int = 0, rank: int = 0
    ) -> None:
        self.images, self.augment, self.seed, self.rank = images, augment, seed, rank

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        pictures, labels = self.images.batch(batch.positions)
        if self.augment is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(
                    step_seed(self.seed, "augment", batch.epoch, batch.number, self.rank)
                )
                pictures = self.augment(pictures)
        return pictures, labels


def step_seed(seed: int, purpose: str, *numbers: int) -> int:
    """A seed for torch that is a function of what it is for.

    Example:
        >>> step_seed(0, "augment", 1, 2) == step_seed(0, "augment", 1, 2)
        True
    """
    return int(counter.key(seed, purpose, *numbers)) & 0x7FFFFFFFFFFFFFFF


class _Aimed(Sampler):
    """The batches of the epoch it was last aimed at, from some batch on."""

    def __init__(self, batches: Callable[[int], list[np.ndarray]]) -> None:
        self._batches = batches
        self.epoch = self.first = 0

    def __iter__(self) -> Iterator[Batch]:
        epoch, first = self.epoch, self.first
        for number, positions in enumerate(self._batches(epoch)[first:], first):
            yield Batch(epoch, number, positions)


class EpochLoader:
    """Iterates over the batches `(images, labels)` of the current epoch; has a length and a state.

    Nothing is fetched before the first batch is asked for: only then is the epoch looked up, since
    Lightning makes iterators before it knows the epoch, and more of them than it uses.

    Args:
        images: the images with their labels.
        batch_size: images of a batch in one process.
        epoch: tells the number of the epoch.
        seed: seed of order and augmentation.
        rank: number of this process.
        world: number of processes.
        augment: see `BatchedImages`.
        shuffle: False gives every image once, as they come, every epoch alike.
        least: images of an epoch at least, where they are shuffled; see `epoch_order`.
        workers: options of `torch.utils.data.DataLoader` (`num_workers`, `pin_memory`, ...).

    Example:
        >>> from fsl_basesel.data import from_arrays
        >>> source = from_arrays(torch.rand(6, 1, 4, 4), [0, 0, 0, 1, 1, 1])
        >>> pictures = ImageSet(source, [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1])
        >>> loader = EpochLoader(pictures, 2)
        >>> [labels.tolist() for _, labels in loader]
        [[1, 0], [1, 0], [0, 1]]
        >>> loader.load_state_dict({"epoch": 0, "batches": 2})
        >>> [labels.tolist() for _, labels in loader]
        [[0, 1]]
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
        least: int = 0,
        **workers: Any,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"Expected `batch_size` to be at least 1 but got {batch_size}.")
        self.dataset = images
        self.batch_size = batch_size
        self._epoch = epoch
        self._seed, self._rank, self._world = seed, rank, world
        self._shuffle, self._least = shuffle, least
        self._aimed = _Aimed(self._batches)
        self._fetching = BatchedImages(images, augment, seed, rank)
        self._options = workers
        self._loader = self._make_loader()
        self._state = {"epoch": -1, "batches": 0}
        self._resume: dict[str, int] | None = None

    def _make_loader(self) -> DataLoader:
        return DataLoader(
            self._fetching,
            batch_size=None,
            sampler=self._aimed,
            collate_fn=_unchanged,
            # Without a generator of its own every iteration would draw from the global one.
            generator=torch.Generator().manual_seed(step_seed(self._seed, "workers", self._rank)),
            **self._options,
        )

    def _batches(self, epoch: int) -> list[np.ndarray]:
        count, rank, world = len(self.dataset), self._rank, self._world
        if self._shuffle:
            shared = (rank, world, self._least)
            return epoch_batches(count, self.batch_size, self._seed, epoch, *shared)
        return _share_out(np.arange(count), len(self), self.batch_size, rank, world)

    def __len__(self) -> int:
        if self._shuffle:
            images = max(len(self.dataset), self._least)
            return batch_count(images, self.batch_size, self._world)
        return -(-len(self.dataset) // (self.batch_size * self._world))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        epoch = self._epoch()
        resume, self._resume = self._resume, None
        first = resume["batches"] if resume is not None and resume["epoch"] == epoch else 0
        self._aimed.epoch, self._aimed.first = epoch, first
        for number, batch in enumerate(self._loader, first + 1):
            self._state = {"epoch": epoch, "batches": number}
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The epoch under way and how many of its batches were given out."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next iteration go on where `state` was taken, if it is of the same epoch."""
        self._resume = {"epoch": int(state["epoch"]), "batches": int(state["batches"])}
        self._state = dict(self._resume)

    def close(self) -> None:
        """Let go of worker processes that were to persist."""
        self._loader = self._make_loader()


def batches_in_order(
    images: ImageSet, batch_size: int, rank: int = 0, world: int = 1, **workers: Any
) -> DataLoader:
    """Every image once, in order, batch b in process b modulo `world`.

    Which images share a batch does not depend on the number of processes.

    Example:
        >>> from fsl_basesel.data import from_arrays
        >>> source = from_arrays(torch.rand(5, 1, 4, 4), [0] * 5)
        >>> pictures = ImageSet(source, [0] * 5, range(5), [3, 4, 5, 6, 7])
        >>> [labels.tolist() for _, labels in batches_in_order(pictures, 2, rank=0, world=2)]
        [[3, 4], [7]]
    """
    starts = range(rank * batch_size, len(images), world * batch_size)
    plan = [
        Batch(0, start // batch_size, np.arange(start, min(start + batch_size, len(images))))
        for start in starts
    ]
    return DataLoader(
        BatchedImages(images),
        batch_size=None,
        sampler=plan,
        collate_fn=_unchanged,
        generator=torch.Generator(),
        **workers,
    )


def _unchanged(batch: Any) -> Any:
    return batch
