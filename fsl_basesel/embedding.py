"""From images to features: the one loop that runs a network over images.

The loop is plain torch. Device, precision and processes are passed in, so it serves a script, the
command line and a Lightning Trainer (`lightning_modules.features`) alike.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from fsl_basesel import checks
from fsl_basesel.data.source import ImageSet
from fsl_basesel.progress import report


def feature_batches(
    images: ImageSet,
    extract: Callable[[Tensor], Tensor],
    *,
    batch_size: int = 256,
    module: nn.Module | None = None,
    device: torch.device | str = "cpu",
    precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    convert: Callable[[Tensor], Tensor] | None = None,
    rank: int = 0,
    world: int = 1,
    done: Container[int] = (),
    title: str = "features",
    threads: int = 0,
    **workers: Any,
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Features of every image, a batch at a time, in order and without gradients.

    Batch b has the images from `b * batch_size` on. It goes to process b modulo `world`, so which
    images share a batch does not depend on the number of processes. Batches with a number in `done`
    are left out. Progress in images is reported to `fsl_basesel.progress` as `title`.

    `extract` takes images `[B, ...]` on `device`, after `convert` has changed them, to features. It
    runs in the context that `precision` makes, such as autocast, and `module`, the network behind
    it, is in eval mode meanwhile. Between two batches nothing is changed: `module` has its own
    modes, gradients and autocast are as the caller left them.

    With `threads` this many batches are read and run at once, each by one thread, without a loader
    and its processes. It is the quickest way on a CPU that other programs use too, and the features
    do not depend on the number. Threads cannot change modes: leave `module` out then. `workers` are
    options of `torch.utils.data.DataLoader`.

    Yields:
        Positions of the images `[B]` int64 and their features `[B, d]` on `device`, as `extract`
        gave them but flattened.
    """

    def run(pictures: Tensor) -> Tensor:
        if convert is not None:
            pictures = convert(pictures)
        with evaluation_mode(module), torch.no_grad(), precision():
            return extract(pictures.to(device, non_blocking=True)).flatten(1)

    checks.integer(batch_size, "batch_size", 1)
    every = np.arange(len(images))
    parts = [every[start : start + batch_size] for start in range(0, len(every), batch_size)]
    plan = [part for n, part in enumerate(parts) if n % world == rank and n not in done]
    batches: Iterator[tuple[np.ndarray, Tensor]]
    if threads:
        batches = _by_threads(images, run, plan, threads)
    else:
        # Without a generator of its own a loader would draw from the global one.
        settings = workers | {"sampler": plan, "generator": torch.Generator()}
        loader = DataLoader(_Batches(images), None, **settings)
        batches = ((positions.numpy(), run(pictures)) for positions, pictures in loader)
    total, seen = sum(map(len, plan)), 0
    report(title, seen, total)
    for positions, features in batches:
        yield positions, features
        seen += len(positions)
        report(title, seen, total)


def _by_threads(
    images: ImageSet, run: Callable[[Tensor], Tensor], plan: list[np.ndarray], threads: int
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Positions and features of every batch, in order, a few batches ahead of the consumer."""
    lock = threading.Lock() if images.source.threads == 1 else nullcontext()

    def work(positions: np.ndarray) -> tuple[np.ndarray, Tensor]:
        with lock:
            pictures = images.batch(positions)[0]
        return positions, run(pictures)

    before = torch.get_num_threads()
    waiting: deque[Future] = deque()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for positions in plan:
                waiting.append(pool.submit(work, positions))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            torch.set_num_threads(before)


class _Batches(Dataset):
    """Images by their positions, a whole batch at once."""

    def __init__(self, images: ImageSet) -> None:
        self.images = images

    def __getitem__(self, positions: np.ndarray) -> tuple[np.ndarray, Tensor]:
        return positions, self.images.batch(positions)[0]


@contextmanager
def evaluation_mode(module: nn.Module | None) -> Iterator[None]:
    """`module.eval()` for a while; afterwards every submodule has the mode it had."""
    modes = {} if module is None else {part: part.training for part in module.modules()}
    if module is not None:
        module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def full_precision(features: Tensor) -> Tensor:
    """Half precision, as mixed precision leaves it, to single; others as they are."""
    return features.float() if features.dtype in (torch.float16, torch.bfloat16) else features


def summed_over_processes(
    values: Tensor | None, rows: int, device: torch.device | str = "cpu"
) -> Tensor:
    """Sum of `values` over all processes of `torch.distributed`, on `device`.

    `values` is `[rows, d]`, float32 or float64. A process that got no batch gives None; it learns
    the number of columns and the type of the numbers from the others.
    """
    shape = [0, 0] if values is None else [values.shape[1], int(values.dtype == torch.float64)]
    agreed = torch.tensor(shape, device=device)
    torch.distributed.all_reduce(agreed, torch.distributed.ReduceOp.MAX)
    width, double = agreed.tolist()
    dtype = torch.float64 if double else torch.float32
    if values is None:
        values = torch.zeros(rows, width, dtype=dtype)
    total = values.to(device, dtype, copy=True)
    torch.distributed.all_reduce(total)
    return total
