"""Exact resuming: undamaged checkpoints of the same run, and what Lightning leaves out of them."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed
from lightning_fabric.plugins.io import TorchCheckpointIO
from lightning_fabric.utilities.apply_func import move_data_to_device
from lightning_fabric.utilities.cloud_io import _is_local_file_protocol
from pytorch_lightning.utilities.memory import recursive_detach
from torchmetrics import Metric

from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import whole_file

FITTING = "fit_loop"
LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
DDP_FLAG = "require_forward_param_sync"
"""Whether DDP shares buffers before the next batch; not between batches that are accumulated."""
_SHOWN = {"selector": "method", "start": "selected"}
"""Arguments that checkpoints have under an older name."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint to a temporary file and renames it: a kill leaves the old one or the new.

    Lightning writes to the folder for temporary files and moves the result, which is a copy, and
    may be half done, where that folder is on another disk.

    `check` looks at a checkpoint that was read before anything is taken from it, and raises an
    error if it does not belong here.
    """

    def __init__(self, check: Callable[[dict[str, Any]], None] = lambda checkpoint: None) -> None:
        super().__init__()
        self._check = check

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Read a checkpoint and check it; a damaged one is refused before anything is loaded."""
        local = _is_local_file_protocol(path)
        if local:
            require_whole(Path(path))
        try:
            checkpoint = super().load_checkpoint(path, *args, **kwargs)
        except RuntimeError as error:  # torch sees damage that zipfile does not look at
            if local:
                require_whole(Path(path), f"it cannot be read: {str(error).partition('.')[0]}")
            raise
        self._check(checkpoint)
        return checkpoint

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write `checkpoint` to `path`, whole or not at all; the `last.ckpt` before it is kept."""
        if storage_options is not None or not _is_local_file_protocol(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        with whole_file(path) as file:
            torch.save(checkpoint, file)
            if Path(path).name == LAST:
                _keep_previous(Path(path))


def _keep_previous(last: Path) -> None:
    """Give the present `last.ckpt` the name `previous.ckpt` as well, just before it is replaced."""
    part = last.with_name(f".{PREVIOUS}.part")
    part.unlink(missing_ok=True)
    if last.exists():
        try:
            os.link(last, part)
        except OSError:  # a file system without links
            shutil.copyfile(last, part)
        os.replace(part, last.with_name(PREVIOUS))


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, by the checksums of the zip file it is; None if whole."""
    try:
        with zipfile.ZipFile(path) as archive:
            first = archive.testzip()
    except FileNotFoundError:
        return "it does not exist"
    except Exception as error:  # one wrong bit makes zipfile raise errors of many kinds
        return f"it cannot be read: {error}"
    return None if first is None else f"the checksum of {first} is wrong"


def require_whole(path: Path, wrong: str | None = None) -> None:
    """Refuse a damaged checkpoint; `wrong` is the damage if the caller has found it already.

    The message names the newest undamaged checkpoint beside it.
    """
    wrong = wrong or damage(path)
    if wrong is None:
        return
    others = [other for other in path.parent.glob("*.ckpt") if other != path]
    others.sort(key=lambda other: other.stat().st_mtime, reverse=True)
    whole = next((other for other in others if damage(other) is None), None)
    way = "start anew, without `ckpt_path`" if whole is None else f"resume from {whole}"
    raise InputError(f"Expected {path} to be a whole checkpoint but {wrong}; {way}.")


class Unfinished:
    """What is left to do of the step or the epoch in which a checkpoint was written.

    Lightning writes checkpoints before a step or an epoch is over and leaves the rest out when it
    resumes: the validation after a step, the end of an epoch with all hooks, the steps of
    `ReduceLROnPlateau`, the numbers to be logged. It also starts every mean anew, and ends a run of
    `max_steps` at once. Here the run continues exactly where it was: the step is marked as
    complete, and before the next one Lightning's own functions do the rest.

    The progress of the loops in `checkpoint` is changed.
    """

    KEY = "unfinished"

    def __init__(self, checkpoint: dict[str, Any], rank: int) -> None:
        saved = checkpoint.get(self.KEY, {"validation": "", "processes": []})
        parts = saved["processes"]
        self._part = parts[rank if rank < len(parts) else 0] if parts else None
        loops = checkpoint["loops"][FITTING]
        self.rest = _rest(loops, saved["validation"])
        """What was in progress: "step", "validation", "after validation", "epoch"; "" after all of
        a step; None outside of an epoch."""
        batch, epoch = loops["epoch_loop.batch_progress"], loops["epoch_progress"]
        for name in ("total", "current"):
            if self.rest is not None:
                batch[name]["completed"] = batch[name]["processed"]
                epoch[name]["processed"] = epoch[name]["completed"]
        self._max_steps: int | None = None

    @staticmethod
    def save(trainer: pl.Trainer, checkpoint: dict[str, Any]) -> None:
        """Add what Lightning leaves out, of all processes, to a checkpoint."""
        parts: list[Any] = [_in_memory(trainer)]
        if trainer.world_size > 1:
            parts *= trainer.world_size
            torch.distributed.all_gather_object(parts, parts[0])
        progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
        over = progress.is_last_batch and progress.current.ready == progress.current.completed
        validation = ("after validation" if over else "validation") if trainer.validating else ""
        checkpoint[Unfinished.KEY] = {"validation": validation, "processes": parts}

    def before_the_loops(self, trainer: pl.Trainer) -> None:
        """Let a run that has done all its steps go on to the end of its epoch."""
        if self.rest is not None:
            self._max_steps, trainer.fit_loop.epoch_loop.max_steps = trainer.max_steps, -1

    def before_the_first_batch(self, trainer: pl.Trainer) -> None:
        """Have the rest done when all callbacks have started."""
        if self._part is not None:
            _put_into_memory(trainer, self._part, self.rest)
        if self.rest is None:
            return
        loop = trainer.fit_loop
        start = loop.on_advance_start

        def finish_and_start() -> None:
            del loop.on_advance_start
            self._finish(trainer)
            start()

        loop.on_advance_start = finish_and_start  # type: ignore[method-assign]

    def put_back(self, trainer: pl.Trainer) -> None:
        """Leave the Trainer with the steps it was given."""
        if self._max_steps is not None:
            trainer.fit_loop.epoch_loop.max_steps = self._max_steps
            self._max_steps = None

    def _finish(self, trainer: pl.Trainer) -> None:
        fit, steps = trainer.fit_loop, trainer.fit_loop.epoch_loop
        numbers, fetcher = trainer._logger_connector, fit._data_fetcher
        assert fetcher is not None
        self.put_back(trainer)
        trainer.should_stop = self._part is not None and self._part["should_stop"]
        fit._restarting = steps._restarting = steps.val_loop._restarting = False
        if self.rest == "epoch":
            fit.epoch_progress.increment_processed()
            numbers.on_epoch_end()
            if steps._num_ready_batches_reached():
                known = self._part is not None  # the metric that a plateau is seen by
                steps.update_lr_schedulers("epoch", update_plateau_schedulers=known)
            steps._batches_that_stepped -= 1
            numbers.update_train_epoch_metrics()
            steps._batches_that_stepped += 1
            fit.epoch_progress.increment_completed()
        else:
            if self.rest == "step" and self._part is not None:  # 0.1.0 saved no numbers to log
                numbers.on_batch_end()
                numbers.update_train_step_metrics()
            if self.rest:
                steps._skip_next_val = self.rest == "after validation"
                steps.on_advance_end(fetcher)
            if not steps.done:  # in the middle of an epoch, after a step that is over
                steps._restarting = True
                steps.reset_restart_stage()
                steps._batches_that_stepped -= not steps._should_accumulate()  # `reset` adds it
                return
            fit.on_advance_end()
        steps.on_iteration_done()
        fit.on_iteration_done()
        if fit.done:
            raise StopIteration


def _rest(loops: dict[str, Any], validation: str) -> str | None:
    epoch, batch = loops["epoch_progress"]["current"], loops["epoch_loop.batch_progress"]["current"]
    if epoch["processed"] > epoch["completed"]:
        return "epoch"
    if epoch["started"] == epoch["processed"] or batch["ready"] > batch["processed"]:
        return None  # between two epochs, or in a batch that is done again
    if batch["processed"] > batch["completed"]:
        return "step"
    return validation if batch["completed"] else None


def _in_memory(trainer: pl.Trainer) -> dict[str, Any]:
    """What Lightning does not save: sums, metrics, gradients, buffers, requests to stop."""
    steps, module = trainer.fit_loop.epoch_loop, trainer.lightning_module
    results = []
    for key, result in steps._results.items():
        meta, sync = vars(result.meta).copy(), result.meta.sync
        del meta["_sync"]
        meta["reduce_fx"] = meta["reduce_fx"].__name__
        if not result.has_reset:
            shared = {"_should": sync.should, "rank_zero_only": sync.rank_zero_only}
            cache = result._forward_cache
            results.append((key, meta, shared, result.is_tensor, result.metric_state, cache))
    of_validation = [id(vars(result).get("value")) for result in steps.val_loop._results.values()]
    metrics = {
        name: (metric.metric_state, metric.update_count, metric.dtype)
        for name, metric in module.named_modules()
        if isinstance(metric, Metric) and id(metric) not in of_validation
    }
    gradients = {}
    if steps._should_accumulate():
        gradients = {
            name: value.grad for name, value in module.named_parameters() if value.grad is not None
        }
    found = {
        "results": results,
        "metrics": metrics,
        "gradients": gradients,
        "buffers": dict(module.named_buffers()) if trainer.global_rank else {},
        "callback_metrics": dict(trainer._logger_connector._callback_metrics),
        "should_stop": trainer.should_stop,
        "sync_buffers": getattr(trainer.model, DDP_FLAG, None),
    }
    return recursive_detach(found, to_cpu=True)


def _put_into_memory(trainer: pl.Trainer, part: dict[str, Any], rest: str | None) -> None:
    module, numbers = trainer.lightning_module, trainer._logger_connector
    part = move_data_to_device(part, module.device)
    numbers._callback_metrics.update(part["callback_metrics"])
    for name, value in part["buffers"].items():  # of other processes than the first
        module.get_buffer(name).copy_(value)
    if hasattr(trainer.model, DDP_FLAG) and part["sync_buffers"] is not None:
        setattr(trainer.model, DDP_FLAG, part["sync_buffers"])
    if rest is None:
        return
    collection = trainer.fit_loop.epoch_loop._results
    kinds = sys.modules[type(collection).__module__]
    for name, (state, count, dtype) in part["metrics"].items():
        metric = module.get_submodule(name)
        vars(metric).update(state, _update_count=count, _dtype=dtype, _computed=None)
    for key, meta, shared, is_tensor, state, cache in part["results"]:
        described = kinds._Metadata(**meta)
        described.sync = kinds._Sync(fn=trainer.strategy.reduce, **shared)
        result = kinds._ResultMetric(described, is_tensor)
        value = {} if is_tensor else {"value": module.get_submodule(meta["metric_attribute"])}
        vars(result).update(state, **value, _forward_cache=cache, _update_count=1)
        collection[key] = result
    # Otherwise the first batch would be taken for that of an epoch, and the sums for old ones.
    numbers._first_loop_iter = None if rest == "epoch" else False
    for name, gradient in part["gradients"].items():
        module.get_parameter(name).grad = gradient


def require_same(
    saved: Mapping[str, Any], here: Mapping[str, Any], newer: Collection[str] = ()
) -> None:
    """Refuse a checkpoint whose settings differ from those of the run that is to go on.

    Checkpoints of an older version may lack those of `newer`.

    Example:
        >>> require_same({"seed": 0}, {"seed": 1})
        Traceback (most recent call last):
        ...
        fsl_basesel.errors.InputError: Expected a checkpoint of this run but it is of another one:
        seed was 0 and is now 1. Resume ...
    """
    differing = []
    for name in {**here, **saved}:
        before, now = saved.get(name, "not there"), here.get(name, "not there")
        if before != now and (name in saved or name not in newer):
            differing.append(f"{_SHOWN.get(name, name)} was {before!r} and is now {now!r}")
    if differing:
        raise InputError(
            f"Expected a checkpoint of this run but it is of another one: {'; '.join(differing)}. "
            "Resume with the settings of the checkpoint, or leave `ckpt_path` out to start anew."
        )
