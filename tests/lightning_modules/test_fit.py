"""`fsl-basesel fit` on folders: without a YAML file, killed and taken up, errors of one line."""

from __future__ import annotations

import csv
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from PIL import Image

import fsl_basesel as fb
from fsl_basesel.cli import fit as flags
from fsl_basesel.cli import main
from fsl_basesel.data import glyphs
from lightning_modules import (
    BaseClassDataModule,
    ColdStartSelection,
    NovelEvaluation,
    cli,
    found,
)
from lightning_modules.data import batch_count
from lightning_modules.settings import callbacks_of
from tests.lightning_modules.photographs import photographs
from tests.lightning_modules.runs import die, finished, in_process
from tests.test_docs import blocks

QUICK = ["--trainer.enable_progress_bar=false", "--trainer.accelerator=cpu"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def pictures(folder: str, classes: int, count: int, mode: str = "RGB", side: int = 12) -> None:
    """Classes that differ in brightness and in a pattern of their own."""
    rng = np.random.default_rng(len(folder))
    for number in range(classes):
        path = Path(folder) / f"{Path(folder).name}-{number}"
        path.mkdir(parents=True)
        pattern = rng.integers(0, 255, (side, side, 3))
        for item in range(count):
            noise = rng.integers(-60, 60, (side, side, 3))
            pixels = np.clip(pattern + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).convert(mode).save(path / f"{item}.png")


def settings(*words: str) -> dict[str, Any]:
    return cli.settings_of(flags.parse(list(words))[0])


def selection(of: dict[str, Any]) -> dict[str, Any]:
    (chosen,) = callbacks_of(of, "selection")
    return chosen["init_args"]


# What is found out


@pytest.mark.parametrize(
    ("classes", "expected"),
    [(1, [1]), (2, [1]), (9, [4]), (30, [3, 7, 15]), (100, [6, 12, 25, 50, 100])],
)
def test_the_schedule_follows_the_size_of_the_pool(classes: int, expected: list[int]) -> None:
    pictures("pool", classes, 1, side=8)
    assert selection(settings("pool"))["schedule"] == expected


def test_size_channels_shots_and_network_follow_the_images() -> None:
    pictures("pool", 4, 3, mode="L", side=20)
    pictures("task", 2, 7, side=20)
    made = settings("pool", "--novel", "task")
    data = made["data"]["init_args"]
    assert (data["size"], data["channels"], data["shots"], data["queries"]) == (20, 1, 3, 4)
    assert made["model"]["init_args"]["in_channels"] == 1
    pictures("photos", 4, 3, side=90)
    made = settings("photos")
    assert (made["data"]["init_args"]["size"], made["data"]["init_args"]["channels"]) == (64, 3)


def test_flags_go_before_yaml_and_yaml_before_what_is_found_out() -> None:
    pictures("pool", 6, 3)
    mine = {
        "data": {"init_args": {"size": 10, "batch_size": 5}},
        "trainer": {"callbacks": [{"class_path": found.COLD_START, "init_args": {"k": 2}}]},
    }
    Path("mine.yaml").write_text(yaml.safe_dump(mine))
    made = settings("pool", "--config", "mine.yaml", "--size", "9", "-k", "1", "--seed", "4")
    assert made["data"]["init_args"]["size"] == 9
    assert made["data"]["init_args"]["batch_size"] == 5
    assert made["data"]["init_args"]["channels"] == 3
    assert selection(made) == {"k": 1, "seed": 4}
    assert settings("pool", "--config", "mine.yaml")["data"]["init_args"]["size"] == 10
    assert selection(settings("pool", "--config", "mine.yaml"))["k"] == 2
    assert selection(settings("pool", "-m", "5"))["schedule"] == [5]
    assert selection(settings("pool", "--similarity", "whitened"))["similarity"] == "whitened"
    assert selection(settings("pool", "--schedule", "2,4", "--epochs", "7")) == {
        "schedule": [2, 4], "epochs_per_stage": 7,
    }  # fmt: skip
    once = settings("pool", "--backbone", "efficientnet-lite0", "-m", "2", "--epochs", "4")
    assert selection(once) == {"extractor": "efficientnet-lite0", "m": 2}
    assert once["trainer"]["max_epochs"] == 4
    assert once["model"]["init_args"]["backbone"] == "efficientnet-lite0"
    scratch = settings("pool", "--backbone", "efficientnet-lite0", "--train", "scratch")
    assert scratch["model"]["init_args"]["backbone"] == "resnet8"


# Runs


def test_folders_alone_are_enough_and_everything_is_in_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pictures("pool", 6, 8)
    pictures("task", 3, 8)
    words = ["fit", "pool", "--novel", "task", "--epochs", "1", "--schedule", "2,3", *QUICK]
    assert main([*words, "--control", "random"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"6 candidates in runs/fit: 2 classes x 1 epoch, 3 .*; about \d+ ", shown)
    assert re.search(r"First batch after [\d.]+ seconds\n", shown)
    assert re.search(r"Novel task, chosen classes: NearestCentroid, 3-way 4-shot: [\d.]+ ±", shown)
    assert re.search(r"Difference: [+-][\d.]+ ± [\d.]+ points", shown)
    run = Path("runs/fit")
    assert {"report.html", "selection-stage-2.json", "results.csv", "novel_allway_4shot.csv"} <= {
        path.name for path in run.iterdir()
    }
    random = fb.Selection.load(run / "control-random" / "selection-stage-1.json")
    assert (random.method, len(random.indices)) == ("random", 3)
    with open(run / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["Random"] * 10 + ["chosen classes"] * 10
    assert {row["m"] for row in rows} == {"3"}
    assert "Random" in (run / "report.html").read_text()
    # The last line is what `trainer.test` says.
    command = cli.build(cli.settings_of(flags.parse(words[1:])[0]))
    command.model.on_load_checkpoint(_checkpoint(run))  # type: ignore[operator]
    command.model.load_state_dict(_checkpoint(run)["state_dict"])
    (logged,) = command.trainer.test(command.model, command.datamodule, verbose=False)
    means = [float(row["accuracy"]) for row in rows[10:]]
    assert logged["test_accuracy"] == pytest.approx(np.mean(means), abs=1e-6)


def test_a_control_has_as_many_images_and_sees_them_as_often(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pictures("pool", 8, 12)
    pictures("task", 3, 8)
    few = [Path("pool") / f"pool-{number}" for number in range(8)]
    for folder in few[4:]:  # they have 3 pictures, others 12
        for item in range(3, 12):
            (folder / f"{item}.png").unlink()
    words = ["fit", "pool", "--novel", "task", "--epochs", "2", "--schedule", "1,4", *QUICK]
    words += ["--control", "random", "--data.batch_size=2"]
    for seed in range(3):
        run = Path(f"run-{seed}")
        assert main([*words, "--run", str(run), "--seed", str(seed)]) == 0
        shown = capsys.readouterr().out
        images = _images(run / "selection-stage-1.json", run / "selection-stage-2.json")
        theirs = min(images, _images(run / "control-random" / "selection-stage-1.json"))
        found = f"Training images: {images} of the chosen classes"
        more = ", as many of the" if theirs == images else f", but only {theirs} of the"
        assert f"{found}{more} control" in shown
        steps = _checkpoint(run / "control-random")["global_step"]
        assert steps == 2 * batch_count(images, 2, 1)


def test_a_control_with_more_images_is_cut_to_as_many(capsys: pytest.CaptureFixture[str]) -> None:
    """The choice is the two classes like those of the task, which have fewer pictures."""
    pictures("pool", 8, 12)
    pictures("task", 2, 12)
    for number in range(2):
        shutil.rmtree(f"pool/pool-{number}")
        Path(f"pool/pool-{number}").mkdir()
        for item in range(4):
            shutil.copy(f"task/task-{number}/{item}.png", f"pool/pool-{number}/{item}.png")
    own = {"class_path": found.ONCE, "init_args": {"m": 2}}
    own = {"trainer": {"max_epochs": -1, "max_steps": 5, "callbacks": [own]}}
    Path("own.yaml").write_text(yaml.safe_dump(own))
    words = ["fit", "pool", "--novel", "task", "--config", "own.yaml", *QUICK]
    words += ["--backbone", "efficientnet-lite0", "--control", "random", "--data.val_per_class=1"]
    assert main([*words, "--train", "scratch", "--data.batch_size=2"]) == 0
    shown = capsys.readouterr().out
    assert sorted(fb.Selection.load("runs/fit/selection-stage-1.json").names) == [
        "pool-0",
        "pool-1",
    ]
    assert _images(Path("runs/fit/control-random/selection-stage-1.json")) > 8
    assert "Training images: 6 of the chosen classes, as many of the control" in shown
    for run in (Path("runs/fit"), Path("runs/fit/control-random")):
        assert _checkpoint(run)["global_step"] == 5
    again = ["--run", "frozen", "--train", "frozen", "--trainer.callbacks.k=1"]
    assert main([*words, *again]) == 0
    assert "Training images: 8 of the chosen classes, as many" in capsys.readouterr().out


def test_a_control_writes_to_its_own_folder_and_knows_the_models_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures("pool", 4, 4)
    pictures("task", 2, 6)
    (model,) = (block for block in blocks(PAGE, "python") if "class Mine" in block)
    Path("other_model.py").write_text(model.replace("features", "embed"))
    monkeypatch.syspath_prepend(".")
    callbacks = [
        {"class_path": found.ONCE, "init_args": {"m": 2, "features": "embed", "dirpath": "one"}},
        {
            "class_path": found.EVALUATION,
            "init_args": {"shots": 3, "features": "embed", "dirpath": "two"},
        },
        {
            "class_path": "pytorch_lightning.callbacks.ModelCheckpoint",
            "init_args": {"dirpath": "three", "filename": "last", "enable_version_counter": False},
        },
    ]
    own = {"model": {"class_path": "other_model.Mine"}, "trainer": {"callbacks": callbacks}}
    Path("own.yaml").write_text(yaml.safe_dump(own))
    words = ["fit", "pool", "--novel", "task", "--config", "own.yaml", *QUICK]
    words += ["--trainer.max_epochs=1", "--backbone", "efficientnet-lite0", "--train", "scratch"]
    kept = []
    for control in ([], ["--control", "random"]):
        assert main([*words, "--run", f"run-{len(control)}", "--ckpt-path", "none", *control]) == 0
        kept.append(torch.load("three/last.ckpt", weights_only=True)["state_dict"])
    assert all(torch.equal(value, kept[1][name]) for name, value in kept[0].items())
    assert fb.Selection.load("one/selection-stage-1.json").method == "auto"
    assert Path("one/report.html").is_file()
    own_files = Path("run-2/control-random")
    assert (own_files / "selection-stage-1.json").is_file()
    assert _checkpoint(own_files)["global_step"] > 0


def test_a_run_without_a_control_leaves_no_results_of_another() -> None:
    pictures("pool", 4, 4)
    pictures("task", 2, 6)
    words = ["fit", "pool", "--novel", "task", "--schedule", "2", "--epochs", "1", *QUICK]
    assert main([*words, "--control", "random"]) == 0
    assert 'class="comparison"' in Path("runs/fit/report.html").read_text()
    assert main([*words, "--seed", "1", "--ckpt-path", "none"]) == 0
    assert not Path("runs/fit/results.csv").exists()
    assert 'class="comparison"' not in Path("runs/fit/report.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--schedule", "1,2"], r"a novel task \(--novel\) for --control random"),
        (["--novel", "task", "--label", "labelled"], "without --label, as people would"),
        (["--novel", "task", "--trainer.callbacks.warm_start=true"], "no warm_start"),
        (["--novel", "task", "--trainer.callbacks.k", "2"], "and no --trainer.callbacks.k for"),
        (["--novel", "task", "--trainer.max_epochs=2"], "and not by trainer.max_epochs for"),
        (["--novel", "task", "--trainer.max_steps=9"], "and not by trainer.max_steps for"),
    ],
)
def test_a_control_that_would_not_be_fair_is_refused_before_any_training(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures("pool", 3, 3)
    pictures("task", 2, 4)
    assert main(["fit", "pool", "--control", "random", *words, *QUICK]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert "for --control random; change that or leave it out." in error
    assert not Path("runs/fit/checkpoints").exists()


def _images(*selections: Path) -> int:
    """Pictures of the classes that were chosen."""
    names = [name for path in selections for name in fb.Selection.load(path).names]
    return sum(len(list((Path("pool") / name).iterdir())) for name in names)


def test_a_control_keeps_to_the_limits_of_the_choice(capsys: pytest.CaptureFixture[str]) -> None:
    pictures("pool", 6, 4)
    pictures("task", 2, 6)
    limits = {"exclude": ["pool-0", "pool-1"], "selected": ["pool-5"], "m": 2}
    own = {"class_path": found.ONCE, "init_args": limits}
    Path("own.yaml").write_text(yaml.safe_dump({"trainer": {"callbacks": [own]}}))
    for seed in range(3):
        words = ["--config", "own.yaml", "--control", "random", "--seed", str(seed), *QUICK]
        run = Path(f"run-{seed}")
        words += ["--run", str(run), "--backbone", "efficientnet-lite0", "--train", "scratch"]
        assert main(["fit", "pool", "--novel", "task", "-m", "2", "--epochs", "1", *words]) == 0
        random = fb.Selection.load(run / "control-random" / "selection-stage-1.json")
        assert len(random.names) == 3
        assert "pool-5" in random.names
        assert not {"pool-0", "pool-1"} & set(random.names)


def _checkpoint(run: Path, name: str = "last") -> dict[str, Any]:
    return torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)


def _killed_at(words: list[str], epoch: int) -> None:
    """Run the command and die in an epoch."""
    import lightning_modules.classifier as classifier

    original = classifier.BaseClassifier.training_step

    def dying(self: Any, batch: Any, batch_idx: int) -> Any:
        if self.current_epoch == epoch and batch_idx == 1:
            die()
        return original(self, batch, batch_idx)

    if epoch >= 0:
        classifier.BaseClassifier.training_step = dying  # type: ignore[method-assign]
    torch.set_num_threads(1)
    assert main(words) == 0


@pytest.mark.parametrize("more", [[], ["--backbone", "efficientnet-lite0", "-m", "3"]])
def test_real_photographs_killed_and_taken_up_to_the_same_weights(
    data_folder: Path, tmp_path: Path, more: list[str]
) -> None:
    photographs(data_folder, tmp_path, pool=8, task=3, images=12)
    words = ["fit", "pool", "--novel", "task", "--epochs", "2", "--size", "32", *QUICK, *more]
    words += [] if more else ["--schedule", "2,4"]
    words += ["--data.batch_size=8"]
    assert finished(in_process(_killed_at, [*words, "--run", "whole"], -1)) == 0
    assert finished(in_process(_killed_at, [*words, "--run", "killed"], 1)) == -signal.SIGKILL
    assert finished(in_process(_killed_at, [*words, "--run", "killed"], -1)) == 0
    whole, killed = _checkpoint(Path("whole")), _checkpoint(Path("killed"))
    assert whole["state_dict"].keys() == killed["state_dict"].keys()
    for name, tensor in whole["state_dict"].items():
        assert torch.equal(tensor, killed["state_dict"][name]), name
    assert _checkpoint(Path("killed"), "previous")["epoch"] == whole["epoch"] - 1


def test_frozen_features_train_nothing_and_are_repeatable(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photographs(data_folder, tmp_path, pool=6, task=3, images=8)
    words = ["fit", "pool", "--novel", "task", "--backbone", "efficientnet-lite0", "-m", "3"]
    words += ["--train", "frozen", "--control", "random"]
    for number, folder in enumerate(sorted(Path("pool").iterdir())):  # 3 to 8 pictures
        for path in sorted(folder.iterdir())[:number]:
            path.unlink()
    results = []
    for _ in range(2):
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert "WhitenedCentroid, 3-way 4-shot" in shown
        assert re.search(r"Training images: \d+ of the chosen classes, (as many|but only)", shown)
        results.append(Path("runs/fit/results.csv").read_text())
    assert results[0] == results[1]
    assert not Path("runs/fit/checkpoints").exists()
    assert len(fb.Selection.load("runs/fit/selection-stage-1.json").names) == 3
    assert all(Path("runs/fit", name).is_file() for name in ("classes-stage-1.npz", "pictures.npz"))
    assert "mean of 100 random choices" in Path("runs/fit/report.html").read_text()
    assert main([*words, "-k", "1"]) == 2
    assert "k was 3 and is now 1" in capsys.readouterr().err
    assert main([*words, "--data.seed=1"]) == 2  # options of Lightning count too
    assert "data seed was 0 and is now 1" in capsys.readouterr().err


def test_another_pool_in_the_same_run_is_refused_with_the_way_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for folder in ("pool", "other"):
        pictures(folder, 4, 4)
    words = ["--schedule", "1,2", "--epochs", "1", *QUICK]
    assert main(["fit", "pool", *words]) == 0
    assert main(["fit", "other", *words]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(
        r"of another one: pool was .* another folder with --run; --ckpt-path none", error
    )
    assert main(["fit", "other", *words, "--run", "runs/other"]) == 0


def test_people_label_between_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    pictures("previews", 5, 3)
    pictures("task", 2, 6)
    words = ["fit", "previews", "--novel", "task", "--label", "labelled", "--needed", "3"]
    words += ["--schedule", "1,3", "--epochs", "1", *QUICK]
    for expected in (1, 2):
        assert main(words) == 75
        assert f"{expected} chosen class(es) wait" in capsys.readouterr().err
        queue = yaml.safe_load(Path("runs/fit/classes-to-label.json").read_text())
        assert len(queue["waiting"]) == expected
        page = Path("runs/fit/report.html").read_text()
        assert f"The run waits for images of {expected} class" in page
        for entry in queue["waiting"]:
            assert entry["folder"].startswith("labelled")
            # Its preview picture and where its images go.
            shown = rf'aria-label="{entry["class"]}"[^>]* style="--c:\d+;--r:\d+">'
            assert re.search(rf"{shown}</span><span>.*?<code>{entry['folder']}</code>", page)
            Path(entry["folder"]).mkdir(parents=True)
            for item in range(3):
                Image.new("RGB", (12, 12), (70 * item, 9, 9)).save(f"{entry['folder']}/{item}.png")
    assert main(words) == 0
    assert "The run waits" not in Path("runs/fit/report.html").read_text()


# Models of one's own

PAGE = Path(__file__).parents[2] / "docs" / "lightning.md"


def test_a_model_of_ones_own_in_yaml(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures("pool", 4, 4)
    pictures("task", 2, 6)
    (model,) = (block for block in blocks(PAGE, "python") if "class Mine" in block)
    assert len([line for line in model.splitlines() if line]) <= 20
    (own,) = blocks(PAGE, "yaml")
    Path("own_model.py").write_text(model)
    Path("own.yaml").write_text(own)
    monkeypatch.syspath_prepend(".")
    words = ["fit", "pool", "--novel", "task", "--config", "own.yaml", "--epochs", "1", *QUICK]
    assert main(words) == 0
    assert "Novel task: NearestCentroid, 2-way 3-shot" in capsys.readouterr().out
    # The same model in Python, after the first snippet of the page.
    (code,) = (block for block in blocks(PAGE, "python") if "import Mine" in block)
    pool, novel = glyphs(
        candidates=14, novel=3, per_class=6, preview=3, size=12, shots=5, queries=1
    )
    names = {"pl": pl, "ColdStartSelection": ColdStartSelection, "NovelEvaluation": NovelEvaluation}
    exec(code, names | {"dm": BaseClassDataModule(pool, novel)})
    Path("own.yaml").write_text("model:\n  class_path: torch.nn.Linear\n")
    assert main([*words, "--run", "x"]) == 2


# Errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pool", "--epoch", "3"], "a flag of `fit` but got '--epoch'; did you mean --epochs?"),
        ([], "a folder of pictures or --config"),
        (["nosuch"], "nosuch"),
        (["pool", "--config", "nosuch.yaml"], "nosuch.yaml"),
        (["pool", "-m", "9"], r"-m from 1 to 3, the classes of pool, but got 9"),
        (["pool", "-m", "0"], r"-m from 1 to 3, the classes of pool, but got 0"),
        (["pool", "--seed", "-1"], "`--seed` to be at least 0"),
        (["pool", "--data.batch_size=x"], "Expected data.batch_size to be int but got 'x'"),
        (["pool", "--trainer.max_epochs=x"], "Expected trainer.max_epochs to be int but got 'x'"),
        (["pool", "--config", "class.yaml"], "did you mean lightning_modules.BaseClassifier?"),
        (["pool", "--schedule", "a,b"], "numbers of classes, as in 6,12,25, but got 'a,b'"),
        (["pool", "--schedule", "2,1"], "rising numbers of classes"),
        (["pool", "--similarity", "euclid"], "`similarity` of cosine, centred, whitened or a"),
        (["pool", "--train", "frozen"], "--train frozen with --backbone but got none"),
        (["pool", "--train", "all"], "invalid choice: 'all'"),
        (["pool", "--data.batchsize=3"], r"got data.batchsize; did you mean data.batch_size\?"),
        (["pool", "--model.lrr=3"], r"got model.lrr; did you mean model.lr\?"),
        (["pool", "--trainer.max_epoch=3"], r"did you mean trainer.max_epochs\?"),
        (["pool", "--trainer.callbacks.schedul=3"], r"did you mean trainer.callbacks.schedule\?"),
        (["pool", "--config", "bad.yaml"], r"of ImageFolderDataModule but got data.pathh; did you"),
        (["pool", "--backbone", "efficientnet-lite9"], "efficientnet-lite"),
        (["pool", "--backbone", "weights.pth"], "architecture"),
        (
            ["pool", "--backbone", "nosuch.ckpt"],
            "nosuch.ckpt to be a whole .* but it does not exist",
        ),
        (["pool", "--backbone", "bad.ckpt"], "bad.ckpt to be a whole checkpoint but it cannot"),
    ],
)
def test_errors_are_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures("pool", 3, 3)
    Path("bad.yaml").write_text("data: {init_args: {pathh: x}}")
    Path("class.yaml").write_text("model: {class_path: lightning_modules.BaseClassifer}")
    Path("bad.ckpt").write_bytes(b"PK\x03\x04\xff\xfe")
    assert main(["fit", *words, *QUICK]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert lines[0].startswith(("fsl-basesel: error: ", "fsl-basesel fit: error: "))
    assert re.search(message, lines[0])
    assert len(lines[0]) < 420
