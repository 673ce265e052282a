"""What is left to do of a step or an epoch, and checkpoints written whole."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

import lightning_modules.resume as resume
from lightning_modules.resume import AtomicCheckpointIO, Unfinished
from tests.lightning_modules.runs import tiny_data, tiny_model, tiny_trainer


def saved_in(hook: str, folder: Path) -> dict[str, Any]:
    """The checkpoint that a real run of 4 batches per epoch saves in a hook of epoch 1."""
    found: dict[str, Any] = {}

    class Save(pl.Callback):
        def _save(self, here: str, trainer: pl.Trainer, *_: Any) -> None:
            if here == hook and trainer.current_epoch == 1:
                trainer.save_checkpoint(folder / "x.ckpt")
                found.update(torch.load(folder / "x.ckpt", weights_only=True))

        def on_save_checkpoint(self, trainer: pl.Trainer, module: Any, checkpoint: Any) -> None:
            Unfinished.save(trainer, checkpoint)

        def on_train_epoch_start(self, *args: Any) -> None:
            self._save("epoch start", *args)

        def on_train_batch_start(self, *args: Any) -> None:
            self._save(f"start of batch {args[-1]}", *args)

        def on_train_batch_end(self, *args: Any) -> None:
            self._save(f"batch {args[-1]}", *args)

        def on_validation_start(self, *args: Any) -> None:
            self._save("validation start", *args)

        def on_validation_end(self, *args: Any) -> None:
            self._save("validation end", *args)

        def on_train_epoch_end(self, *args: Any) -> None:
            self._save("epoch end", *args)

    data = tiny_data()
    data.add_classes([0, 1])
    tiny_trainer(folder, Save(), max_epochs=2).fit(tiny_model(), data)
    return found


@pytest.mark.parametrize(
    ("hook", "rest", "batches"),
    [
        ("epoch start", None, None),
        ("start of batch 0", None, None),
        ("start of batch 2", None, None),
        ("batch 0", "step", 1),
        ("batch 3", "step", 4),
        ("validation start", "validation", 4),
        ("validation end", "after validation", 4),
        ("epoch end", "epoch", 4),
    ],
)
def test_what_is_left_to_do_is_seen_in_a_checkpoint(
    hook: str, rest: str | None, batches: int | None, tmp_path: Path
) -> None:
    checkpoint = saved_in(hook, tmp_path)
    before = copy.deepcopy(checkpoint["loops"])
    assert Unfinished(checkpoint, 0).rest == rest
    if rest is None:
        assert checkpoint["loops"] == before
    else:  # in the epoch, after batches that are all complete
        state = checkpoint["loops"]["fit_loop"]
        counts = {"ready": 2, "started": 2, "processed": 1, "completed": 1}
        assert state["epoch_progress"]["current"] == counts
        assert set(state["epoch_loop.batch_progress"]["current"].values()) == {batches}


def test_a_write_that_fails_half_way_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io, path = AtomicCheckpointIO(), tmp_path / "sub" / "last.ckpt"
    io.save_checkpoint({"a": 1}, path)

    def fail(content: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(resume.torch, "save", fail)
        with pytest.raises(OSError, match="no space left"):
            io.save_checkpoint({"a": 2}, path)
    assert torch.load(path, weights_only=True) == {"a": 1}
    io.save_checkpoint({"a": 3}, path)
    assert torch.load(path, weights_only=True) == {"a": 3}
    assert {file.name for file in path.parent.iterdir()} == {"last.ckpt", "previous.ckpt"}
    assert torch.load(path.with_name("previous.ckpt"), weights_only=True) == {"a": 1}


def test_lightning_would_resume_the_last_step_of_an_epoch_wrongly(tmp_path: Path) -> None:
    """Why `Unfinished` is there: a plain run whose second epoch has more batches loses some."""
    seen: list[tuple[int, int]] = []

    class See(pl.Callback):
        def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
            seen.append((trainer.current_epoch, args[-1]))

    class Grow(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            if len(data.classes) == 2:
                data.add_classes([2, 3])

    def trainer(**options: Any) -> pl.Trainer:
        steps = ModelCheckpoint(tmp_path, every_n_train_steps=4, save_top_k=-1)
        options |= {"reload_dataloaders_every_n_epochs": 1}
        return tiny_trainer(tmp_path, See(), Grow(), steps, **options)

    data = tiny_data()
    data.add_classes([0, 1])
    trainer(max_epochs=1).fit(tiny_model(capacity=4), data)
    seen.clear()
    data = tiny_data()
    (first,) = tmp_path.glob("*step=4.ckpt")
    data.add_classes([0, 1])
    data.load_state_dict = lambda state: data.add_classes([2, 3])  # type: ignore[method-assign]
    trainer(max_epochs=2).fit(tiny_model(capacity=4), data, ckpt_path=first)
    assert [batch for epoch, batch in seen if epoch == 1] == [4, 5, 6, 7]
