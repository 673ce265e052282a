"""Tiny training runs for the tests: data, models, Trainers, and processes that can be killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn

from fsl_basesel.data import ClassPool, NovelTask, from_arrays
from fsl_basesel.data.source import ImageSource
from lightning_modules import BaseClassDataModule, BaseClassifier, ColdStartSelection

SCHEDULE, EPOCHS = (2, 4, 7), (2, 1, 2)
STAGE_OF_EPOCH = (0, 0, 1, 2, 2)
BATCHES = (4, 8, 14)


def images_of(names: list[str], per_class: int = 10, size: int = 8, seed: int = 0) -> ImageSource:
    """Classes that differ: each has a pattern of its own under noise."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((len(names), 1, 1, size, size))
    noise = rng.random((len(names), per_class, 1, size, size))
    pictures = (0.7 * patterns + 0.3 * noise).reshape(-1, 1, size, size).astype(np.float32)
    labels = np.repeat(np.arange(len(names)), per_class)
    return from_arrays(torch.from_numpy(pictures), labels, names)


def tiny_pool(classes: int = 12, seed: int = 0, preview: int = 4) -> ClassPool:
    names = [f"base {c}" for c in range(classes)]
    return ClassPool(images_of(names, seed=seed), preview=preview)


def tiny_task(classes: int = 4, seed: int = 1) -> NovelTask:
    source = images_of([f"novel {c}" for c in range(classes)], seed=seed)
    return NovelTask(source, shots=4, queries=3)


def tiny_data(**options: Any) -> BaseClassDataModule:
    settings = {"batch_size": 4, "val_per_class": 2, "eval_batch_size": 16} | options
    pool = settings.pop("pool", None) or tiny_pool()
    novel = settings.pop("novel", "tiny")
    return BaseClassDataModule(pool, tiny_task() if novel == "tiny" else novel, **settings)


class WithDropout(nn.Module):
    """A backbone that is no name: it has dropout, batch normalisation and says no width."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)


class Smooth(nn.Module):
    """A backbone in which an image does not depend on its batch, nor on random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)


def tiny_model(backbone: type[nn.Module] = WithDropout, **options: Any) -> BaseClassifier:
    torch.manual_seed(5)
    return BaseClassifier(backbone(), **({"lr": 0.05} | options))


def tiny_trainer(folder: Path, *callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    settings: dict[str, Any] = {
        "default_root_dir": folder,
        "logger": False,
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    if not any(isinstance(callback, ModelCheckpoint) for callback in callbacks):
        settings["enable_checkpointing"] = False
    return pl.Trainer(callbacks=list(callbacks), **(settings | options))


def tiny_cold_start(**options: Any) -> ColdStartSelection:
    settings = {"schedule": SCHEDULE, "epochs_per_stage": EPOCHS, "k": 2, "verbose": False}
    return ColdStartSelection(**(settings | options))


class Trace(pl.Callback):
    """Writes a line for every batch at once, so that it outlives a kill."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        line = [trainer.current_epoch, batch_idx, float(outputs["loss"]).hex(), batch[1].tolist()]
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")

    def steps(self) -> dict[tuple[int, int], list[tuple[str, tuple[int, ...]]]]:
        """For each (epoch, batch) what every process that trained on it saw."""
        found: dict[tuple[int, int], list[tuple[str, tuple[int, ...]]]] = {}
        for line in self.path.read_text().splitlines():
            epoch, batch, loss, labels = json.loads(line)
            found.setdefault((epoch, batch), []).append((loss, tuple(labels)))
        return found


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillAt(pl.Callback):
    """Kills the process in a hook, at an epoch and, in mid-batch, at a batch."""

    def __init__(self, hook: str, epoch: int, batch: int | None = None) -> None:
        self.hook, self.epoch, self.batch = hook, epoch, batch

    def _strike(self, hook: str, trainer: pl.Trainer) -> None:
        here = hook == self.hook and trainer.current_epoch == self.epoch
        if here and self.batch in (None, trainer.fit_loop.batch_idx):
            die()

    def on_after_backward(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._strike("backward", trainer)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._strike("epoch start", trainer)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._strike("validation", trainer)


def die_in_call(module: Any, name: str, number: int, half_way: Callable[..., None]) -> None:
    """Let `module.name` work `number` times, then do half of its work and die."""
    original, calls = getattr(module, name), [0]

    def dying(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] > number:
            half_way(original, *args, **kwargs)
            die()
        return original(*args, **kwargs)

    setattr(module, name, dying)


@dataclass
class Plan:
    """A run in a process of its own.

    `kill` is where it is killed: ("backward", epoch, batch), ("epoch start", epoch, first?),
    ("centroids", calls), ("select", calls), ("checkpoint", writes) or None.
    """

    folder: Path
    checkpoint: str = "epoch"
    kill: tuple[Any, ...] | None = None
    cold_start: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    backbone: type[nn.Module] = WithDropout
    model: dict[str, Any] = field(default_factory=dict)
    extra: tuple[pl.Callback, ...] = ()


CHECKPOINTS: dict[str, dict[str, Any]] = {
    "epoch": {},
    "every 3 steps": {"every_n_train_steps": 3},
    "every 4 steps": {"every_n_train_steps": 4},  # the last step of every epoch among them
    "validation": {"save_on_train_epoch_end": False},
}


def run(plan: Plan) -> None:
    """Train, from the last checkpoint if there is one; leave weights and classes behind."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rank = os.environ.get("LOCAL_RANK", "0")
    trace = plan.folder / ("trace.jsonl" if rank == "0" else f"trace-{rank}.jsonl")
    callbacks: list[pl.Callback] = [Trace(trace), *plan.extra]
    cold_start = tiny_cold_start(**plan.cold_start)
    _arm(plan.kill, callbacks, cold_start)
    options = CHECKPOINTS[plan.checkpoint]
    callbacks.append(ModelCheckpoint(plan.folder / "checkpoints", save_last=True, **options))
    settings = {"val_check_interval": 0.5} if plan.checkpoint == "validation" else {}
    trainer = tiny_trainer(plan.folder, *callbacks, **(settings | plan.trainer))
    model, data = tiny_model(plan.backbone, **plan.model), tiny_data(**plan.data)
    trainer.fit(model, data, ckpt_path="last", weights_only=True)
    suffix = "" if rank == "0" else f"-{rank}"
    torch.save(model.state_dict(), plan.folder / f"weights{suffix}.pt")
    (plan.folder / f"classes{suffix}.json").write_text(json.dumps(data.classes))
    records = [record | {"seconds": 0} for record in cold_start.records]
    (plan.folder / f"records{suffix}.json").write_text(json.dumps(records))


def run_on_two(plan: Plan) -> list[int]:
    """The same run in two processes of DDP; their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "NODE_RANK": "0"}
    ddp = replace(plan, trainer=plan.trainer | {"strategy": "ddp", "devices": 2})
    processes = [
        in_process(run, ddp, environment=shared | {"LOCAL_RANK": str(rank)}) for rank in (0, 1)
    ]
    return [finished(process) for process in processes]


def _arm(kill: tuple[Any, ...] | None, callbacks: list[pl.Callback], selection: Any) -> None:
    import lightning_modules.callbacks.base as base
    import lightning_modules.features as features
    import lightning_modules.resume as resume

    callbacks.append(selection)
    if kill is None:
        return
    where, *numbers = kill
    if where in ("backward", "validation"):
        callbacks.append(KillAt(where, *numbers))
    elif where == "epoch start":
        callbacks.insert(1 if numbers[1] else 2, KillAt(where, numbers[0]))
    elif where == "centroids":
        die_in_call(features, "image_centroids", numbers[0], lambda work, *a, **k: work(*a, **k))
    elif where == "select":
        die_in_call(base, "select", numbers[0], lambda work, *a, **k: work(*a, **k))
    elif where == "checkpoint":
        die_in_call(resume.torch, "save", numbers[0], _write_half)


def _write_half(save: Callable[..., None], content: Any, file: Any) -> None:
    file.write(b"PK half a checkpoint")
    file.flush()


_context = multiprocessing.get_context("forkserver")
# Processes fork from one that has imported all and has trained, so each starts in no time.
_context.set_forkserver_preload(["tests.lightning_modules.warm"])


def _start_server() -> None:
    """Start the process to fork from, if there is none, in the project's folder.

    It finds `tests` by the folder it starts in; elsewhere it would find learn2learn's.
    """
    folder = os.getcwd()
    os.chdir(Path(__file__).parents[2])
    try:
        forkserver.ensure_running()
    finally:
        os.chdir(folder)


def in_process(
    work: Callable[..., None], *args: Any, environment: dict[str, str] | None = None
) -> Any:
    """Start `work(*args)` in a process of its own."""
    _start_server()
    process = _context.Process(target=_reporting, args=(work, args, environment or {}))
    process.start()
    return process


def _reporting(
    work: Callable[..., None], args: tuple[Any, ...], environment: dict[str, str]
) -> None:
    os.environ.update(environment)
    # Workers are to be children of this process: they end when they see that it is gone.
    multiprocessing.set_start_method("fork", force=True)
    try:
        work(*args)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def finished(process: Any, seconds: float = 200) -> int:
    """Exit code of a process; one that hangs is ended."""
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError(f"a process took more than {seconds} s")
    return process.exitcode
