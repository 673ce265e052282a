"""Class centroids from a network, inside a training run: nothing of the run is disturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed
from pytorch_lightning.callbacks import RichProgressBar
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from fsl_basesel.data import ImageSet
from fsl_basesel.errors import InputError
from lightning_modules.loader import batches_in_order

FeatureFunction = Callable[[Tensor], Tensor]


def feature_function(module: nn.Module, attribute: str = "features") -> FeatureFunction:
    """What turns images into features: a method or submodule of `module`.

    Raises:
        InputError: if there is no such attribute, or nothing that can be called.

    Example:
        >>> from lightning_modules import BaseClassifier
        >>> feature_function(BaseClassifier("conv3"))(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 128])
    """
    found = getattr(module, attribute, None)
    if not callable(found):
        raise InputError(
            f"Expected {type(module).__name__} to have `{attribute}`, a method or submodule that "
            "turns images into features, but it has none; name the attribute that does, as in "
            'ColdStartSelection(features="encoder").'
        )
    return found


def image_centroids(
    images: ImageSet,
    classes: int,
    module: nn.Module,
    features: str = "features",
    *,
    batch_size: int = 256,
    trainer: pl.Trainer | None = None,
    title: str = "Centroids",
    **workers: object,
) -> np.ndarray:
    """Mean feature of each class under `module`, in eval mode and without gradients.

    Submodules get back the mode they were in, statistics of batch normalisation stay as they are,
    the trainer's precision holds, and its processes share the batches. Which images share a batch
    does not depend on the number of processes and sums are float64, so neither do the centroids.

    Args:
        images: images labelled 0 to `classes - 1`.
        classes: number of classes.
        module: the network, not wrapped for distribution.
        features: attribute of `module` that gives the features; they are flattened.
        batch_size: images of a batch.
        trainer: the run it happens in, if any.
        title: what the progress bar says.
        workers: options of `torch.utils.data.DataLoader`.

    Returns:
        `[classes, d]` float64.

    Example:
        >>> from fsl_basesel.data import from_arrays
        >>> from lightning_modules import BaseClassifier
        >>> source = from_arrays(torch.rand(6, 1, 28, 28), [0, 0, 0, 1, 1, 1])
        >>> pictures = ImageSet(source, [0, 0, 1], [0, 1, 0], [0, 0, 1])
        >>> image_centroids(pictures, 2, BaseClassifier("conv3")).shape
        (2, 128)
    """
    extract = feature_function(module, features)
    rank, world = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
    device = _device_of(module) if trainer is None else trainer.strategy.root_device
    loader = batches_in_order(images, batch_size, rank, world, **workers)
    sums: Tensor | None = None
    counts = torch.zeros(classes, dtype=torch.float64)
    with (
        _evaluating(module, world),
        torch.no_grad(),
        _precision(trainer),
        _progress(trainer, title, len(loader)) as advance,
    ):
        for pictures, labels in loader:
            if trainer is not None:
                pictures = trainer.precision_plugin.convert_input(pictures)
            vectors = extract(pictures.to(device, non_blocking=True)).flatten(1)
            # On the CPU: some accelerators have no float64.
            vectors = vectors.detach().to("cpu", torch.float64)
            if sums is None:
                sums = torch.zeros(classes, vectors.shape[1], dtype=torch.float64)
            sums.index_add_(0, labels, vectors)
            counts += torch.bincount(labels, minlength=classes)
            advance()
    if world > 1 and trainer is not None:
        sums, counts = _reduced(sums, counts, trainer)
    if sums is None or not counts.all():
        empty = int(torch.nonzero(counts == 0)[0])
        raise InputError(
            f"Expected an image of every class but class {empty} has none; leave it out."
        )
    return (sums / counts[:, None]).numpy()


def _reduced(sums: Tensor | None, counts: Tensor, trainer: pl.Trainer) -> tuple[Tensor, Tensor]:
    """Sums over all processes; one that got no batch learns the number of features from others."""
    device = trainer.strategy.root_device
    width = torch.tensor(0 if sums is None else sums.shape[1], device=device)
    torch.distributed.all_reduce(width, torch.distributed.ReduceOp.MAX)
    if sums is None:
        sums = torch.zeros(len(counts), int(width), dtype=torch.float64)
    together = torch.cat([sums, counts[:, None]], dim=1).to(device)
    torch.distributed.all_reduce(together)
    together = together.cpu()
    return together[:, :-1], together[:, -1]


@contextmanager
def _evaluating(module: nn.Module, world: int) -> Iterator[None]:
    """Eval mode with the weights and buffers of process 0; afterwards all is as it was.

    Under DDP the statistics of batch normalisation differ from process to process, and before it
    has begun so may the weights.
    """
    modes = {part: part.training for part in module.modules()}
    kept: list[tuple[Tensor, Tensor]] = []
    if world > 1:
        for tensor in (*module.parameters(), *module.buffers()):
            kept.append((tensor.data, tensor.detach().clone()))
            torch.distributed.broadcast(tensor.data, src=0)
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
        for data, value in kept:
            data.copy_(value)


@contextmanager
def _precision(trainer: pl.Trainer | None) -> Iterator[None]:
    if trainer is None:
        yield
    else:
        with trainer.precision_plugin.forward_context():
            yield


@contextmanager
def _progress(trainer: pl.Trainer | None, title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar beside Lightning's own where that is a rich one, else a bar of its own."""
    bar = None if trainer is None else trainer.progress_bar_callback
    if bar is None or trainer is None or not trainer.is_global_zero:
        yield lambda: None
        return
    shared = bar.progress if isinstance(bar, RichProgressBar) else None
    if shared is not None:
        task = shared.add_task(title, total=total)
        try:
            yield lambda: shared.update(task, advance=1)
        finally:
            shared.remove_task(task)
        return
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as own:
        task = own.add_task(title, total=total)
        yield lambda: own.update(task, advance=1)


def _device_of(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))
