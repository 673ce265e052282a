"""From photographs to class centroids: `embed`, its cache, and an estimate of its cost."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn

from fsl_basesel.backbones import DEFAULT, Backbone, load_backbone
from fsl_basesel.checks import integer, one_of
from fsl_basesel.data.cache import cache_folder, fingerprint
from fsl_basesel.data.reading import ReadSource, look_at_files
from fsl_basesel.data.sources import Source, images_of
from fsl_basesel.distributed import Rows, together
from fsl_basesel.embedding import evaluation_mode, feature_batches
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import load_npz, save_npz
from fsl_basesel.parallel import cores
from fsl_basesel.similarity import ClassCentroids

PRECISIONS = ("float32", "bfloat16")
PIXELS = 1 << 20  # of a batch on a CPU: what is worked on stays near the cache
FLUSH_SECONDS = 10.0  # features are written to the cache at least so often
FLUSH_IMAGES = 4096
_FORMAT = "fsl-basesel features 1"
T = TypeVar("T")


def embed(
    source: Source,
    backbone: str | nn.Module | Backbone | Callable[[Tensor], Tensor] = DEFAULT,
    **options: Any,
) -> ClassCentroids:
    """Centroids of the classes of a source under a network.

    Features are kept in the cache folder (`FSL_BASESEL_CACHE`), so that a second call is quick and
    a killed one continues. Started by `torchrun`, processes share the images, and
    all of them return the same centroids.

    Args:
        source: a folder with one folder of pictures for each class, a source, pool or task of
            `fsl_basesel.data`, a data set of torchvision, or one of Hugging Face `datasets` (or
            the folder it was saved to).
        backbone: see `load_backbone`.
        options: see `EmbeddingJob`.

    Example:
        >>> from fsl_basesel.data import from_arrays
        >>> source = from_arrays(torch.rand(4, 3, 32, 32), [0, 0, 1, 1], ["cat", "dog"])
        >>> embed(source, size=32, cache=False)
        ClassCentroids(2 classes, 1280 dimensions)
    """
    return EmbeddingJob(source, backbone, **options).centroids()


def embed_texts(
    names: Sequence[str],
    backbone: str | Backbone,
    template: str = "a photo of a {}.",
    **options: Any,
) -> ClassCentroids:
    """Features of class names, for a network that knows text (`open_clip:NAME@TAG`).

    Args:
        names: class names.
        backbone: see `load_backbone`.
        template: the text in which a name takes the place of {}.
        options: of `load_backbone`.
    """
    network = load_backbone(backbone, **options)
    if network.texts is None:
        raise InputError(
            f"Expected a backbone that knows text, such as open_clip:ViT-B-32@openai, but got "
            f"{network.name}; give a folder of pictures of the classes instead."
        )
    values = network.texts([template.replace("{}", name) for name in names])
    made_by = {"backbone": network.name, "preprocessing": f"text {template!r}"}
    return ClassCentroids(values, names, made_by=made_by)


@dataclass(frozen=True)
class EmbeddingEstimate:
    """What an embedding will take: time for the images that are not cached, and bytes."""

    images: int
    cached: int
    seconds: float
    memory: int
    disk: int


class EmbeddingJob:
    """Some images of each class of a source, and the network they go through.

    Args:
        source: see `embed`.
        backbone: see `load_backbone`.
        per_class: images of each class that are looked at, or all where a class has fewer; None is
            all. A `NovelTask` shows its support images.
        seed: seed of the draw of images, where the source does not have an order of its own.
        size: see `load_backbone`, as for `normalize` and `download`.
        precision: "float32", or "bfloat16", which does not always lead to the same choice.
        device: "auto" is a GPU if there is one.
        batch_size: images of a batch; by default as fits the device.
        workers: on a CPU threads that read images and run the network, else processes that read
            images; by default one for each core. The features do not depend on it.
        on_corrupt: "raise" or "skip" for images that cannot be read.
        cache: whether to keep features in the cache folder and use those that are there. Features
            of a plain function are not kept, because its code could change.
        title: what progress is reported as.
    """

    def __init__(
        self,
        source: Source,
        backbone: str | nn.Module | Backbone | Callable[[Tensor], Tensor] = DEFAULT,
        *,
        per_class: int | None = 50,
        seed: int = 0,
        size: int | None = None,
        normalize: str | None = None,
        download: bool = False,
        precision: str = "float32",
        device: str | torch.device = "auto",
        batch_size: int | None = None,
        workers: int | None = None,
        on_corrupt: str = "raise",
        cache: bool = True,
        title: str = "images",
    ) -> None:
        self.precision = one_of(precision, PRECISIONS, "precision")
        self.backbone = load_backbone(backbone, size=size, normalize=normalize, download=download)
        preprocessing = self.backbone.preprocessing
        self.images, self._ready = images_of(source, preprocessing, per_class, seed, on_corrupt)
        self.names, self.groups = self.images.source.names, self.images.source.groups
        self.device = _device(device)
        fitting = 256 if self.device.type != "cpu" else min(32, PIXELS // preprocessing.size**2)
        self.batch_size = (
            max(1, 1 << (fitting.bit_length() - 1)) if batch_size is None else batch_size
        )
        workers = min(8, cores()) if workers is None else workers
        self.workers = integer(workers, "workers", 0)
        self.title = title
        self._store = _Store(self._key() if cache else None, self._positions)

    def _key(self) -> str | None:
        if self.backbone.identity is None:
            return None
        images, source = self.images, self.images.source
        drawn: list[str | bytes] = [images.classes.tobytes(), images.items.tobytes()]
        files = source.files(images.classes, images.items) if isinstance(source, ReadSource) else []
        settings = (self.precision, self.device.type, self.batch_size)
        parts = [self.backbone.identity, str(self.backbone.preprocessing), repr(settings)]
        return fingerprint([source.fingerprint, *drawn, *look_at_files(files), *parts])

    def _positions(self, number: int) -> np.ndarray:
        start = number * self.batch_size
        return np.arange(start, min(start + self.batch_size, len(self.images)))

    def centroids(self) -> ClassCentroids:
        """Mean feature of every class; memory does not grow with the number of images."""
        labels = self.images.labels

        def add_up(positions: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            classes, first = np.unique(labels[positions], return_index=True)  # class after class
            return classes, np.add.reduceat(rows, first, axis=0, dtype=np.float64)

        parts = self._run(add_up)
        total = np.zeros((len(self.names), parts[0][1].shape[1]))
        for number in range(len(parts)):  # in one order, so that processes do not change the sums
            classes, sums = parts[number]
            total[classes] += sums
        counts = np.bincount(labels, minlength=len(self.names))
        about = self.backbone
        made_by = {"backbone": about.name, "preprocessing": str(about.preprocessing)}
        values = total / counts[:, None]
        return ClassCentroids(values, self.names, self.groups, counts, made_by=made_by)

    def features(self) -> tuple[np.ndarray, np.ndarray]:
        """The feature of every image, `[n, d]` float32, and its class, `[n]` int64."""
        parts = self._run(lambda positions, rows: rows)
        return np.concatenate([parts[n] for n in range(len(parts))]), self.images.labels

    def _run(self, reduce: Callable[[np.ndarray, np.ndarray], T]) -> dict[int, T]:
        """What `reduce` makes of (positions, features) of every batch, on all processes."""
        found: dict[int, T] = {}
        with together():
            met = torch.distributed.is_available() and torch.distributed.is_initialized()
            here = Rows.spread(0, None) if met else Rows(0, 0)
            for number, rows in self._store.batches(here.rank, here.size):
                found[number] = reduce(self._positions(number), rows)
            for positions, rows in self._batches(here.rank, here.size, found):
                number = int(positions[0]) // self.batch_size
                found[number] = reduce(positions, rows)
                self._store.add(number, rows)
            self._store.flush()
            return {n: part for process in here.gather(found) for n, part in process.items()}

    def _batches(
        self, rank: int, world: int, done: Container[int]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        module, extract = self.backbone.for_inference(self.device)
        if self.device.type == "cpu":
            parallel: dict[str, Any] = {"threads": max(1, self.workers)}
        else:
            parallel = {"num_workers": self.workers, "pin_memory": self.device.type == "cuda"}
        batches = feature_batches(
            self.images,
            extract,
            batch_size=self.batch_size,
            device=self.device,
            precision=self._precision,
            convert=self._convert,
            rank=rank,
            world=world,
            done=done,
            title=self.title,
            **parallel,
        )
        with evaluation_mode(module):
            for positions, features in batches:
                rows = features.float().cpu().numpy()
                bad = np.flatnonzero(~np.isfinite(rows).all(1))
                if len(bad):
                    name = self.names[self.images.labels[positions[bad[0]]]]
                    raise InputError(
                        f"Expected finite features but {self.backbone.name} gave others for an "
                        f"image of class {name!r}; try precision float32, or check its weights."
                    )
                yield positions, rows

    def _convert(self, images: Tensor) -> Tensor:
        if not self._ready:
            images = self.backbone.preprocessing.of_images(images)
        return images.contiguous(memory_format=torch.channels_last)

    def _precision(self) -> AbstractContextManager[Any]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def estimate(self) -> EmbeddingEstimate:
        """How long it will take and what it needs, by trying some images."""
        import resource  # not there on Windows

        cached = sum(len(rows) for _, rows in self._store.batches())
        count, busy = len(self.images), max(1, min(self.workers, cores()))
        tried = self._positions(0)[:8]
        module, extract = self.backbone.for_inference(self.device)
        before = torch.get_num_threads()
        torch.set_num_threads(1 if self.device.type == "cpu" else before)
        try:
            with evaluation_mode(module), torch.no_grad(), self._precision():
                started = time.perf_counter()
                batch = self._convert(self.images.batch(tried)[0])
                reading = (time.perf_counter() - started) / len(tried)
                batch = batch.to(self.device)
                width = extract(batch[:1]).flatten(1).cpu().shape[1]
                started = time.perf_counter()
                extract(batch).flatten(1).cpu()
                running = (time.perf_counter() - started) / len(tried)
        finally:
            torch.set_num_threads(before)
        apart = self.device.type != "cpu"  # reading continues while a GPU works
        each = max(running, reading / busy) if apart else (running + reading) / busy
        used = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        image = batch.element_size() * batch[0].nelement()
        return EmbeddingEstimate(
            images=count,
            cached=cached,
            seconds=(count - cached) * each / int(os.environ.get("WORLD_SIZE", "1")),
            memory=used + 2 * busy * self.batch_size * image + 8 * width * len(self.names),
            disk=4 * width * count if self._store.works else 0,
        )


class _Store:
    """Features of batches in the cache folder, in files that are written whole and never changed.

    `key` says what they are features of (None: they are not kept), `positions` which images a
    batch has.
    """

    def __init__(self, key: str | None, positions: Callable[[int], np.ndarray]) -> None:
        self._folder = cache_folder() / "embeddings" / str(key)
        self._positions = positions
        self._waiting: dict[int, np.ndarray] = {}
        self._flushed = time.monotonic()
        self.works = key is not None

    def batches(self, rank: int = 0, world: int = 1) -> Iterator[tuple[int, np.ndarray]]:
        """Every batch of this process that is there."""
        seen: set[int] = set()
        for path in sorted(self._folder.glob("[0-9]*.npz")):
            try:
                file = load_npz(path, _FORMAT, ("numbers", "rows"), what="features")
            except InputError:  # damaged: its batches are done again
                continue
            numbers, rows = file["numbers"].tolist(), file["rows"]
            ends = np.cumsum([len(self._positions(number)) for number in numbers])
            if len(rows) == ends[-1]:
                for number, part in zip(numbers, np.split(rows, ends[:-1]), strict=True):
                    if number % world == rank and number not in seen:
                        seen.add(number)
                        yield number, part

    def add(self, number: int, rows: np.ndarray) -> None:
        """Keep the features of a batch."""
        if self.works:
            self._waiting[number] = rows
        late = time.monotonic() - self._flushed > FLUSH_SECONDS
        if late or sum(map(len, self._waiting.values())) >= FLUSH_IMAGES:
            self.flush()

    def flush(self) -> None:
        """Write what waits; without a disk that can be written the features are not kept."""
        self._flushed = time.monotonic()
        if not self._waiting:
            return
        numbers = sorted(self._waiting)
        rows = np.concatenate([self._waiting.pop(number) for number in numbers])
        path = self._folder / f"{numbers[0]:07d}-{numbers[-1]:07d}-{len(numbers)}.npz"
        try:
            save_npz(path, _FORMAT, numbers=np.array(numbers), rows=rows)
        except OSError as error:
            self.works = False
            warnings.warn(f"Features are not kept: {error}", stacklevel=2)


def _device(device: str | torch.device) -> torch.device:
    if device == "auto":
        gpu = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        device = gpu if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
        torch.zeros(1, device=found).cpu()
    # torch asserts that it was built for CUDA, and has no implementation for some other devices.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"Expected `device` to be auto, cpu or a GPU that torch can use but got "
            f"{str(device)!r} ({reason}); leave it out for the best there is."
        ) from None
    return found
