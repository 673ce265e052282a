"""Resuming exactly: whole checkpoints, of this run, with loop states Lightning resumes aright."""

from __future__ import annotations

import copy
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io import TorchCheckpointIO
from lightning_fabric.utilities.cloud_io import _is_local_file_protocol

from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import whole_file

FITTING = "fit_loop"
LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
_SHOWN = {"selector": "method", "start": "selected"}
"""Arguments that checkpoints have under an older name."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and renames it: a kill leaves the old one or the new.

    Lightning writes to the folder for temporary files and moves the result, which is a copy, and
    may be half done, where that folder is on another disk.

    Args:
        check: looks at a checkpoint that was read before anything is taken from it, and raises an
            error if it does not belong here.
    """

    def __init__(self, check: Callable[[dict[str, Any]], None] = lambda checkpoint: None) -> None:
        super().__init__()
        self._check = check

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Read a checkpoint and check it; a damaged one is refused before anything is loaded."""
        if _is_local_file_protocol(path):
            require_whole(Path(path))
        checkpoint = super().load_checkpoint(path, *args, **kwargs)
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
    """What is wrong with a checkpoint, by the checksums of the zip file it is; None if it is whole.

    Example:
        >>> damage(Path("nosuch.ckpt"))
        'it is not there'
    """
    try:
        with zipfile.ZipFile(path) as archive:
            first = archive.testzip()
    except FileNotFoundError:
        return "it is not there"
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        return f"it cannot be read: {error}"
    return None if first is None else f"the checksum of {first} is wrong"


def require_whole(path: Path) -> None:
    """Refuse a damaged checkpoint and name the newest whole one beside it."""
    wrong = damage(path)
    if wrong is None:
        return
    others = [other for other in path.parent.glob("*.ckpt") if other != path]
    others.sort(key=lambda other: other.stat().st_mtime, reverse=True)
    whole = next((other for other in others if damage(other) is None), None)
    way = "start anew, without `ckpt_path`" if whole is None else f"resume from {whole}"
    raise InputError(f"Expected {path} to be a whole checkpoint but {wrong}; {way}.")


def settled(loops: dict[str, Any]) -> dict[str, Any]:
    """The state of Lightning's loops, with an epoch that is over counted as over.

    Two checkpoints are taken after the last batch of an epoch but before the epoch counts as
    complete: at the end of the epoch, and after a training step that happens to be its last.
    Lightning resumes the first wrongly with `max_steps` (it skips `on_train_epoch_start` and loses
    steps), and the second wrongly if the next epoch has more batches (it takes the batches of the
    old epoch for batches of the new one). Both become what they are: the start of the next epoch.

    Args:
        loops: `checkpoint["loops"]`; not changed.

    Returns:
        The same, changed where needed.
    """
    state = copy.deepcopy(loops)
    fitting = state.get(FITTING, {})
    epoch, batch = fitting.get("epoch_progress"), fitting.get("epoch_loop.batch_progress")
    if epoch is None or batch is None:
        return state
    now, steps = epoch["current"], batch["current"]
    in_epoch_end = now["ready"] == now["started"] == now["processed"] == now["completed"] + 1
    in_last_step = (
        batch["is_last_batch"]
        and now["ready"] == now["started"] == now["processed"] + 1
        and steps["ready"] == steps["processed"] == steps["completed"] + 1
    )
    if in_last_step:
        batch["total"]["completed"] += 1
        fitting["epoch_loop.state_dict"]["_batches_that_stepped"] += 1
    if in_epoch_end or in_last_step:
        for counts in (epoch["total"], epoch["current"]):
            counts["processed"] = counts["completed"] = counts["started"]
        batch["current"] = dict.fromkeys(steps, 0)
        batch["is_last_batch"] = False
    return state


def require_same(
    saved: Mapping[str, Any], here: Mapping[str, Any], newer: Collection[str] = ()
) -> None:
    """Refuse a checkpoint whose settings differ from those of the run that is to go on.

    Args:
        saved: settings the checkpoint was written with.
        here: settings of this run.
        newer: settings that a checkpoint of an older version may lack.

    Raises:
        InputError: with every setting that differs, its value in the checkpoint and here.

    Example:
        >>> require_same({"seed": 0}, {"seed": 0})
        >>> require_same({"seed": 0}, {"seed": 1})
        Traceback (most recent call last):
        ...
        fsl_basesel.errors.InputError: Expected a checkpoint of this run but it is of another one:
        seed was 0 and is now 1. Resume ...
    """
    names = [*here, *(name for name in saved if name not in here)]
    values = {name: (saved.get(name, "not there"), here.get(name, "not there")) for name in names}
    differing = [
        f"{_SHOWN.get(name, name)} was {before!r} and is now {now!r}"
        for name, (before, now) in values.items()
        if before != now and not (name in newer and name not in saved)
    ]
    if differing:
        raise InputError(
            f"Expected a checkpoint of this run but it is of another one: {'; '.join(differing)}. "
            "Resume with the settings of the checkpoint, or leave `ckpt_path` out to start anew."
        )
