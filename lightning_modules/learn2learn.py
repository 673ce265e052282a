"""learn2learn: one line restricts the tasks of an experiment to a selection.

    tasks = select_classes(tasks, selection)

`SelectedTasks` has tasks of the base classes chosen so far, for learn2learn's Lightning modules and
our heads. learn2learn is imported only when a function is called: this module loads without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fsl_basesel import checks
from fsl_basesel.data import ClassPool, ImageSet, NovelTask, from_dataset
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selection import Selection
from fsl_basesel.similarity import ClassCentroids
from lightning_modules import require_learn2learn
from lightning_modules.data import BaseClassDataModule, EpochLoader
from lightning_modules.episodes import EpisodeSampler
from lightning_modules.features import image_centroids

Label = Any
"""A class of a learn2learn data set: whatever its `labels_to_indices` has as keys."""


def select_classes(target: Any, selection: Selection | Iterable[Label]) -> Any:
    """Restrict a learn2learn data set or its tasks to the selected classes.

    Args:
        target: One of
            - a `MetaDataset`: a `FilteredMetaDataset` of it is returned, the original stays;
            - a `Taskset`: its tasks come from the selected classes from now on. It is changed in
              place and returned. To add classes later (a curriculum), call again with more of them;
            - the `(train, validation, test)` of `learn2learn.vision.benchmarks.get_tasksets`: the
              training tasks are restricted. Validation and test tasks are held to the classes of
              their own data set, which learn2learn's Omniglot benchmark does not do by itself.
        selection: the labels themselves, or a `Selection`. That is matched by the names of its
            classes: those of `selection_problem`, or the labels as text. A problem without names
            must have had a column for every class, in the order of the labels.

    Raises:
        InputError: for a class that is not in the data set, for fewer classes than a task has ways,
            for a class with fewer images than a task needs, and for a `target` of another kind.

    Example:
        >>> l2l = require_learn2learn()
        >>> images = torch.utils.data.TensorDataset(torch.rand(8, 2), torch.arange(8) // 2)
        >>> dataset = l2l.data.MetaDataset(images)
        >>> select_classes(dataset, [3, 1]).labels
        [3, 1]
    """
    l2l = require_learn2learn()
    if isinstance(target, l2l.data.Taskset):
        _restrict(target, _labels(target.dataset, selection))
        return target
    if isinstance(target, l2l.data.MetaDataset):
        return l2l.data.FilteredMetaDataset(target, _labels(target, selection))
    if isinstance(target, tuple) and all(isinstance(part, l2l.data.Taskset) for part in target):
        train, *others = target
        for part in others:
            _hold_to_own_classes(part)
        _restrict(train, _labels(train.dataset, selection))
        return target
    raise InputError(
        "Expected a learn2learn MetaDataset, a Taskset or the result of get_tasksets but got "
        f"{type(target).__name__}; wrap a data set in learn2learn.data.MetaDataset first."
    )


def selection_problem(
    candidates: Any,
    network: nn.Module,
    novel: Any = None,
    m: int = 100,
    k: int | None = None,
    lam: float = 0.0,
    *,
    preview: int | None = None,
    features: str = "forward",
    batch_size: int = 256,
    **settings: Any,
) -> SelectionProblem:
    """Which classes of a learn2learn data set to train on, as `network` sees them.

    Args:
        candidates: `MetaDataset` of the classes to choose from.
        network: turns images into features.
        novel: `MetaDataset` of the classes to prepare for; None is General Selection.
        m: how many classes to choose.
        k: nearest base classes that count for a novel class; None is 3, in General Selection 1.
        lam: weight of the diversity term (lambda in the paper).
        preview: images of each class that its centroid is made of; None is 50, or all it has.
        features: method or submodule of `network` to call; by default the network itself.
        batch_size: images that go through the network together.
        settings: further ones of `SelectionProblem.from_centroids`.

    Example:
        >>> l2l = require_learn2learn()
        >>> labels = torch.arange(40) // 4
        >>> dataset = l2l.data.MetaDataset(
        ...     torch.utils.data.TensorDataset(torch.rand(40, 1, 3, 3), labels)
        ... )
        >>> problem = selection_problem(dataset, nn.Flatten(), m=3, k=1)
        >>> problem.names[:3], problem.m
        (('0', '1', '2'), 3)
    """

    def centroids(dataset: Any) -> ClassCentroids:
        pool = ClassPool(from_dataset(dataset), preview)
        images = pool.preview_set()
        values = image_centroids(images, len(pool), network, features, batch_size=batch_size)
        return ClassCentroids(values, pool.names)

    task = None if novel is None else centroids(novel)
    return SelectionProblem.from_centroids(centroids(candidates), task, m, k, lam, **settings)


def _labels(dataset: Any, selection: Selection | Iterable[Label]) -> list[Label]:
    """Labels of the data set that are meant, in order, each checked to be there."""
    known = {label: label for label in dataset.labels}
    if isinstance(selection, Selection):
        labels = _labels_of_names(dataset, selection)
    else:
        # Numbers of numpy and torch as Python's, which the data set's tables have as keys.
        plain = (one.item() if hasattr(one, "item") else one for one in selection)
        labels = [known.get(label, label) for label in plain]
    # `labels_to_indices` is a defaultdict: asking it for an unknown label would add the label.
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise InputError(
            f"Expected labels of the data set ({len(known)} classes, such as "
            f"{next(iter(known), None)!r}) but got {unknown[0]!r} ({len(unknown)} of "
            f"{len(labels)} labels); use the labels as the data set gives them."
        )
    if not labels or len(set(labels)) < len(labels):
        raise InputError(
            "Expected one or more classes, each at most once, but got "
            f"{len(labels)} of which {len(set(labels))} differ."
        )
    return labels


def _labels_of_names(dataset: Any, selection: Selection) -> list[Label]:
    ordered = sorted(dataset.labels)
    columns = selection.hyperparameters.get("n_candidates")
    numbered = selection.names == [str(index) for index in selection.indices]
    if numbered and columns == len(ordered):
        return [ordered[index] for index in selection.indices]
    by_name = {str(label): label for label in ordered}
    by_name |= dict(zip(from_dataset(dataset).names, ordered, strict=True))
    missing = [name for name in selection.names if name not in by_name]
    if missing or numbered:
        given = f"column numbers of {columns}" if numbered else repr(missing[0])
        raise InputError(
            f"Expected the names of the selected classes to be those of the data set's "
            f"{len(ordered)} classes, such as {next(iter(by_name))!r}, but got {given}; build the "
            "problem with names=..., or pass the labels themselves."
        )
    return [by_name[name] for name in selection.names]


def _restrict(taskset: Any, classes: list[Label]) -> None:
    """Draw the tasks of a taskset from `classes` only; forget tasks drawn before."""
    steps, kept = taskset.task_transforms, getattr(taskset, "_before_selection", None)
    if callable(steps):
        raise InputError(
            "Expected the task transforms of the Taskset to be a list, which can be changed, but "
            f"got {type(steps).__name__}; filter its data set with select_classes before the "
            "Taskset is made."
        )
    original = kept[1] if kept is not None and kept[0] is steps else list(steps)
    restricted = _drawing(original, taskset.dataset, classes)
    taskset.task_transforms = restricted
    taskset.sampled_descriptions = {}
    taskset._before_selection = (restricted, original)


def _drawing(steps: Sequence[Any], owner: Any, classes: list[Label]) -> list[Any]:
    """The transforms with those that draw classes and images replaced by one for `classes`."""
    kinds = require_learn2learn().data.transforms
    allowed = set(owner.labels)
    rest, loading = list(steps), []
    while rest and isinstance(rest[0], kinds.CythonFilterLabels | kinds.LoadData):
        first = rest.pop(0)
        if isinstance(first, kinds.LoadData):
            loading.append(first)
        else:
            allowed &= set(first.labels)
    # The positions in a task are those of the transforms' data set, whatever the taskset's is.
    dataset = next((step.dataset for step in steps if hasattr(step, "dataset")), owner)
    match rest:
        case [kinds.CythonFusedNWaysKShots() as fused, *after]:
            ways, shots, replacement = fused.n, fused.k, fused.replacement
            allowed &= set(fused.filter_labels)
        case [kinds.CythonNWays() as some, kinds.CythonKShots() as each, *after]:
            ways, shots, replacement = some.n, each.k, each.replacement
        case _:  # custom transforms draw the tasks: they see the selected classes only
            _require_drawable(dataset, classes, allowed, 0, 0)
            return [kinds.FilterLabels(dataset, classes), *loading, *rest]
    _require_drawable(dataset, classes, allowed, ways, 1 if replacement else shots)
    draw = kinds.FusedNWaysKShots(dataset, ways, shots, replacement, classes)
    return [draw, *loading, *after]


def _require_drawable(
    dataset: Any, classes: list[Label], allowed: set[Label], ways: int, shots: int
) -> None:
    outside = [label for label in classes if label not in allowed]
    if outside:
        raise InputError(
            f"Expected classes of the {len(allowed)} that the tasks are drawn from but got "
            f"{outside[0]!r} ({len(outside)} of {len(classes)} classes), which the tasks' own "
            "filter leaves out."
        )
    if len(classes) < ways:
        raise InputError(
            f"Expected at least as many classes as a task has ways, {ways}, but got "
            f"{len(classes)}; select more classes or make tasks with fewer ways."
        )
    for label in classes if shots else ():
        images = len(dataset.labels_to_indices[label])
        if images < shots:
            raise InputError(
                f"Expected at least {shots} images of every class, which a task needs, but class "
                f"{label!r} has {images}; leave it out or make tasks with fewer images."
            )


def _hold_to_own_classes(taskset: Any) -> None:
    """Restrict validation or test tasks to their own data set if they draw from a larger one."""
    steps = taskset.task_transforms
    if callable(steps) or not steps:
        return
    drawn_from = getattr(steps[0], "filter_labels", None) or getattr(
        getattr(steps[0], "dataset", taskset.dataset), "labels", taskset.dataset.labels
    )
    own = list(taskset.dataset.labels)
    if set(drawn_from) <= set(own):
        return
    warnings.warn(
        f"These tasks were drawn from {len(set(drawn_from))} classes although their data set has "
        f"{len(own)}, so they could share classes with the training tasks; they are now held to "
        "their own.",
        stacklevel=3,
    )
    _restrict(taskset, own)


class TaskLoader(EpochLoader):
    """Tasks `(images, labels)` as learn2learn's modules take them; can start in mid-epoch.

    Class after class, of each the images to learn from before the others; labels are 0 to
    `ways - 1`. A task is a function of (seed, epoch, number, process), and no two processes get the
    same one.

    An epoch has `tasks` tasks in one process. `options` are those of `EpochLoader`: `epoch`,
    `seed`, `rank`, `world`, `augment` and options of `torch.utils.data.DataLoader`.
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
        tasks: tasks of an epoch, a validation or a test in one process.
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
        **options: Any,
    ) -> None:
        counts = {"ways": ways, "shots": shots, "queries": queries, "tasks": tasks}
        for name, value in counts.items():
            checks.integer(value, name, 1)
        if "batch_size" in options:
            raise InputError(
                "Expected no `batch_size`, as a batch is one task of ways x (shots + queries) "
                "images, but got one; leave it out."
            )
        super().__init__(pool, novel, batch_size=ways * (shots + queries), **options)
        self.ways, self.shots, self.queries, self.tasks = ways, shots, queries, tasks

    def batches_of_an_epoch(self, world: int = 1) -> int:
        """Training tasks of an epoch in each process."""
        return self.tasks

    def _loader_settings(self, part: str) -> dict[str, Any]:
        task = {name: getattr(self, name) for name in ("ways", "shots", "queries", "tasks")}
        used = ("rank", "world", "epoch", "augment")  # size and order of a batch follow from `task`
        shared = super()._loader_settings(part)
        return task | {name: shared[name] for name in used if name in shared}

    def _make_loader(self, images: ImageSet, **settings: Any) -> EpochLoader:
        return TaskLoader(images, seed=self.seed, **settings, **self.workers)

    def test_dataloader(self) -> EpochLoader:
        """Tasks of the novel classes, out of their support and test images together."""
        images = self.task.all_images()
        return self._make_loader(images, **self._loader_settings("test"))

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree on to be resumed with this data module."""
        task = [self.ways, self.shots, self.queries, self.tasks]
        return super().identity() | {"task": task}
