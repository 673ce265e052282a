"""Around the training of `fit`: how long it will take, what came out, a control, the report.

And `fit --train frozen`, which trains nothing: classes are chosen and novel classes told apart by
fixed features.
"""

from __future__ import annotations

import copy
import json
import time
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytorch_lightning as pl
import torch
from rich.console import Console

import fsl_basesel as fb
from fsl_basesel.backbones import load_backbone
from fsl_basesel.cli.output import save_page
from fsl_basesel.controls import even_counts, random_set_with_images
from fsl_basesel.data.pool import ClassPool
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import csv_text, write_text
from fsl_basesel.photographs import EmbeddingJob
from fsl_basesel.report.content import count
from fsl_basesel.report.paired import REFERENCE, paired_difference, points
from lightning_modules import found
from lightning_modules.callbacks.cold_start import ColdStartSelection
from lightning_modules.callbacks.novel_evaluation import Moment, row_of
from lightning_modules.callbacks.select_base_classes import SelectBaseClasses
from lightning_modules.data import BaseClassDataModule
from lightning_modules.episodes import TaskEpisodes
from lightning_modules.evaluation import NovelAccuracy, evaluate_novel, novel_accuracy
from lightning_modules.features import feature_function
from lightning_modules.heads import NearestCentroid, WhitenedCentroid
from lightning_modules.resume import require_same
from lightning_modules.settings import Settings, callbacks_of

if TYPE_CHECKING:
    from lightning_modules.cli import FitCLI

CHOSEN = "chosen classes"
CONTROL = "control-random"
ENDS = ("max_epochs", "max_steps", "max_time")
"""Arguments of the Trainer that end a run."""
IDENTITY = "frozen.json"
"""What tells a run of `--train frozen` from others."""


def say(text: str) -> None:
    """A line on the screen."""
    Console(highlight=False).print(text, soft_wrap=True)


def stages_of(command: FitCLI) -> list[tuple[int, int]]:
    """Base classes and epochs of each stage of a run; none where nothing is chosen."""
    selection = command.selection
    if selection is None:
        return []
    sizes, epochs = selection.schedule.sizes, selection.schedule.epochs
    if isinstance(selection, ColdStartSelection):
        return list(zip(sizes, epochs, strict=True))
    return [(sizes[-1], max(1, command.trainer.max_epochs or 1))]


class FirstBatch(pl.Callback):
    """Says how long after `began`, by `time.perf_counter`, the first batch came."""

    def __init__(self, began: float) -> None:
        self.began: float | None = began

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Only the first batch counts."""
        if self.began is not None and trainer.is_global_zero:
            say(f"First batch after {time.perf_counter() - self.began:.1f} seconds")
        self.began = None


def announce(command: FitCLI, began: float, control: bool) -> None:
    """Say what will be done and about how long it will take, and later when it has begun."""
    stages, data = stages_of(command), command.datamodule
    if stages and command.trainer.is_global_zero:
        plan = ", ".join(f"{count(c, 'class')} x {count(e, 'epoch')}" for c, e in stages)
        text = f"{len(data.pool)} candidates in {command.folder}: {plan}"
        if type(data.pool) is ClassPool:  # people label the classes of others: no telling
            choosing, *training = _estimate(command, stages)
            whole = choosing + sum(training) + training[-1] * control
            text += f"; about {in_words(whole)} without what was done before"
        say(text)
    command.trainer.callbacks.append(FirstBatch(began))  # type: ignore[attr-defined]


def in_words(seconds: float) -> str:
    """A time for people.

    Example:
        >>> in_words(42), in_words(400), in_words(9000)
        ('42 seconds', '7 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _estimate(command: FitCLI, stages: Sequence[tuple[int, int]]) -> list[float]:
    """Seconds of all choices and of each stage, by reading and learning from a batch."""
    data, selection = command.datamodule, command.selection
    assert selection is not None
    images = data.pool.preview_set()
    few = range(min(data.batch_size, len(images)))
    device = command.trainer.strategy.root_device
    with torch.random.fork_rng():
        module = copy.deepcopy(command.model).to(device).train()
        extract = feature_function(module, selection.features)
        pictures = images.batch(few)[0]

        def learn() -> None:
            extract(pictures.to(device)).flatten(1).square().mean().backward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        learning = _seconds(learn) / len(few)
    reading = _seconds(lambda: images.batch(few)) / len(few)
    reading /= max(1, data.workers["num_workers"])
    choosing = max(1, len(stages) - 1) * len(images) * (reading + learning / 3)
    by = selection.extractor
    if isinstance(by, str) and not by.endswith(".ckpt"):  # it looks once, at pictures of its size
        job = EmbeddingJob(data.pool, load_backbone(by), per_class=data.pool.preview, device=device)
        choosing = job.estimate().seconds
    per_class, least = float(data.pool.source.sizes.mean()), data.min_epoch_images
    return [choosing, *(e * max(c * per_class, least) * (reading + learning) for c, e in stages)]


def _seconds(work: Callable[[], object]) -> float:
    """Time of a call; the first one is often slower."""
    return min(timeit.repeat(work, number=1, repeat=2))


def require_control_possible(command: FitCLI, words: Sequence[str]) -> None:
    """Refuse `--control random`, before anything is trained, where it would not be a fair one.

    `words` are options of Lightning, which the control is built with too.
    """
    data, selection, trainer = command.datamodule, command.selection, command.config["trainer"]
    staged = isinstance(selection, ColdStartSelection)
    ends = [name for name in ENDS if trainer[name] not in (None, -1)]
    callbacks = [word for word in words if word.startswith("--trainer.callbacks")]
    wrong = None
    if selection is None or data.novel is None:
        wrong = "a selection and a novel task (--novel)"
    elif type(data.pool) is not ClassPool:
        wrong = (
            "classes that have their images: without --label, as people would label random ones,"
        )
    elif getattr(selection, "warm_start", False):
        wrong = "a new network in each stage (no warm_start), as its control has one stage,"
    elif staged and ends:
        wrong = f"a cold start that ends with its schedule and not by trainer.{ends[0]}"
    elif callbacks:
        wrong = f"callbacks from a YAML file, which the control shares, and no {callbacks[0]}"
    if wrong is not None:
        raise InputError(f"Expected {wrong} for --control random; change that or leave it out.")


def finish(command: FitCLI, settings: Settings, words: Sequence[str], control: bool) -> None:
    """The accuracy on the novel task, a control if asked for, and the report."""
    trainer = command.trainer
    if trainer.fast_dev_run:  # type: ignore[attr-defined]
        return
    result = accuracy(command)
    other = control_run(command, settings, words) if control else None
    runs = [one.datamodule for one in (command, other) if one is not None]
    random = None if other is None else accuracy(other)
    if trainer.is_global_zero:
        if result is not None:
            images = [len(data.training_images()) for data in runs]
            classes = len(runs[0].class_numbers)
            show_result(command.folder, classes, images, result, random)
        write_report(command.report_folder)


def accuracy(command: FitCLI) -> NovelAccuracy | None:
    """Accuracy on the novel task, as `trainer.test` gives it; None without a task."""
    novel, device = command.datamodule.novel, command.trainer.strategy.root_device
    selection = command.selection
    if novel is None or selection is None or not command.trainer.is_global_zero:
        return None
    model = command.model.to(device)
    (result,) = evaluate_novel(
        model, novel, [NearestCentroid()], shots=novel.shots, features=selection.features
    )
    model.to("cpu")
    return result


def control_run(command: FitCLI, settings: Settings, words: Sequence[str]) -> FitCLI:
    """Train the same network on random classes with as many images, in a folder of its own."""
    from lightning_modules.cli import build

    data, selection = command.datamodule, command.selection
    assert selection is not None  # see `require_control_possible`
    images, sizes = len(data.training_images()), data.pool.source.sizes - data.val_per_class
    before = data.pool.source.positions(selection.selected)
    m = len(data.class_numbers) - len(before)
    drawn = random_set_with_images(
        selection.nothing_known(m, before), sizes, images, selection.seed
    )
    random = copy.deepcopy(settings)
    random["run"] = str(command.folder / CONTROL)
    if random.get("ckpt_path") != "none":  # a file would be one of the network it is compared with
        random["ckpt_path"] = "last"
    trainer = random.setdefault("trainer", {})
    for callback in trainer.get("callbacks") or ():
        if isinstance(callback, dict):
            (callback.get("init_args") or {}).pop("dirpath", None)  # a folder of its own
    (chosen,) = callbacks_of(random, "selection")
    chosen["class_path"] = found.ONCE
    given = chosen.get("init_args") or {}
    chosen["init_args"] = {
        name: given[name] for name in ("features", "reseed") if name in given
    } | {
        "m": len(before) + len(drawn),
        "include": [data.pool.names[c] for c in [*before, *drawn]],
        "method": "random",
        "certify": False,
        "seed": selection.seed,
    }
    if isinstance(selection, ColdStartSelection):
        trainer["max_epochs"] = stages_of(command)[-1][1]
    other = build(random, words)
    other.datamodule.max_images = images
    # A set with fewer images is gone over more often, so that both networks learn as long.
    other.datamodule.min_epoch_images = max(data.min_epoch_images, images)
    if command.trainer.is_global_zero:
        say(f"Control: a second network on {len(before) + len(drawn)} random classes")
    other.fit()
    return other


def show_result(
    folder: Path,
    m: int,
    images: Sequence[int],
    chosen: NovelAccuracy,
    random: NovelAccuracy | None = None,
) -> None:
    """Show the accuracy and, draw by draw, what the choice brought; keep that for the report.

    `images` are the training images of the chosen classes and of their control.
    """
    draws, results = len(chosen.accuracies), folder / "results.csv"
    if random is None:
        results.unlink(missing_ok=True)  # that of an earlier run
        say(f"Novel task: {chosen} over {draws} draws")
        return
    mine, theirs = images
    if mine == theirs:
        ours = CHOSEN
        say(f"Training images: {mine} of the chosen classes, as many of the control")
    else:
        ours = f"{CHOSEN} ({mine} images, the control {theirs})"
        say(
            f"Training images: {mine} of the chosen classes, but only {theirs} of the control, so "
            "the difference is partly one of images"
        )
    setting = {"experiment": "fit", "domain": folder.name, "m": m}
    rows = [
        setting
        | {"label": label, "seed": draw, "head": one.head, "shots": one.shots, "accuracy": a}
        for label, one in ((REFERENCE, random), (ours, chosen))
        for draw, a in enumerate(one.accuracies)
    ]
    write_text(results, csv_text(rows))
    by_draw = [dict(enumerate(one.accuracies)) for one in (chosen, random)]
    say(f"Novel task, {CHOSEN}: {chosen} over {draws} draws")
    say(f"Novel task, random classes: {random}")
    difference = points(paired_difference(*by_draw), sign=True)
    say(f"Difference: {difference} points (paired by draw; one training each)")


def write_report(folder: Path) -> None:
    """Write `report.html` of a run into its folder."""
    say(f"Report: {save_page(folder)[0]}")


def frozen_run(command: FitCLI, backbone: str, control: bool) -> None:
    """Choose classes and judge the head `WhitenedCentroid` on them; nothing is trained.

    Features are cached, so a run that was killed goes on where it was.
    """
    data, callback, folder = command.datamodule, command.selection, command.folder
    if data.novel is None:
        raise InputError("Expected --novel, the task to tell apart, for --train frozen.")
    if not isinstance(callback, SelectBaseClasses):
        raise InputError(
            "Expected one selection for --train frozen but got --schedule; use -m instead."
        )
    callback.data = data
    _require_own_folder(folder, data.identity() | callback.settings())
    network = load_backbone(backbone)
    data.add_classes(callback.selected)
    problem = callback.problem(command.trainer, command.model, callback.m, by=backbone)
    selection = fb.select(problem, callback.method, callback.seed)
    callback.save_files(folder, 1, selection)
    before = list(problem.selected)
    result, taken = _frozen_accuracy(data, before + selection.indices, network)
    images, m = [taken], len(before) + len(selection.indices)
    row = row_of(Moment(0, 0, 0, m), result, callback.seed)
    write_text(folder / f"novel_allway_{data.novel.shots}shot.csv", csv_text([row]))
    random = None
    if control:
        same = problem.replace(m=len(selection.indices))
        drawn = random_set_with_images(same, data.pool.source.sizes, taken, callback.seed)
        random, theirs = _frozen_accuracy(data, before + drawn, network, taken)
        images.append(theirs)
    show_result(folder, m, images, result, random)
    write_report(folder)


def _require_own_folder(folder: Path, identity: dict[str, Any]) -> None:
    """Refuse a folder with the run of other data or settings."""
    try:
        require_same(json.loads((folder / IDENTITY).read_text(encoding="utf-8")), identity)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise InputError(f"{error} Or name another folder with --run.") from error
    write_text(folder / IDENTITY, json.dumps(identity, indent=2) + "\n")


def _frozen_accuracy(
    data: BaseClassDataModule, classes: list[int], network: Any, most: int | None = None
) -> tuple[NovelAccuracy, int]:
    """Accuracy on the draws of the novel task, and the images of the base classes it is based on.

    With `most` there are no more of them than that.
    """
    novel = data.task
    data.pool.expand(classes)
    options: dict[str, Any] = {"per_class": None, "on_corrupt": "skip"}
    source = data.pool.source.subset(classes)
    job = EmbeddingJob(source, network, title="Base classes", **options)
    base = job.features()
    if most is not None:
        taken = job.images.items < even_counts(np.bincount(base[1]), most)[base[1]]
        base = base[0][taken], base[1][taken]
    head = WhitenedCentroid(*map(torch.from_numpy, base))
    values, labels = EmbeddingJob(
        novel.source, network, title="Novel classes", **options
    ).features()
    plan = TaskEpisodes(novel, novel.shots)
    counts = np.bincount(labels, minlength=len(novel))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    rows = starts[plan.images.classes] + plan.images.items
    inputs = torch.from_numpy(values[rows])
    accuracy = novel_accuracy(head, plan, inputs, plan.episodes, torch.device("cpu"))
    return accuracy, len(base[1])
