"""`fsl-basesel fit`: runs from YAML files, resumed by the same command, errors in one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import fsl_basesel as fb
from fsl_basesel.cli import main
from lightning_modules import BaseClassifier, ColdStartSelection
from lightning_modules.cli import FitCLI

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL_GLYPHS = [
    "--data.candidates=16", "--data.novel_classes=3", "--data.pretraining=3", "--data.per_class=6",
    "--data.preview=3", "--data.shots=5", "--data.queries=1", "--data.size=8",
    "--data.batch_size=8", "--trainer.enable_progress_bar=false", "--trainer.accelerator=cpu",
    "--trainer.enable_model_summary=false",
]  # fmt: skip
SMALL_COLD_START = [
    *SMALL_GLYPHS,
    "--trainer.callbacks.schedule=[2,4]",
    "--trainer.callbacks.epochs_per_stage=1",
]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fit(config: str, *words: str) -> int:
    return main(["fit", "--config", str(CONFIGS / config), *words])


def test_a_cold_start_from_its_config_leaves_everything_in_its_folder(tmp_path: Path) -> None:
    assert fit("glyphs-cold-start.yaml", *SMALL_COLD_START) == 0
    run = tmp_path / "runs" / "glyphs-cold-start"
    found = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert {
        "selection-stage-1.json",
        "selection-stage-2.json",
        "checkpoints/last.ckpt",
        "novel_allway_5shot.csv",
        "metrics/version_0/metrics.csv",
        "metrics/version_0/config.yaml",
    } <= found
    content = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert content["callbacks"]["ColdStartSelection"]["settings"]["schedule"] == [2, 4]
    loaded = BaseClassifier.load_from_checkpoint(
        run / "checkpoints" / "last.ckpt", weights_only=True
    )
    assert loaded.head is not None
    assert loaded.head.active == 4


def test_the_same_command_resumes_and_another_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = "--trainer.max_epochs=1"
    assert fit("glyphs-cold-start.yaml", *SMALL_COLD_START, stop) == 0
    last = tmp_path / "runs" / "glyphs-cold-start" / "checkpoints" / "last.ckpt"
    assert torch.load(last, weights_only=True)["epoch"] == 0
    capsys.readouterr()
    assert fit("glyphs-cold-start.yaml", *SMALL_COLD_START, "--trainer.callbacks.k=1") == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.match(r"fsl-basesel: error: .* another one: k was 3 and is now 1\.", error)
    assert fit("glyphs-cold-start.yaml", *SMALL_COLD_START) == 0
    assert torch.load(last, weights_only=True)["epoch"] == 1
    versions = sorted(path.name for path in (last.parents[1] / "metrics").iterdir())
    assert versions[0] == "version_0"
    assert len(versions) == 3
    assert fit("glyphs-cold-start.yaml", *SMALL_COLD_START, "--ckpt-path=none", stop) == 0
    newest = max(last.parent.glob("last*.ckpt"), key=lambda path: path.stat().st_mtime)
    assert torch.load(newest, weights_only=True)["epoch"] == 0


def test_selection_by_a_model_that_was_trained_before(tmp_path: Path) -> None:
    once = "--trainer.max_epochs=1"
    assert fit("glyphs-pretrain.yaml", *SMALL_GLYPHS, once) == 0
    assert fit("glyphs-pretrained.yaml", *SMALL_GLYPHS, once, "--trainer.callbacks.m=3") == 0
    whitened = ("--trainer.callbacks.m=3", "--trainer.callbacks.similarity=whitened")
    assert fit("glyphs-general.yaml", *SMALL_GLYPHS, once, *whitened) == 0
    task = fb.Selection.load(tmp_path / "runs" / "glyphs-pretrained" / "selection-stage-1.json")
    general = fb.Selection.load(tmp_path / "runs" / "glyphs-general" / "selection-stage-1.json")
    assert task.method == "greedy-target"
    assert task.hyperparameters["n_novel"] == 3
    assert general.hyperparameters["n_novel"] == 16
    assert task.hyperparameters["similarity"] == "cosine"
    assert general.hyperparameters["similarity"] == "whitened"


def pictures(folder: Path, classes: int, count: int, tint: int = 0) -> None:
    rng = np.random.default_rng(tint)
    for number in range(classes):
        (folder / f"{folder.name} {number}").mkdir(parents=True)
        for item in range(count):
            pixels = rng.integers(0, 255, (9, 9, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{folder.name} {number}" / f"{item}.png")


SMALL_FOLDER = [
    "--data.size=8", "--data.shots=5", "--data.queries=1", "--data.batch_size=4",
    "--data.num_workers=0", "--model.backbone=conv3", "--model.in_channels=3",
    "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false",
    "--trainer.enable_model_summary=false", "--trainer.limit_train_batches=1",
]  # fmt: skip


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    pictures(tmp_path / "data" / "pool", 5, 6)
    pictures(tmp_path / "data" / "task", 2, 6, tint=1)
    config = yaml.safe_load((CONFIGS / "image-folder.yaml").read_text())
    config["trainer"]["callbacks"][1]["init_args"] |= {"schedule": [2, 3], "epochs_per_stage": 1}
    Path("own.yaml").write_text(yaml.safe_dump(config))
    words = [*SMALL_FOLDER, "--data.val_per_class=1", "--data.augment.padding=2"]
    assert main(["fit", "--config", "own.yaml", *words]) == 0
    assert (tmp_path / "runs" / "image-folder" / "selection-stage-2.json").exists()


def test_labelling_stops_with_a_message_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures(tmp_path / "data" / "previews", 4, 3)
    pictures(tmp_path / "data" / "task", 2, 6, tint=1)
    words = [
        *SMALL_FOLDER, "--data.needed=3",
        "--trainer.callbacks.schedule=[1,2]", "--trainer.callbacks.epochs_per_stage=1",
    ]  # fmt: skip
    for _ in range(2):
        assert fit("labelling.yaml", *words) == 75
        error = capsys.readouterr().err
        assert "fsl-basesel: 1 chosen class(es) wait for their images" in error
        assert "Traceback" not in error
        waiting = yaml.safe_load(Path("runs/labelling/classes-to-label.json").read_text())
        (entry,) = waiting["waiting"]
        folder = Path(entry["folder"])
        folder.mkdir(parents=True)
        for item in range(3):
            Image.new("RGB", (9, 9), (40 * item, 9, 9)).save(folder / f"{item}.png")
    assert fit("labelling.yaml", *words) == 0


# Every config is at least read, and its classes and arguments are those there are


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_is_valid_and_says_how_to_run_it(path: Path, monkeypatch: Any) -> None:
    text = path.read_text()
    assert f"fsl-basesel fit --config configs/{path.name}" in text
    monkeypatch.setattr(FitCLI, "instantiate_classes", lambda self: None)
    command = FitCLI(["--config", str(path)])
    assert command.config["run"] == f"runs/{path.stem}"
    data = command.config["data"]["init_args"]
    assert data["batch_size"] == 64


def test_the_papers_configs_have_the_papers_settings(monkeypatch: Any) -> None:
    monkeypatch.setattr(FitCLI, "instantiate_classes", lambda self: None)
    for name, queries in (("imagenet", 100), ("caltech256", 50), ("cub", 40)):
        config = FitCLI(["--config", str(CONFIGS / f"{name}.yaml")]).config
        data, model = config["data"]["init_args"], config["model"]["init_args"]
        assert (data["candidate_classes"], data["novel_classes"]) == (400, 100)
        assert (data["preview"], data["queries"]) == (50, queries)
        assert (model["backbone"], model["lr"], model["momentum"]) == ("resnet18", 0.1, 0.9)
        assert list(model["milestones"]) == [25, 50, 80, 105]
        assert config["trainer"]["max_epochs"] == 120
    config = FitCLI(["--config", str(CONFIGS / "imagenet-cold-start.yaml")]).config
    _, callback = config["trainer"]["callbacks"]
    assert callback["init_args"]["schedule"] == [6, 12, 25, 50, 100]
    assert callback["init_args"]["epochs_per_stage"] == 120


def test_optimizer_and_schedule_from_yaml_are_made_anew_in_every_stage(tmp_path: Path) -> None:
    config = yaml.safe_load((CONFIGS / "glyphs-cold-start.yaml").read_text())
    config["model"]["init_args"] |= {
        "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}},
        "lr_scheduler": {
            "class_path": "torch.optim.lr_scheduler.ExponentialLR",
            "init_args": {"gamma": 0.1},
        },
    }
    Path("own.yaml").write_text(yaml.safe_dump(config))
    command = FitCLI(["--config", "own.yaml", *SMALL_COLD_START])
    command.fit()
    (optimizer,) = command.trainer.optimizers
    assert isinstance(optimizer, torch.optim.AdamW)
    # One epoch of the last stage: the rate fell once, not once for each epoch of the run.
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.001)
    assert isinstance(command.trainer.callbacks[1], ColdStartSelection)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.domain=foo"], r"`domain` to be one of plain, transfer, fine but got 'foo'"),
        (["--data.candidats=3"], r"got data.candidats; did you mean data.candidates\?"),
        (["--trainer.callbacks.schedule=[6,5]"], "`schedule` to be rising numbers of classes"),
        (["--trainer.callbacks.method=best"], "`method` to be one of auto, paper"),
        (["--trainer.epochs=3"], "trainer.epochs"),
        (["--config=nosuch.yaml"], "nosuch.yaml"),
    ],
)
def test_errors_are_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit("glyphs-cold-start.yaml", *SMALL_COLD_START, *words) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert lines[0].startswith("fsl-basesel: error: ")
    assert re.search(message, lines[0])


def test_help_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "usage: fsl-basesel fit" in shown
    assert "--run DIR" in shown
    assert "--trainer.max_epochs" not in shown


def test_all_help_has_the_options_of_lightning_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--help-all"]) == 0
    shown = capsys.readouterr().out
    assert "--backbone NAME" in shown
    assert "--trainer.max_epochs" in shown
