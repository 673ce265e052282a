"""What choosing classes inside `trainer.fit` costs.

    python benchmarks/fit.py

First the overhead of an epoch: the same model on the same images in memory, trained by Lightning
alone on a static data set and with the data module and a selection callback. The two runs take
turns, an epoch each, and the ratio is that of neighbouring epochs, so that a slow moment of the
machine hits both. Processor time is reported beside wall time. Then a whole cold start on the
glyphs: how much of it the selections take.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import threading
import time
import warnings
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from timing import CLOCKS, Timing, main, write_csv

import fsl_basesel
from fsl_basesel.errors import InputError
from fsl_basesel.parallel import thread_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.description = (
        "The overhead of an epoch with classes chosen during the run, against plain Lightning on\n"
        "a static data set of the same images, and the share of selections in a cold start."
    )
    parser.add_argument("--classes", type=int, default=25, help="of the epoch (%(default)s)")
    parser.add_argument("--images", type=int, default=100, help="of a class (%(default)s)")
    parser.add_argument(
        "--epochs", type=int, default=30, help="of each run, the two taking turns (%(default)s)"
    )
    parser.add_argument(
        "--cold-start-epochs",
        type=int,
        default=10,
        metavar="N",
        help="epochs of each stage of the cold start, which takes some 15 minutes; 0 leaves it "
        "out (%(default)s, as in configs/glyphs-cold-start.yaml)",
    )
    parser.add_argument(
        "--schedule", default="6,12,25,50,100", help="stages of the cold start (%(default)s)"
    )
    parser.add_argument("--candidates", type=int, default=400, help="its pool (%(default)s)")
    parser.add_argument("--novel", type=int, default=100, help="its task (%(default)s)")
    parser.add_argument("--per-class", type=int, default=500, help="its images (%(default)s)")
    parser.add_argument("--csv", metavar="FILE", help="also write every figure to FILE")


def run(args: argparse.Namespace) -> int:
    """Run both parts, print tables, write the CSV."""
    if min(args.classes, args.images) < 1 or args.epochs < 3:
        raise InputError(
            "Expected at least 1 class and image and at least 3 epochs (the first and the last are "
            f"not counted) but got --classes {args.classes} --images {args.images} --epochs "
            f"{args.epochs}."
        )
    try:
        schedule = [int(size) for size in args.schedule.split(",")]
    except ValueError:
        raise InputError(
            f"Expected --schedule to be numbers with commas between but got {args.schedule!r}."
        ) from None
    warnings.simplefilter("ignore")
    console = Console()
    timings = _overhead(args, console)
    if args.cold_start_epochs:
        timings += _cold_start(args, schedule, console)
    if args.csv:
        write_csv(args.csv, timings)
    return 0


def _overhead(args: argparse.Namespace, console: Console) -> list[Timing]:
    pictures, labels = _images(args.classes, args.images)
    contenders = {
        "plain Lightning": _static(pictures, labels),
        "classes chosen in the run": _chosen(pictures, labels, args.classes, args.epochs),
    }
    with console.status("Epochs, in turns"):
        seconds = _take_turns(contenders, args.classes, args.epochs)
    table = Table(title=f"An epoch of {args.classes} x {args.images} images, conv3, batch 64")
    for heading in ("clock", *(f"{name}, ms" for name in contenders), "ratio, 20-80 %"):
        table.add_column(heading, justify="right")
    timings = []
    for clock, taken in seconds.items():
        plain, ours = taken.values()
        low, middle, high = np.quantile(np.divide(ours, plain), [0.2, 0.5, 0.8])
        medians = [f"{1e3 * np.median(values):.1f}" for values in taken.values()]
        table.add_row(clock, *medians, f"{middle:.3f} ({low:.3f}-{high:.3f})")
        setting = f"epoch of {args.classes}x{args.images}"
        timings += [_timing(setting, name, values, clock) for name, values in taken.items()]
    console.print(table)
    return timings


def _images(classes: int, per_class: int) -> tuple[Any, Any]:
    """Glyphs in memory, so that the time is that of training and not of drawing."""
    from fsl_basesel.data import GlyphSource, glyph_codes

    source = GlyphSource(glyph_codes()[:classes], per_class=per_class)
    labels = np.repeat(np.arange(classes), per_class)
    return source.images(labels, np.tile(np.arange(per_class), classes)), labels


def _static(pictures: Any, labels: np.ndarray) -> tuple[list[Any], dict[str, Any]]:
    """A static data set, and no callback."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(pictures, torch.from_numpy(labels))
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=len(data) % 64 == 1)
    return [], {"train_dataloaders": loader}


def _chosen(
    pictures: Any, labels: np.ndarray, classes: int, epochs: int
) -> tuple[list[Any], dict[str, Any]]:
    """The same images through the data module, their classes chosen by a callback."""
    from fsl_basesel.data import ClassPool, from_arrays
    from lightning_modules import BaseClassDataModule, ColdStartSelection

    pool = ClassPool(from_arrays(pictures, labels), preview=1)
    callback = ColdStartSelection((classes,), epochs, verbose=False)
    return [callback], {"datamodule": BaseClassDataModule(pool)}


def _take_turns(
    contenders: dict[str, tuple[list[Any], dict[str, Any]]], classes: int, epochs: int
) -> dict[str, dict[str, list[float]]]:
    """Seconds of every epoch but the first and the last, by clock and contender."""
    import pytorch_lightning as pl
    import torch

    from lightning_modules import BaseClassifier

    names, cores = list(contenders), torch.get_num_threads()
    gates = [threading.Semaphore(1), threading.Semaphore(0)]
    seconds: dict[str, dict[str, list[float]]] = {
        clock: {name: [] for name in names} for clock in CLOCKS
    }
    faults: list[BaseException] = []

    class Turns(pl.Callback):
        """Hands over to the other run at the end of an epoch, and waits for its own turn."""

        def __init__(self, number: int) -> None:
            self.number, self.began = number, {clock: now() for clock, now in CLOCKS.items()}

        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
            for clock, now in CLOCKS.items():
                seconds[clock][names[self.number]].append(now() - self.began[clock])
            gates[1 - self.number].release()
            if trainer.current_epoch + 1 < epochs:
                gates[self.number].acquire()
            self.began = {clock: now() for clock, now in CLOCKS.items()}

    def fit(number: int, folder: str) -> None:
        try:
            torch.set_num_threads(cores)  # a thread of Python starts with a setting of its own
            gates[number].acquire()
            callbacks, data = contenders[names[number]]
            trainer = _trainer(folder, [*callbacks, Turns(number)], max_epochs=epochs)
            trainer.fit(BaseClassifier("conv3", capacity=classes), **data)
        except BaseException as error:
            faults.append(error)
            gates[1 - number].release()

    with tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=fit, args=(number, folder)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]
    return {
        clock: {name: values[1:-1] for name, values in taken.items()}
        for clock, taken in seconds.items()
    }


def _trainer(folder: str, callbacks: list[Any], **options: Any) -> Any:
    import logging

    import pytorch_lightning as pl

    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    return pl.Trainer(
        callbacks=callbacks,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        **options,
    )


def _cold_start(args: argparse.Namespace, schedule: list[int], console: Console) -> list[Timing]:
    import pytorch_lightning as pl

    from fsl_basesel.data import glyphs
    from lightning_modules import BaseClassDataModule, BaseClassifier, ColdStartSelection

    pool, novel = glyphs(
        candidates=args.candidates,
        novel=args.novel,
        per_class=args.per_class,
        preview=min(50, args.per_class),
        shots=min(20, args.per_class - 1),
    )
    callback = ColdStartSelection(schedule, args.cold_start_epochs, k=3, verbose=False)
    epochs = args.cold_start_epochs * len(schedule)
    with console.status("A cold start") as status, tempfile.TemporaryDirectory() as folder:

        class Progress(pl.Callback):
            def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
                status.update(f"A cold start, epoch {trainer.current_epoch + 1} of {epochs}")

        data = BaseClassDataModule(pool, novel)
        start = time.perf_counter()
        _trainer(folder, [callback, Progress()]).fit(BaseClassifier("conv3"), data)
        total = time.perf_counter() - start
    chosen = [float(record["seconds"]) for record in callback.records]
    share = sum(chosen) / total
    stages = "-".join(map(str, schedule))
    console.print(
        f"Cold start {stages}, {args.cold_start_epochs} epochs per stage, {args.candidates} "
        f"candidates, {args.novel} novel classes, {args.per_class} images per class: {total:.1f} "
        f"s; selections {sum(chosen):.1f} s of it ({share:.1%}), at most {max(chosen):.1f} s each."
    )
    setting = f"cold start {stages}, {args.cold_start_epochs} epochs per stage"
    return [
        _timing(setting, "whole run", [total]),
        _timing(setting, "all selections", [sum(chosen)]),
    ]


def _timing(setting: str, name: str, seconds: list[float], clock: str = "wall") -> Timing:
    low, median, high = np.quantile(seconds, [0.2, 0.5, 0.8])
    return Timing(
        setting=setting,
        name=name,
        median=float(median),
        low=float(low),
        high=float(high),
        rounds=len(seconds),
        device=f"{platform.machine()} {os.cpu_count()} cores, {thread_count()} threads",
        version=fsl_basesel.__version__,
        clock=clock,
    )


if __name__ == "__main__":
    sys.exit(main(add_arguments, run))
