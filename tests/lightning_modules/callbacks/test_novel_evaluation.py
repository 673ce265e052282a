"""`NovelEvaluation` inside training runs: at the right moments, of the right weights."""

from __future__ import annotations

import csv
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger

from fsl_basesel.errors import InputError
from lightning_modules import (
    BaseClassDataModule,
    ColdStartSelection,
    SelectBaseClasses,
    StageEarlyStopping,
)
from lightning_modules.callbacks.novel_evaluation import NovelEvaluation
from lightning_modules.evaluation import evaluate_novel
from lightning_modules.heads import NearestCentroid, SoftmaxRegression
from tests.lightning_modules.noisy import noisy_task
from tests.lightning_modules.runs import (
    EPOCHS,
    SCHEDULE,
    finished,
    in_process,
    tiny_cold_start,
    tiny_model,
    tiny_trainer,
)
from tests.lightning_modules.runs import (
    tiny_data as easy_data,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(LeafSpec|max_epochs|not empty|logging interval)"),
    pytest.mark.filterwarnings("ignore:.*no last checkpoint available"),
]

SETTINGS: dict[str, Any] = {"ways": 3, "shots": 1, "queries": 3, "episodes": 12, "verbose": False}


def tiny_data(**options: Any) -> BaseClassDataModule:
    return easy_data(**({"novel": noisy_task()} | options))


def evaluation(**options: Any) -> NovelEvaluation:
    return NovelEvaluation(**({"heads": [NearestCentroid()]} | SETTINGS | options))


class KeepWeights(pl.Callback):
    """The weights at the end of each epoch, with the numbers of base classes."""

    def __init__(self) -> None:
        self.weights: dict[int, dict[str, torch.Tensor]] = {}

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        state = {name: value.clone() for name, value in pl_module.state_dict().items()}
        self.weights[trainer.current_epoch] = state


def accuracy_of(weights: dict[str, torch.Tensor]) -> float:
    model = tiny_model(capacity=SCHEDULE[-1])
    backbone = {k[len("backbone.") :]: v for k, v in weights.items() if k.startswith("backbone.")}
    model.backbone.load_state_dict(backbone)
    settings = [SETTINGS[name] for name in ("ways", "shots", "queries", "episodes")]
    return evaluate_novel(model, noisy_task(), [NearestCentroid()], *settings)[0].mean


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("last", [True, False], ids=["after selection", "before selection"])
def test_every_stage_is_evaluated_with_the_weights_it_ended_with(tmp_path: Path, last: bool):
    keep, novel = KeepWeights(), evaluation(every="stage")
    callbacks = [keep, tiny_cold_start(), novel] if last else [keep, novel, tiny_cold_start()]
    tiny_trainer(tmp_path, *callbacks).fit(tiny_model(), tiny_data())
    rows = read(tmp_path / "novel_3way_1shot.csv")
    assert [row["base_classes"] for row in rows] == [str(size) for size in SCHEDULE]
    ends = [sum(EPOCHS[: stage + 1]) - 1 for stage in range(3)]
    assert [int(row["epoch"]) for row in rows] == ends
    for row, end in zip(rows, ends, strict=True):
        assert float(row["accuracy"]) == pytest.approx(accuracy_of(keep.weights[end]), abs=1e-9)
        episodes = [float(value) for value in row["episode_accuracies"].split()]
        assert len(episodes) == 12
        assert len(set(episodes)) > 1
        assert sum(episodes) / 12 == pytest.approx(float(row["accuracy"]), abs=1e-5)


def test_a_stage_that_is_stopped_early_is_evaluated_before_its_weights_are_gone(tmp_path: Path):
    stop = StageEarlyStopping(
        "train_loss", patience=0, min_delta=100.0, check_on_train_epoch_end=True
    )
    keep, novel = KeepWeights(), evaluation(every="stage")
    selection = ColdStartSelection((2, 4, 6), 6, k=2, verbose=False)
    tiny_trainer(tmp_path, keep, stop, selection, novel).fit(tiny_model(), tiny_data())
    assert [row["stage"] for row in novel.rows] == [1, 2, 3]
    assert [row["base_classes"] for row in novel.rows] == [2, 4, 6]
    assert max(keep.weights) < 17  # it did stop early
    for row in novel.rows:
        assert row["accuracy"] == pytest.approx(accuracy_of(keep.weights[row["epoch"]]), abs=1e-9)


@pytest.mark.parametrize(("every", "epochs"), [("epoch", [0, 1, 2]), ("end", [2]), ("stage", [2])])
def test_one_selection_is_one_stage(tmp_path: Path, every: str, epochs: list[int]):
    novel = evaluation(every=every)
    selection = SelectBaseClasses(m=4, k=2, verbose=False)
    trainer = tiny_trainer(tmp_path, selection, novel, max_epochs=3)
    trainer.fit(tiny_model(), tiny_data())
    assert [row["epoch"] for row in novel.rows] == epochs
    assert {row["base_classes"] for row in novel.rows} == {4}
    logged = trainer.callback_metrics["novel/NearestCentroid_3way_1shot"]
    assert float(logged) == pytest.approx(novel.rows[-1]["accuracy"], abs=1e-6)


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "16-true", "bf16-mixed"])
def test_every_precision_of_the_trainer_can_be_evaluated(tmp_path: Path, precision: Any):
    novel = evaluation(every="end")
    selection = SelectBaseClasses(m=4, k=2, verbose=False)
    options = {"precision": precision, "max_epochs": 1, "limit_train_batches": 2}
    trainer = tiny_trainer(tmp_path, selection, novel, **options)
    trainer.fit(tiny_model(), tiny_data(val_per_class=0))
    (result,) = novel.results
    assert len(result.accuracies) == 12
    assert 0 < result.mean <= 1


def test_evaluating_does_not_change_the_run(tmp_path: Path):
    weights = []
    for callbacks in ([], [evaluation(every="epoch"), evaluation(shots=2, every="epoch")]):
        model = tiny_model()
        tiny_trainer(tmp_path, tiny_cold_start(), *callbacks).fit(model, tiny_data())
        weights.append(model.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def test_checkpoints_can_be_ranked_by_novel_accuracy_and_logs_have_the_interval(tmp_path: Path):
    name = "novel/NearestCentroid_allway_2shot"
    novel = evaluation(ways=None, shots=2, queries=None, episodes=4, every="epoch")
    best = ModelCheckpoint(tmp_path, monitor=name, mode="max", filename="{epoch}")
    logger = CSVLogger(tmp_path)
    selection = SelectBaseClasses(m=4, k=2, verbose=False)
    trainer = tiny_trainer(tmp_path, selection, novel, best, logger=logger, max_epochs=3)
    trainer.fit(tiny_model(), tiny_data())
    assert float(best.best_model_score) == pytest.approx(max(r["accuracy"] for r in novel.rows))
    lines = [row for row in read(Path(logger.log_dir) / "metrics.csv") if row[name]]
    assert [float(row[f"{name}_ci95"]) for row in lines] == pytest.approx(
        [row["ci95"] for row in novel.rows], abs=1e-6
    )
    assert (Path(logger.log_dir) / "novel_allway_2shot.csv").exists()


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_resumed_run_has_the_rows_of_one_that_was_not(tmp_path: Path, stop: int):
    def fit(folder: Path, **options: Any) -> NovelEvaluation:
        saving = ModelCheckpoint(folder, save_last=True)
        novel = evaluation(every="stage")
        trainer = tiny_trainer(folder, tiny_cold_start(), novel, saving, **options)
        with pytest.warns() if "max_epochs" in options else nullcontext():
            trainer.fit(tiny_model(), tiny_data(), ckpt_path="last", weights_only=True)
        return novel

    expected = fit(tmp_path / "whole").rows
    fit(tmp_path / "halves", max_epochs=stop)
    rows = fit(tmp_path / "halves").rows
    # A run that ends in mid-stage evaluates what it has; the resumed one keeps that row.
    assert [row for row in rows if row in expected] == expected
    assert read(tmp_path / "halves" / "novel_3way_1shot.csv")[-1]["stage"] == "3"


def _fit_two(folder: Path, devices: int) -> None:
    torch.set_num_threads(1)
    heads = [NearestCentroid(), SoftmaxRegression()]
    callbacks = [
        tiny_cold_start(),
        evaluation(heads=heads, every="stage", dirpath=folder, episodes=7),
        evaluation(heads=heads, ways=None, queries=None, episodes=3, dirpath=folder),
    ]
    options: dict[str, Any] = {"devices": devices, "strategy": "ddp" if devices > 1 else "auto"}
    trainer = tiny_trainer(folder, *callbacks, **options)
    # One process sees the batches that two share, so both runs take the same steps.
    trainer.fit(_without_dropout(), tiny_data(batch_size=8 // devices))


def _without_dropout() -> Any:
    model = tiny_model(lr=0.0)  # gradients of halves and wholes differ by rounding; weights may not
    model.backbone.net[3] = torch.nn.Identity()
    model.backbone.net[1] = torch.nn.Identity()  # batch statistics of halves differ from wholes
    return model


def test_two_processes_share_the_episodes_and_agree_with_one(tmp_path: Path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        in_process(
            _fit_two,
            two,
            2,
            environment={"LOCAL_RANK": str(rank), "MASTER_PORT": port, "NODE_RANK": "0"},
        )
        for rank in range(2)
    ]
    _fit_two(one, 1)
    assert [finished(process) for process in ranks] == [0, 0]
    for name in ("novel_3way_1shot.csv", "novel_allway_1shot.csv"):
        ours, theirs = read(two / name), read(one / name)
        assert len(ours) == len(theirs) == 6
        for mine, other in zip(ours, theirs, strict=True):
            assert mine["episode_accuracies"] == other["episode_accuracies"]


def test_a_trial_run_writes_nothing(tmp_path: Path):
    novel = evaluation(every="epoch")
    selection = SelectBaseClasses(m=4, k=2, verbose=False)
    tiny_trainer(tmp_path, selection, novel, fast_dev_run=True).fit(tiny_model(), tiny_data())
    assert novel.rows[0]["episodes"] == 2
    assert not list(tmp_path.glob("**/*.csv"))


def test_a_novel_task_of_ones_own_comes_first_and_none_is_refused(tmp_path: Path):
    own = noisy_task(classes=3, seed=8)
    novel = evaluation(ways=None, queries=None, novel=own, every="end")
    selection = SelectBaseClasses(m=4, k=2, verbose=False)
    trainer = tiny_trainer(tmp_path, selection, novel, max_epochs=1)
    trainer.fit(tiny_model(), tiny_data())
    assert novel.rows[0]["ways"] == 3
    trainer = tiny_trainer(tmp_path, selection, evaluation(), max_epochs=1)
    with pytest.raises(InputError, match="Expected a novel task to evaluate on"):
        trainer.fit(tiny_model(), tiny_data(novel=None))


def test_two_evaluations_with_one_file_are_refused_and_with_two_are_fine(tmp_path: Path):
    selection = SelectBaseClasses(m=4, k=2, verbose=False)
    twice = [evaluation(every="end"), evaluation(every="end", seed=1)]
    with pytest.raises(InputError, match=r"as both write novel_3way_1shot\.csv"):
        tiny_trainer(tmp_path, selection, *twice, max_epochs=1).fit(tiny_model(), tiny_data())
    twice[1].dirpath = tmp_path / "other"
    tiny_trainer(tmp_path, selection, *twice, max_epochs=1).fit(tiny_model(), tiny_data())
    assert len(list(tmp_path.glob("**/novel_3way_1shot.csv"))) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [({"every": "week"}, "one of stage, epoch, end but got 'week'"), ({"shots": 0}, "`shots` to")],
)
def test_settings_without_sense_are_refused(options: dict, message: str):
    with pytest.raises(InputError, match=message):
        evaluation(**options)
