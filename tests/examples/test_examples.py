"""Every example runs, in a setting that takes seconds."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "examples"
GLYPHS = ["--candidates", "20", "--novel", "8", "--images", "14"]
TASKS = [*GLYPHS, "--ways", "3", "--shots", "5"]
LEARNT = 0.5  # chance is 1/3; these short trainings reach 0.65 to 0.8

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on settings of this size


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))  # as Python does for a script
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    sys.modules.pop("example_data", None)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_run_here():
    tested = Path(__file__).read_text()
    for path in FOLDER.glob("*.py"):
        assert f'"{path.stem}"' in tested, path.name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("learn2learn_protonet", ["--classes", "12", "--queries", "5", "--tasks", "60"]),
        ("learn2learn_maml", ["--classes", "12", "--iterations", "25", "--tasks", "4"]),
        ("learn2learn_anil", ["--schedule", "6", "12", "--iterations", "20", "--tasks", "4"]),
    ],
)
def test_learn2learn_experiments(name: str, words: list[str]):
    pytest.importorskip("learn2learn")
    assert LEARNT < example(name).main([*TASKS, *words]) <= 1


@pytest.mark.parametrize("algorithm", ["protonet", "anil", "maml"])
def test_learn2learns_lightning_modules(algorithm: str):
    pytest.importorskip("learn2learn")
    words = ["--algorithm", algorithm, "--schedule", "6", "12", "--epochs", "3", "--tasks", "12"]
    accuracy = example("learn2learn_lightning").main([*TASKS, "--queries", "5", *words])
    assert LEARNT < accuracy <= 1
    assert len(list(Path("runs/learn2learn").glob("selection-stage-*.json"))) == 2


def test_examples_take_omniglot(data_folder: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("learn2learn")
    monkeypatch.setenv("FSL_BASESEL_DATA", str(data_folder))
    candidates, novel = example("example_data").omniglot()
    assert (len(candidates), len(novel)) == (964, 659)
    words = ["--data", "omniglot", "--ways", "3", "--shots", "5", "--iterations", "25"]
    assert example("learn2learn_maml").main([*words, "--tasks", "4"]) > LEARNT


def test_plain_pytorch():
    words = ["--candidates", "20", "--novel", "5", "--pretraining", "5", "--classes", "5"]
    accuracies = example("plain_pytorch").main([*words, "--images", "20", "--epochs", "1"])
    assert set(accuracies) == {"random", "auto"}


def test_lightning_cli():
    words = [
        "--data.init_args.candidates=45",
        "--data.init_args.novel_classes=5",
        "--data.init_args.per_class=16",
        "--data.init_args.queries=6",
    ]
    short = ["--trainer.max_epochs=2", "--run=here", "--trainer.accelerator=cpu"]
    done = example("lightning_cli").main([*words, *short])
    assert done.trainer.current_epoch == 2
    assert Path("here/checkpoints/last.ckpt").exists()
    rows = list(Path("here").glob("**/novel_allway_5shot.csv"))
    assert len(rows) == 1
    assert "SoftmaxRegression" in rows[0].read_text()


def test_image_folder():
    module = example("image_folder")
    module.make_folder(Path("pictures"), classes=12, images=10)
    broken = next(Path("pictures").glob("*/*.png"))
    broken.write_bytes(b"no picture")
    words = ["pictures", "--novel", "4", "--classes", "4", "--queries", "4", "--epochs", "1"]
    results = module.main(words)
    assert [result.ways for result in results] == [4, 4]


def test_fit_photographs(data_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    module = example("fit_photographs")
    if not (data_folder / module.ARCHIVE).is_file():
        pytest.skip(f"real photographs not found: {data_folder / module.ARCHIVE} is no file")
    monkeypatch.setenv("FSL_BASESEL_DATA", str(data_folder))
    words = ["--only", "scratch", "--pool", "4", "--task", "2", "--images", "6"]
    assert module.main([*words, "--epochs", "1", "--schedule", "1,2", "--size", "16"]) == 0
    shown = capsys.readouterr().out
    assert "4 candidates in runs/photographs/scratch: 1 class x 1 epoch, 2 classes x 1" in shown
    assert "Difference: " in shown
    assert Path("runs/photographs/scratch/report.html").exists()
