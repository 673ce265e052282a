"""Checkpoints: plain types only, and those of another run are refused with the difference."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from fsl_basesel.errors import InputError
from lightning_modules import BaseClassDataModule, BaseClassifier, SelectBaseClasses
from lightning_modules.augment import CropAndFlip
from lightning_modules.resume import AtomicCheckpointIO, damage
from tests.lightning_modules.runs import (
    tiny_cold_start,
    tiny_data,
    tiny_model,
    tiny_pool,
    tiny_task,
    tiny_trainer,
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run that has come to its second stage."""
    folder = tmp_path_factory.mktemp("run")
    saving = ModelCheckpoint(folder, save_last=True)
    trainer = tiny_trainer(folder, tiny_cold_start(), saving, max_epochs=3, limit_train_batches=2)
    trainer.fit(tiny_model(), tiny_data())
    return folder / "last.ckpt"


def resume(checkpoint: Path, data: Any = None, callback: Any = None, **cold_start: Any) -> Any:
    selection = callback or tiny_cold_start(**cold_start)
    trainer = tiny_trainer(checkpoint.parent / "other", selection, limit_train_batches=2)
    data = data or tiny_data()
    trainer.fit(tiny_model(), data, ckpt_path=checkpoint)
    return data


def test_the_state_is_plain_and_says_what_was_chosen(checkpoint: Path) -> None:
    content = torch.load(checkpoint, weights_only=True)  # refuses anything but plain types
    state = content["callbacks"]["ColdStartSelection"]
    assert state["settings"]["schedule"] == [2, 4, 7]
    assert state["place"] == [1, 2, None]
    assert len(state["data"]["classes"]) == 4
    assert content["BaseClassDataModule"]["classes"] == state["data"]["classes"]
    assert int(content["state_dict"]["head.active"]) == 4


def test_the_same_run_is_resumed(checkpoint: Path) -> None:
    assert len(resume(checkpoint).classes) == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": (2, 4, 8)}, r"schedule was \[2, 4, 7\] and is now \[2, 4, 8\]"),
        ({"epochs_per_stage": 2}, r"epochs_per_stage was \[2, 1, 2\] and is now \[2, 2, 2\]"),
        ({"seed": 1}, "it is of another one: seed was 0 and is now 1"),
        ({"k": 1, "lam": 0.5}, r"k was 2 and is now 1; lam was 0\.0 and is now 0\.5"),
        ({"method": "greedy-target"}, "method was 'Auto"),
        ({"warm_start": True}, "warm_start was False and is now True"),
        ({"similarity": "whitened"}, "similarity was 'not there' and is now 'whitened'"),
        ({"exclude": ["base 11"]}, r"limits was 'not there' and is now '\w+'"),
        ({"extractor": "efficientnet-lite0"}, "extractor was None and is now 'efficientnet-lite0'"),
        ({"cost": [1.0] * 12, "mu": 0.1}, "mu was 0.0 and is now 0.1; cost was None and is now"),
    ],
)
def test_another_schedule_seed_or_objective_is_refused(
    checkpoint: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        resume(checkpoint, **change)


def test_another_pool_task_or_order_is_refused(checkpoint: Path) -> None:
    with pytest.raises(InputError, match=r"of another one: pool was '\w+' and is now"):
        resume(checkpoint, tiny_data(pool=tiny_pool(seed=3)))
    with pytest.raises(InputError, match="of another one: pool was"):
        resume(checkpoint, tiny_data(pool=tiny_pool(preview=3)))
    with pytest.raises(InputError, match="of another one: novel was"):
        resume(checkpoint, tiny_data(novel=tiny_task(seed=5)))
    with pytest.raises(InputError, match=r"novel was '\w+' and is now 'none'"):
        resume(checkpoint, tiny_data(novel=None))
    with pytest.raises(InputError, match="data seed was 0 and is now 4"):
        resume(checkpoint, tiny_data(seed=4))
    with pytest.raises(InputError, match="min_epoch_images was 0 and is now 50"):
        resume(checkpoint, tiny_data(min_epoch_images=50))
    with pytest.raises(InputError, match="batch_size was 4 and is now 2"):
        resume(checkpoint, tiny_data(batch_size=2))
    with pytest.raises(InputError, match=r"augment was None and is now 'CropAndFlip\(padding=2"):
        resume(checkpoint, tiny_data(augment=CropAndFlip(2)))


def test_another_model_is_refused(checkpoint: Path) -> None:
    trainer = tiny_trainer(checkpoint.parent / "other", tiny_cold_start())
    with pytest.raises(InputError, match=r"model was 'BaseClassifier' and is now .*\(conv3\)'"):
        trainer.fit(BaseClassifier("conv3"), tiny_data(), ckpt_path=checkpoint)


def test_settings_that_an_older_version_did_not_save_are_not_compared(
    checkpoint: Path, tmp_path: Path
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    state = content["callbacks"]["ColdStartSelection"]
    for newer in ("cost", "model"):
        del state["settings"][newer]
    for data in (state["data"], content["BaseClassDataModule"]):
        del data["identity"]["batch_size"], data["identity"]["augment"], data["processes"]
    torch.save(content, tmp_path / "old.ckpt")
    assert len(resume(tmp_path / "old.ckpt").classes) == 7


@pytest.mark.parametrize("position", [0.02, 0.3, 0.5, 0.7, 0.98])
def test_a_flipped_bit_is_seen_and_the_whole_checkpoint_named(
    checkpoint: Path, tmp_path: Path, position: float
) -> None:
    content = bytearray(checkpoint.read_bytes())
    with zipfile.ZipFile(checkpoint) as archive:  # between its parts it has bytes that nobody reads
        parts = sorted(archive.infolist(), key=lambda part: part.file_size)[-5:]
        part = parts[int(position * len(parts))]
        start = content.index(archive.read(part), part.header_offset)
    content[start + int(position * part.file_size)] ^= 4
    (tmp_path / "last.ckpt").write_bytes(content)
    with pytest.raises(InputError, match=r"last.ckpt to be a whole .*; start anew"):
        resume(tmp_path / "last.ckpt")
    (tmp_path / "previous.ckpt").write_bytes(checkpoint.read_bytes())
    with pytest.raises(InputError, match=r"resume from .*previous\.ckpt"):
        resume(tmp_path / "last.ckpt")
    (tmp_path / "last.ckpt").write_bytes(content[:1000])
    with pytest.raises(InputError, match=r"cannot be read: .*; resume from .*previous\.ckpt"):
        resume(tmp_path / "last.ckpt")


def test_every_flipped_bit_of_the_directory_is_seen_or_harmless(
    checkpoint: Path, tmp_path: Path
) -> None:
    """In the directory of a zip file a wrong bit makes zipfile raise errors of many kinds."""
    content, path = checkpoint.read_bytes(), tmp_path / "x.ckpt"
    for position in range(len(content) - 2000, len(content), 9):
        flipped = bytearray(content)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        assert isinstance(damage(path), str | None)
        with suppress(InputError):  # torch looks at more than zipfile does
            AtomicCheckpointIO().load_checkpoint(path, weights_only=True)


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, filename="last", enable_version_counter=False)
    trainer = tiny_trainer(tmp_path, tiny_cold_start(), saving, max_epochs=3, limit_train_batches=2)
    trainer.fit(tiny_model(), tiny_data())
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["last.ckpt", "previous.ckpt"]
    epochs = [
        torch.load(tmp_path / f"{name}.ckpt", weights_only=True)["epoch"]
        for name in ("previous", "last")
    ]
    assert epochs == [1, 2]


def test_a_refused_checkpoint_leaves_no_class_expanded(checkpoint: Path) -> None:
    data = tiny_data(seed=4)
    with pytest.raises(InputError):
        resume(checkpoint, data)
    assert data.pool.expanded == []


def test_a_checkpoint_without_a_selection_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    data = tiny_data()
    data.add_classes([0, 1])
    trainer = tiny_trainer(tmp_path, max_epochs=1, limit_train_batches=1)
    trainer.fit(tiny_model(), data)
    trainer.save_checkpoint(tmp_path / "plain.ckpt")
    with pytest.raises(InputError, match="a run with ColdStartSelection but it has no state of it"):
        resume(tmp_path / "plain.ckpt")
    trainer.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    with pytest.raises(InputError, match="leave `ckpt_path` out"):
        resume(tmp_path / "weights.ckpt")
    with pytest.raises(InputError, match="a run with SelectBaseClasses but it has no state"):
        resume(checkpoint, callback=SelectBaseClasses(3))
    validating = tiny_trainer(tmp_path, tiny_cold_start())
    validating.validate(trainer.lightning_module, data, verbose=False)
    validating.save_checkpoint(tmp_path / "validated.ckpt")
    with pytest.raises(InputError, match="a run with ColdStartSelection but it has no state of it"):
        resume(tmp_path / "validated.ckpt")


def test_a_data_module_of_another_name_finds_its_state(checkpoint: Path) -> None:
    class Renamed(BaseClassDataModule):
        pass

    data = Renamed(tiny_pool(), tiny_task(), 4, val_per_class=2, eval_batch_size=16)
    assert resume(checkpoint, data).classes == resume(checkpoint).classes


def test_weights_can_be_evaluated_on_another_pool(checkpoint: Path) -> None:
    model = tiny_model(capacity=7)
    other = tiny_data(pool=tiny_pool(seed=3))
    other.add_classes([4, 5])
    trainer = tiny_trainer(checkpoint.parent)
    model._make_head(72, 7)
    (result,) = trainer.validate(model, other, ckpt_path=checkpoint, verbose=False)
    assert "val_accuracy" in result
    assert other.classes == ("base 4", "base 5")
