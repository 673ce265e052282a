"""`SelectedTasks`: few-shot tasks of the base classes chosen so far, for episodic training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fsl_basesel import checks
from fsl_basesel.data import ClassPool, ImageSet, NovelTask
from fsl_basesel.errors import InputError
from lightning_modules.data import BaseClassDataModule, EpochLoader
from lightning_modules.episodes import EpisodeSampler


class TaskLoader(EpochLoader):
    """Tasks `(images, labels)` as learn2learn's modules take them; can start in mid-epoch.

    Class after class, of each the images to learn from before the others; labels are 0 to
    `ways - 1`. A task is a function of (seed, epoch, number, process), and no two processes get the
    same one.

    An epoch has `tasks` tasks in one process. `options` are those of `EpochLoader`: `epoch`,
    `seed`, `rank`, `world`, `augment` and options of `torch.utils.data.DataLoader`.

    Example:
        >>> from fsl_basesel.data import from_arrays
        >>> source = from_arrays(torch.rand(6, 1, 4, 4), [0, 0, 0, 1, 1, 1])
        >>> pictures = ImageSet(source, [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1])
        >>> loader = TaskLoader(pictures, ways=2, shots=1, queries=2, tasks=4)
        >>> [(images.shape[0], labels.tolist()) for images, labels in loader][0]
        (6, [0, 0, 0, 1, 1, 1])
    """

    def __init__(
        self, images: ImageSet, ways: int, shots: int, queries: int, tasks: int, **options: Any
    ) -> None:
        seed = options.get("seed", 0)
        self._sampler = EpisodeSampler(images.labels, ways, shots, queries, seed)
        self._tasks = tasks
        self._labels = torch.arange(ways).repeat_interleave(shots + queries)
        super().__init__(images, ways * (shots + queries), **options)

    def _batches(self, epoch: int) -> list[np.ndarray]:
        first = epoch * self._tasks
        numbers = range(first * self._world + self._rank, (first + self._tasks) * self._world)
        draw = self._sampler.draw(numbers[:: self._world])
        positions = torch.cat([draw.support, draw.query], -1).flatten(1)
        return list(positions.numpy())

    def __len__(self) -> int:
        return self._tasks

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, _ in super().__iter__():
            yield images, self._labels


class SelectedTasks(BaseClassDataModule):
    """A `BaseClassDataModule` whose batches are few-shot tasks of the chosen classes.

    `SelectBaseClasses` and `ColdStartSelection` work with it as with its base class. So the heads
    of `lightning_modules.heads`, and learn2learn's `LightningPrototypicalNetworks`, `LightningMAML`
    and `LightningANIL`, train on classes that are chosen while they train. Validation tasks are
    made of the images kept out of training, test tasks of the novel classes.

    Args:
        pool: the candidate classes.
        novel: the task to select for; None is General Selection, without test tasks.
        ways: classes of a task.
        shots: images of each class to learn from.
        queries: images of each class to test on.
        tasks: tasks of an epoch in one process.
        eval_tasks: tasks of a validation or test; None is `tasks`.
        options: those of `BaseClassDataModule` but `batch_size`. `val_per_class` must be 0 or
            enough for a validation task.

    Example:
        >>> from fsl_basesel.data import from_arrays
        >>> labels = np.repeat(np.arange(4), 6)
        >>> source = from_arrays(torch.rand(24, 1, 4, 4), labels, list("abcd"))
        >>> data = SelectedTasks(ClassPool(source), ways=2, shots=1, queries=3, tasks=10)
        >>> data.add_classes(["c", "a", "b"])
        >>> images, labels = next(iter(data.train_dataloader()))
        >>> images.shape, labels.tolist()
        (torch.Size([8, 1, 4, 4]), [0, 0, 0, 0, 1, 1, 1, 1])
    """

    def __init__(
        self,
        pool: ClassPool,
        novel: NovelTask | None = None,
        ways: int = 5,
        shots: int = 1,
        queries: int = 15,
        tasks: int = 100,
        eval_tasks: int | None = None,
        **options: Any,
    ) -> None:
        counts = {"ways": ways, "shots": shots, "queries": queries, "tasks": tasks}
        for name, value in (counts | {"eval_tasks": eval_tasks or tasks}).items():
            checks.integer(value, name, 1, None, "")
        if "batch_size" in options:
            raise InputError(
                "Expected no `batch_size`, as a batch is one task of ways x (shots + queries) "
                "images, but got one; leave it out."
            )
        super().__init__(pool, novel, batch_size=ways * (shots + queries), **options)
        self.ways, self.shots, self.queries = ways, shots, queries
        self.tasks, self.eval_tasks = tasks, eval_tasks or tasks

    def batches_of_an_epoch(self, world: int = 1) -> int:
        """Training tasks of an epoch in each process."""
        return self.tasks

    def _loader_settings(self, part: str) -> dict[str, Any]:
        rank, world = self._rank_and_world()
        return {
            "ways": self.ways,
            "shots": self.shots,
            "queries": self.queries,
            "tasks": self.tasks if part == "train" else self.eval_tasks,
            "rank": rank,
            "world": world,
            "augment": self.augment if part == "train" else None,
        }

    def _make_loader(self, images: ImageSet, **settings: Any) -> EpochLoader:
        return TaskLoader(images, seed=self.seed, **settings, **self.workers)

    def test_dataloader(self) -> EpochLoader:
        """Tasks of the novel classes, out of their support and test images together."""
        images = self._task_to_test_on().all_images()
        return self._make_loader(images, **self._loader_settings("test"))

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree on to be resumed with this data module."""
        task = [self.ways, self.shots, self.queries, self.tasks]
        return super().identity() | {"task": task}
