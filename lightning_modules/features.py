"""Features and class centroids of a network inside a training run, which is not disturbed.

The loop over the images is `fsl_basesel.embedding.feature_batches`; device, precision, processes
and progress bar come from the Trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from fsl_basesel.backbones import load_backbone
from fsl_basesel.data import ImageSet, NovelTask
from fsl_basesel.embedding import (
    evaluation_mode,
    feature_batches,
    full_precision,
    summed_over_processes,
)
from fsl_basesel.errors import InputError
from fsl_basesel.photographs import EmbeddingJob
from fsl_basesel.progress import listening
from fsl_basesel.similarity import ClassCentroids
from lightning_modules.backbones import saved_classifier
from lightning_modules.data import BaseClassDataModule
from lightning_modules.heads.normalisation import batch_bound_layers


def feature_function(module: nn.Module, attribute: str = "features") -> Callable[[Tensor], Tensor]:
    """What turns images into features: a method or submodule of `module`."""
    found = getattr(module, attribute, None)
    if not callable(found):
        raise InputError(
            f"Expected {type(module).__name__} to have `{attribute}`, a method or submodule that "
            "turns images into features, but it has none; name the attribute that does, as in "
            'ColdStartSelection(features="encoder").'
        )
    return found


def centroids_of(
    data: BaseClassDataModule,
    novel: NovelTask | None,
    module: nn.Module,
    features: str,
    trainer: pl.Trainer | None = None,
) -> tuple[ClassCentroids, ClassCentroids | None]:
    """Centroids of the candidates' previews and of the novel classes' support images, if any."""
    run = {"batch_size": data.eval_batch_size, "trainer": trainer} | data.workers_once

    def centroids(images: ImageSet, owner: Any, title: str) -> ClassCentroids:
        values = image_centroids(images, len(owner), module, features, title=title, **run)
        return ClassCentroids(values, owner.names, owner.groups)

    candidates = centroids(data.pool.preview_set(), data.pool, "Candidates")
    if novel is None:
        return candidates, None
    return candidates, centroids(novel.support_set(), novel, "Novel classes")


Extractor = nn.Module | str | Path
"""A network to select by: a module, or a name that `fsl_basesel.backbones.load_backbone` takes."""


def extractor_centroids(
    data: BaseClassDataModule,
    novel: NovelTask | None,
    extractor: Extractor,
    features: str,
    trainer: pl.Trainer | None = None,
) -> tuple[ClassCentroids, ClassCentroids | None]:
    """Centroids as in `centroids_of`, by a network that is not the one in training.

    A module with the attribute `features`, and a checkpoint of a `BaseClassifier`, see the images
    of the data module. Any other network sees the pictures as it needs them, and its features are
    cached; see `fsl_basesel.embed`.
    """
    module: nn.Module | None = None
    if isinstance(extractor, nn.Module) and hasattr(extractor, features):
        module = extractor
    elif isinstance(extractor, str | Path) and Path(extractor).suffix == ".ckpt":
        module = saved_classifier(extractor)
    if module is not None:
        module.to(device_of(module, trainer))
        try:
            return centroids_of(data, novel, module, features, trainer)
        finally:
            module.to("cpu")  # its room on the device is for training from now on
    network = load_backbone(str(extractor) if isinstance(extractor, Path) else extractor)
    options: dict[str, Any] = {"device": device_of(None, trainer), "on_corrupt": "skip"}
    with _shown(trainer):
        try:
            pool = EmbeddingJob(
                data.pool, network, per_class=data.pool.preview, title="Candidates", **options
            ).centroids()
            if novel is None:
                return pool, None
            return pool, EmbeddingJob(novel, network, title="Novel classes", **options).centroids()
        except RuntimeError as error:
            size, channels = network.preprocessing.size, network.preprocessing.channels
            line = " ".join(str(error).split())[:200]
            raise InputError(
                f"Expected {network.name} to have `{features}` or to turn images of {channels} x "
                f"{size} x {size} into features but it could not ({line}); pass a module with "
                f"`{features}`, a method or submodule that takes the data module's images."
            ) from error


def text_of_extractor(extractor: Extractor | None) -> str | None:
    """How a checkpoint names an extractor; a module is named by its class."""
    if extractor is None:
        return None
    return str(extractor) if isinstance(extractor, str | Path) else type(extractor).__name__


def image_centroids(
    images: ImageSet, classes: int, module: nn.Module, features: str = "features", **run: Any
) -> np.ndarray:
    """Mean feature of each class under `module`, in eval mode and without gradients.

    Which images share a batch does not depend on the number of processes and sums are float64, so
    neither do the centroids `[classes, d]`.

    `run` has `batch_size` (256); `trainer`, the run it happens in, whose processes share the
    batches; `title` of the progress bar; options of `torch.utils.data.DataLoader`.
    """
    counts = np.bincount(images.labels, minlength=classes)
    if not counts.all():
        raise InputError(
            f"Expected an image of every class but class {int(np.argmin(counts > 0))} has none; "
            "leave it out."
        )
    labels = torch.from_numpy(images.labels)
    sums: Tensor | None = None
    for positions, vectors in _batches(images, module, features, **run):
        # On the CPU: some accelerators have no float64.
        vectors = vectors.to("cpu", torch.float64)
        if sums is None:
            sums = torch.zeros(classes, vectors.shape[1], dtype=torch.float64)
        sums.index_add_(0, labels[positions], vectors)
    sums = _summed(sums, classes, run.get("trainer")).cpu()
    return (sums / torch.from_numpy(counts)[:, None]).numpy()


def image_features(
    images: ImageSet, module: nn.Module | None, features: str = "features", **run: Any
) -> Tensor:
    """Features of every image under `module`, in eval mode and without gradients.

    They are `[n, d]`, on the device of the run or of the module, in single precision at least.
    `module` is None where the images are features already; for `run` see `image_centroids`.
    """
    trainer = run.get("trainer")
    if module is None:
        inputs = full_precision(images.batch(np.arange(len(images)))[0]).flatten(1)
        return inputs if trainer is None else inputs.to(trainer.strategy.root_device)
    if batch_bound_layers(module):
        raise InputError(
            f"Expected {type(module).__name__} to give an image the same features whatever its "
            "batch but it has batch normalisation without running statistics, which would let "
            "queries into one another's features; build it with track_running_stats=True, or use "
            "MAML, which keeps them apart."
        )
    found: Tensor | None = None
    for positions, vectors in _batches(images, module, features, **run):
        vectors = full_precision(vectors)
        if found is None:
            found = vectors.new_zeros(len(images), vectors.shape[1])
        found[torch.from_numpy(positions).to(found.device)] = vectors
    return _summed(found, len(images), trainer)  # a row is zero in all processes but one


def _summed(values: Tensor | None, rows: int, trainer: pl.Trainer | None) -> Tensor:
    if trainer is not None and trainer.world_size > 1:
        return summed_over_processes(values, rows, trainer.strategy.root_device)
    assert values is not None
    return values


def _batches(
    images: ImageSet,
    module: nn.Module,
    features: str,
    *,
    batch_size: int = 256,
    trainer: pl.Trainer | None = None,
    title: str = "Features",
    **workers: Any,
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Features a batch at a time, with the settings of the run."""
    settings = workers | {"batch_size": batch_size, "title": title}
    if trainer is not None:
        settings |= {
            "precision": trainer.precision_plugin.forward_context,
            "convert": trainer.precision_plugin.convert_input,
            "rank": trainer.global_rank,
            "world": trainer.world_size,
        }
    extract = feature_function(module, features)
    device = device_of(module, trainer)
    with evaluating(module, trainer), _shown(trainer):
        yield from feature_batches(images, extract, device=device, **settings)


@contextmanager
def evaluating(module: nn.Module, trainer: pl.Trainer | None) -> Iterator[None]:
    """Eval mode with the weights and buffers of process 0; afterwards all is as it was.

    Under DDP the statistics of batch normalisation differ from process to process, and before it
    has begun so may the weights.
    """
    saved: list[tuple[Tensor, Tensor]] = []
    if trainer is not None and trainer.world_size > 1:
        for tensor in (*module.parameters(), *module.buffers()):
            saved.append((tensor.data, tensor.detach().clone()))
            torch.distributed.broadcast(tensor.data, src=0)
    try:
        with evaluation_mode(module):
            yield
    finally:
        for data, value in saved:
            data.copy_(value)


def device_of(module: nn.Module | None, trainer: pl.Trainer | None = None) -> torch.device:
    """The device of the run, or else of the module."""
    if trainer is not None:
        return trainer.strategy.root_device
    parameters = () if module is None else module.parameters()
    return next((p.device for p in parameters), torch.device("cpu"))


@contextmanager
def _shown(trainer: pl.Trainer | None) -> Iterator[None]:
    """A bar beside Lightning's own if that is a rich one, else a separate bar."""
    bar = None if trainer is None else trainer.progress_bar_callback
    if bar is None or trainer is None or not trainer.is_global_zero:
        yield
        return
    shared = getattr(bar, "progress", None)
    console = Console(stderr=True)
    alone = Progress(console=console, transient=True, disable=not console.is_terminal)
    tasks: dict[str, Any] = {}
    with nullcontext(shared) if isinstance(shared, Progress) else alone as shown:

        def show(title: str, done: int, total: int) -> None:
            if title not in tasks:
                tasks[title] = shown.add_task(title, total=total)
            shown.update(tasks[title], completed=done)

        try:
            with listening(show):
                yield
        finally:
            for task in tasks.values():
                shown.remove_task(task)
