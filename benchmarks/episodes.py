"""Few-shot episodes against learn2learn and easyfsl, in one run.

    python benchmarks/episodes.py

All draw from the same cached features, and every head classifies an episode of its own draw. What
is compared: drawing an episode with its features, a whole episode with cosines, and one with
squared euclidean distances. Rounds are interleaved, so that a slow moment affects all contenders.
Times are processor time, so that other programs do not count.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from timing import Timing, interleaved, main, write_csv
from torch import Tensor

from fsl_basesel.errors import InputError

Work = Callable[[], object]

LOT = 0.1  # seconds; one of our episodes is too short to time
DEFAULTS = {"ways": 100, "shots": 5, "queries": 100, "classes": 100, "images": 600, "dims": 512}
HELP = {
    "ways": "classes of an episode",
    "shots": "images of each class to learn from",
    "queries": "images of each class to classify",
    "classes": "classes there are",
    "images": "images of each class",
    "dims": "numbers of a feature vector",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.description = (
        "Few-shot episodes against learn2learn's and easyfsl's, on cached features."
    )
    for name, value in DEFAULTS.items():
        parser.add_argument(
            f"--{name}", type=int, default=value, help=f"{HELP[name]} (%(default)s)"
        )
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads (%(default)s)")
    parser.add_argument("--csv", metavar="FILE", help="also write every figure to FILE")


def run(args: argparse.Namespace) -> int:
    """Run, print a table for each part, write the CSV."""
    numbers = {name: getattr(args, name) for name in (*DEFAULTS, "rounds", "threads")}
    if min(numbers.values()) < 1:
        raise InputError(f"Expected every number to be at least 1 but got {numbers}.")
    console = Console()
    timings: list[Timing] = []
    setting = f"{args.ways}-way {args.shots}-shot {args.queries} queries"
    with _threads(args.threads):
        for part, contenders in _contenders(args, console).items():
            for work in contenders.values():
                work()  # warm: compiles and caches
            with console.status(f"{part}: {setting}"):
                measured = interleaved(
                    contenders, args.rounds, f"{part}, {setting}", clock="processor", lot=LOT
                )
            console.print(_table(part, measured))
            timings += measured
    if args.csv:
        write_csv(args.csv, timings)
    return 0


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class CachedFeatures(torch.utils.data.Dataset):
    """Made-up features in clusters; labels are plain numbers, which suits the libraries best."""

    def __init__(self, classes: int, images: int, dims: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.labels = [label for label in range(classes) for _ in range(images)]
        centres = torch.rand(classes, dims, generator=generator)
        noise = torch.randn(classes * images, dims, generator=generator)
        self.features = (centres.repeat_interleave(images, 0) + noise).relu_()
        self.positions = {c: list(range(c * images, (c + 1) * images)) for c in range(classes)}

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.features[index], self.labels[index]

    def get_labels(self) -> list[int]:
        """What easyfsl asks a data set for."""
        return self.labels


def _contenders(args: argparse.Namespace, console: Console) -> dict[str, dict[str, Work]]:
    """What to time, by part and name; ours comes first."""
    # Here and not above: this package does not depend on lightning_modules, its benchmark does.
    from lightning_modules.episodes import EpisodeSampler
    from lightning_modules.heads import NearestCentroid

    data = CachedFeatures(args.classes, args.images, args.dims)
    sampler = EpisodeSampler(data.labels, args.ways, args.shots, args.queries)
    numbers = iter(range(1 << 30))
    cosine = NearestCentroid()
    parts: dict[str, dict[str, Work]] = {
        "sampling": {"ours": lambda: sampler.episode(data.features, next(numbers))},
        "cosine episode": {
            "ours": lambda: cosine.accuracy(sampler.episode(data.features, next(numbers)))
        },
    }
    if importlib.util.find_spec("learn2learn"):
        from lightning_modules.heads import ProtoNet

        euclidean = ProtoNet()
        parts["euclidean episode"] = {
            "ours": lambda: euclidean.accuracy(sampler.episode(data.features, next(numbers)))
        }
        for part, works in _learn2learn(args, data).items():
            parts[part] |= works
    else:
        console.print("[yellow]learn2learn is not installed: see docs/install.md")
    if importlib.util.find_spec("easyfsl"):
        parts["sampling"]["easyfsl"] = _easyfsl(args, data)
    else:
        console.print("[yellow]easyfsl is not installed: pip install --no-deps easyfsl")
    return parts


def _learn2learn(args: argparse.Namespace, data: CachedFeatures) -> dict[str, dict[str, Work]]:
    """Tasksets as its examples build them, and its classifier as its ProtoNet uses it."""
    from lightning_modules import require_learn2learn

    l2l = require_learn2learn()
    dataset = l2l.data.MetaDataset(data, labels_to_indices=data.positions)
    kinds, images = l2l.data.transforms, args.shots + args.queries
    rest = [kinds.LoadData(dataset), kinds.RemapLabels(dataset), kinds.ConsecutiveLabels(dataset)]
    separate = [kinds.NWays(dataset, args.ways), kinds.KShots(dataset, images)]
    fused = [kinds.FusedNWaysKShots(dataset, args.ways, images)]
    tasks = l2l.data.Taskset(dataset, [*separate, *rest])
    faster = l2l.data.Taskset(dataset, [*fused, *rest])

    def episode(distance: str) -> Any:
        (support, labels), (query, answers) = l2l.data.partition_task(*tasks.sample(), args.shots)
        classifier = l2l.nn.PrototypicalClassifier(support, labels, distance=distance)
        return l2l.utils.accuracy(classifier(query), answers)

    return {
        "sampling": {
            "learn2learn, NWays + KShots": tasks.sample,
            "learn2learn, fused": faster.sample,
        },
        "cosine episode": {"learn2learn": lambda: episode("cosine")},
        "euclidean episode": {"learn2learn": lambda: episode("euclidean")},
    }


def _easyfsl(args: argparse.Namespace, data: CachedFeatures) -> Work:
    library = importlib.import_module("easyfsl.samplers")

    class TakesDataSource:
        """easyfsl 1.5 hands `data_source` to torch's Sampler, which no longer takes it."""

        def __init__(self, data_source: object = None) -> None:
            super().__init__()

    kind = type("TaskSampler", (library.TaskSampler, TakesDataSource), {})
    sampler = kind(data, args.ways, args.shots, args.queries, n_tasks=1)

    def draw() -> object:
        (positions,) = list(sampler)
        return sampler.episodic_collate_fn([data[position] for position in positions])

    return draw


def _table(part: str, timings: list[Timing]) -> Table:
    table = Table(title=f"{timings[0].setting}", title_justify="left")
    for heading in (part, "median CPU ms", "20-80 %", "times ours"):
        table.add_column(heading, justify="left" if heading == part else "right")
    for timing in timings:
        table.add_row(
            timing.name,
            f"{1e3 * timing.median:.1f}",
            f"{1e3 * timing.low:.1f}-{1e3 * timing.high:.1f}",
            f"{timing.median / timings[0].median:.1f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main(add_arguments, run))
