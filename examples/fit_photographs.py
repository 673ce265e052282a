"""`fsl-basesel fit` on folders of photographs: from scratch, from a backbone, and frozen.

    FSL_BASESEL_DATA=folder python examples/fit_photographs.py

Makes JPEG folders of Tiny-ImageNet's classes (`tinyimagenet_train100.npz` in the folder), 30 to
choose from and a task of 5, and runs three commands on them, each with a control on random classes.
On a CPU each takes less than five minutes. Run it again to continue a stopped run.
"""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fsl_basesel.cli import main as fsl_basesel

ARCHIVE = "tinyimagenet_train100.npz"
COMMANDS = {
    "scratch": "--size 32 --epochs 12",
    "finetune": "--backbone efficientnet-lite0 -m 15 --epochs 2",
    "frozen": "--backbone efficientnet-lite0 -m 15 --train frozen",
}


def make_folders(archive: Path, root: Path, pool: int, task: int, images: int) -> None:
    """Write `root/pool` and `root/task`, one folder for each class, 64 x 64 JPEG files."""
    with np.load(archive) as content:
        data, offset = content["jpeg"].tobytes(), content["offset"]
        labels, names = content["label"], content["class_name"]
    order = np.random.default_rng(0).permutation(len(names))[: pool + task]
    for number, label in enumerate(order.tolist()):
        name = str(names[label]).split()[0].replace("/", "-")
        folder = root / ("pool" if number < pool else "task") / name
        folder.mkdir(parents=True, exist_ok=True)
        for item in np.flatnonzero(labels == label)[:images].tolist():
            (folder / f"{item}.jpg").write_bytes(data[offset[item] : offset[item + 1]])


def main(argv: Sequence[str] | None = None) -> int:
    """Make the folders and run the commands."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path("runs/photographs"))
    parser.add_argument("--pool", type=int, default=30, help="classes to choose from")
    parser.add_argument("--task", type=int, default=5, help="novel classes")
    parser.add_argument("--images", type=int, default=40, help="of each class")
    parser.add_argument("--only", choices=COMMANDS, help="one of the commands")
    args, more = parser.parse_known_args(argv)
    archive = Path(os.environ.get("FSL_BASESEL_DATA", "data")) / ARCHIVE
    if not archive.is_file():
        parser.error(f"expected {archive}; set FSL_BASESEL_DATA to the folder that has it")
    if not (args.root / "task").is_dir():
        make_folders(archive, args.root, args.pool, args.task, args.images)
    for name in [args.only] if args.only else COMMANDS:
        words = ["fit", str(args.root / "pool"), "--novel", str(args.root / "task")]
        words += [*shlex.split(COMMANDS[name]), "--control", "random"]
        words += ["--run", str(args.root / name), *more]
        print(f"$ fsl-basesel {shlex.join(words)}", flush=True)
        began, used = time.perf_counter(), time.process_time()
        if code := fsl_basesel(words):
            return code
        seconds, used = time.perf_counter() - began, time.process_time() - used
        print(f"{name}: {seconds:.0f} seconds, {used:.0f} of processor time\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
