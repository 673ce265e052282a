"""From folders of real photographs to a certified choice, by one command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import fsl_basesel as fb
from fsl_basesel.cli import main
from fsl_basesel.files.classes import read_classes

ROOT = Path(__file__).parents[3]
LAST_ANIMAL = "n02510455"
PER_CLASS = 12
SMALL = ("--size", "64", "--per-class", "10")


@pytest.fixture(scope="session")
def photos(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of JPEGs: pool has 12 kinds of animals and 12 of things, task 6 other animals."""
    path = data_folder / "tinyimagenet_train100.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    root = tmp_path_factory.mktemp("photos")
    with np.load(path) as packed:
        names, labels, offset = packed["class_name"], packed["label"], packed["offset"]
        content = packed["jpeg"].tobytes()
    animals = [i for i, name in enumerate(names) if name.split()[0] <= LAST_ANIMAL]
    things = [i for i, name in enumerate(names) if name.split()[0] > LAST_ANIMAL]
    sides = {"pool": [*animals[0:36:3], *things[0:36:3]], "task": animals[1:36:6]}
    for side, classes in sides.items():
        for number in classes:
            folder = root / side / names[number].split(",")[0].replace(" ", "-")
            folder.mkdir(parents=True)
            for item in np.flatnonzero(labels == number)[:PER_CLASS]:
                data = content[offset[item] : offset[item + 1]]
                (folder / f"{item}.jpeg").write_bytes(data)
    return root


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(tmp_path / "cache"))


def is_animal(name: str) -> bool:
    return name.split("-")[0] <= LAST_ANIMAL


def test_one_command_from_photographs_to_a_report(run, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "chosen"
    words = (photos / "pool", "--novel", photos / "task", "-m", 6, "-k", 1, "--report", folder)
    result = run("select", *words, *SMALL)
    assert result.code == 0, result.err
    assert result.err == ""
    assert re.search(r"random  0\.\d+  mean of 100 random choices; best 0\.\d+", result.out)
    assert re.search(r"worth   [\d.]+ % of the way from random choices to the bound", result.out)
    assert f"Report: {folder}/report.html" in re.sub(r"\s+", " ", result.out)
    selection = fb.Selection.load(folder / "selection.json")
    assert sum(map(is_animal, selection.names)) >= 5  # animals are the task
    assert selection.gap is not None
    assert selection.gap < 1e-3
    assert selection.hyperparameters["backbone"] == "efficientnet-lite0"
    assert "crop 64" in selection.hyperparameters["preprocessing"]
    assert selection.hyperparameters["similarity"] == "cosine"
    page = (folder / "report.html").read_text()
    assert all(name in page for name in selection.names)
    assert {"classes-stage-1.npz", "pictures.npz"} <= {path.name for path in folder.iterdir()}
    before = (folder / "selection.json").read_bytes()
    assert run("report", folder).code == 0
    assert (folder / "selection.json").read_bytes() == before


def test_the_second_call_takes_its_features_from_the_cache(run, photos: Path) -> None:
    words = ("select", photos / "pool", "--novel", photos / "task", "-m", 4, "-k", 1, *SMALL)
    first = json.loads(run(*words, "--format", "json").out)
    dry = run(*words, "--dry-run")
    assert re.search(r"candidates +24 +240 +240 ", dry.out)
    assert re.search(r"novel +6 +60 +60 ", dry.out)
    assert json.loads(run(*words, "--format", "json").out)["names"] == first["names"]


def test_half_precision_chooses_the_same(run, photos: Path) -> None:
    words = ("select", photos / "pool", "--novel", photos / "task", "-m", 4, "-k", 1, *SMALL)
    one, two = (
        run(*words, "--format", "txt", "--precision", precision).out
        for precision in ("float32", "bfloat16")
    )
    assert sorted(one.splitlines()) == sorted(two.splitlines())


def test_a_file_of_features_and_a_folder_go_together(run, photos: Path, tmp_path: Path) -> None:
    pool = tmp_path / "pool.npz"
    made = run("embed", photos / "pool", "--out", pool, *SMALL)
    assert made.code == 0, made.err
    assert "24 classes, 240 images, 1280 dimensions by efficientnet-lite0" in made.out
    classes = read_classes(pool)
    assert classes.images is not None
    assert classes.images.tolist() == [10] * 24
    words = ("--novel", photos / "task", "-m", 4, "-k", 1, "--format", "txt", *SMALL)
    assert run("select", pool, *words).out == run("select", photos / "pool", *words).out
    other = ("--backbone", "torchvision:resnet18@random")
    refused = run("select", pool, *words, *other)
    assert refused.code == 2
    assert "from one backbone but got efficientnet-lite0 and torchvision" in refused.err


def test_features_of_every_image(run, photos: Path, tmp_path: Path) -> None:
    run("embed", photos / "task", "--out", tmp_path / "means.npz", *SMALL)
    made = run("embed", photos / "task", "--out", tmp_path / "all.npz", "--all", *SMALL)
    assert made.code == 0, made.err
    one, two = read_classes(tmp_path / "means.npz"), read_classes(tmp_path / "all.npz")
    assert one.names == two.names
    np.testing.assert_allclose(one.values, two.values, rtol=1e-5, atol=1e-6)


def test_links_lists_and_folders_of_the_chosen_classes(run, photos: Path, tmp_path: Path) -> None:
    out, links = tmp_path / "chosen.txt", tmp_path / "links"
    words = ("select", photos / "pool", "--novel", photos / "task", "-m", 3, "-k", 1, *SMALL)
    result = run(*words, "--out", out, "--link", links)
    assert result.code == 0, result.err
    names = out.read_text().splitlines()
    assert sorted(path.name for path in links.iterdir()) == sorted(names)
    for name in names:
        assert (links / name).is_symlink()
        assert len(list((links / name).glob("*.jpeg"))) == PER_CLASS
    assert run(*words, "--format", "txt").out.splitlines() == names
    more = run(*words, "--selected", out, "--format", "txt").out.splitlines()
    assert not set(more) & set(names)
    again = run(*words, "--link", links)
    assert again.code == 2
    assert "--link to be a new folder" in again.err
    chosen = fb.data.chosen_folder(photos / "pool", names)
    assert (len(chosen), chosen.classes) == (3 * PER_CLASS, names)


def test_a_network_of_one_size_refuses_another_in_one_line(run, photos: Path) -> None:
    words = ("select", photos / "pool", "--novel", photos / "task", "-m", 4, "-k", 1, *SMALL)
    result = run(*words, "--backbone", "timm:vit_tiny_patch16_224@random")
    assert (result.code, result.out) == (2, "")
    assert "to take images of 64 pixels but it cannot" in result.err
    assert "leave --size out" in result.err


def test_the_task_may_be_a_list_of_names(run, photos: Path, tmp_path: Path) -> None:
    """With a network that knows text; each side is centred on its own mean."""
    open_clip = pytest.importorskip("open_clip")
    tower = {"layers": 1, "width": 64}
    config = {
        "embed_dim": 32,
        "vision_cfg": {"image_size": 32, "patch_size": 16, "head_width": 32, **tower},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "heads": 2, **tower},
    }
    (tmp_path / "tiny-names.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "tiny-names.json")
    (tmp_path / "names.txt").write_text("lion\nbald eagle\n\nking crab\n")
    words = ("select", photos / "pool", "--novel", tmp_path / "names.txt", "-m", 3, "-k", 1)
    options = ("--similarity", "centred", "--centre", "each", "--per-class", 2)
    out = tmp_path / "chosen.json"
    result = run(*words, *options, "--backbone", "open_clip:tiny-names@random", "--out", out)
    assert result.code == 0, result.err
    served = [name for row in fb.Selection.load(out).explain().chosen for name in row.serves]
    assert sorted(served) == ["bald eagle", "king crab", "lion"]
    refused = run(*words, *options, "--backbone", "torchvision:resnet18@random", "--size", 64)
    assert refused.code == 2
    assert "Expected a backbone that knows text" in refused.err


def test_an_untrained_network_is_doubted(run, photos: Path) -> None:
    words = ("select", photos / "pool", "--novel", photos / "task", "-m", 4, "-k", 1, *SMALL)
    result = run(*words, "--backbone", "torchvision:resnet18@random")
    assert result.code == 0
    assert "note: the network has random weights" in result.err
    assert "note: similarities hardly differ: random choices reach 9" in result.err


def test_a_device_is_for_the_network_whatever_the_method(
    run, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("select", photos / "task", "-m", 2, "-k", 1, *SMALL, "--format", "txt")
    expected = run(*words)
    for name in ("cuda:77", "nonsense", "meta"):
        refused = run(*words, "--device", name)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert f"auto, cpu or a GPU that torch can use but got '{name}'" in refused.err
    monkeypatch.setattr("fsl_basesel.photographs._device", lambda name: torch.device("cpu"))
    assert run(*words, "--device", "cuda").out == expected.out


def test_names_of_two_lines_are_no_list(run, photos: Path, tmp_path: Path) -> None:
    for name in ("new\nline", "שלום"):
        shutil.copytree(next((photos / "task").iterdir()), tmp_path / "pool" / name)
    words = ("select", tmp_path / "pool", "-m", 2, "--similarity", "cosine", *SMALL, "--format")
    refused = run(*words, "txt")
    assert (refused.code, refused.out) == (2, "")
    assert r"is called 'new\nline'; use json or csv" in refused.err
    assert sorted(json.loads(run(*words, "json").out)["names"]) == ["new\nline", "שלום"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--link", "x"], "Expected CANDIDATES to be a folder for --link"),
        (["--dry-run"], "Expected a folder of pictures for --dry-run"),
        (["--backbone", "timm:resnet18"], "Expected a folder of pictures as CANDIDATES or NOVEL"),
    ],
)
def test_options_of_folders_are_refused_for_files(run, pool: Path, words, message: str) -> None:
    result = run("select", pool, "-m", 3, "-k", 1, *words)
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1


def test_a_killed_embedding_goes_on(photos: Path, tmp_path: Path) -> None:
    """Killed by kill -9 while it looks at images, the same command ends with the same file."""
    command = [sys.executable, "-m", "fsl_basesel", "embed", str(photos / "pool")]
    command += ["--size", "160", "--out"]
    once = os.environ | {"FSL_BASESEL_CACHE": str(tmp_path / "other")}
    subprocess.run([*command, str(tmp_path / "once.npz")], check=True, env=once)
    process = subprocess.Popen([*command, str(tmp_path / "twice.npz")], start_new_session=True)
    parts = tmp_path / "cache" / "embeddings"
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if list(parts.glob("*/*.npz")):
            break
        time.sleep(0.05)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run([*command, str(tmp_path / "twice.npz")], check=True)
    assert (tmp_path / "once.npz").read_bytes() == (tmp_path / "twice.npz").read_bytes()


def test_two_processes_write_the_file_that_one_writes(photos: Path, tmp_path: Path) -> None:
    words = ["embed", str(photos / "task"), *SMALL, "--out"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", "2", "-m", "fsl_basesel"]
    for number, command in enumerate((torchrun, [sys.executable, "-m", "fsl_basesel"])):
        cache = os.environ | {"FSL_BASESEL_CACHE": str(tmp_path / f"cache-{number}")}
        out = str(tmp_path / f"{number}.npz")
        subprocess.run([*command, *words, out], check=True, env=cache, capture_output=True)
    assert (tmp_path / "0.npz").read_bytes() == (tmp_path / "1.npz").read_bytes()


def commands_of(name: str) -> list[str]:
    """Commands of a page, in blocks and in tables, each once."""
    page = (ROOT / "docs" / name).read_text()
    found = re.findall(
        r"(?:^    |`)(fsl-basesel (?:select|embed|compare|report|frontier) [^`\n]*)", page, re.M
    )
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("page", "count"), [("quickstart.md", 7), ("budgets.md", 2)])
def test_the_commands_of_the_docs_run_as_they_are(
    page: str, count: int, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    commands = commands_of(page)
    assert len(commands) >= count
    monkeypatch.chdir(tmp_path)
    shutil.copytree(
        photos,
        tmp_path / "photos",
        ignore=lambda _, names: sorted(n for n in names if n.endswith(".jpeg"))[4:],
    )
    # What a reader of the table already has.
    assert main(["embed", "photos/task", "--out", "task.npz"]) == 0
    np.savez("f.npz", similarity=np.random.default_rng(0).random((6, 24)))
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, (command, capsys.readouterr().err)
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S):
        exec(code, {})


def test_a_terminal_shows_images_per_second_and_the_time_left(photos: Path) -> None:
    command = [sys.executable, "-m", "fsl_basesel", "embed", str(photos / "task"), *SMALL]
    leader, follower = os.openpty()
    process = subprocess.Popen(
        [*command, "--out", str(photos.parent / "x.npz")],
        stderr=follower,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "100", "TERM": "xterm"},
    )
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(leader, 65536):
            shown += part
    os.close(leader)
    assert process.wait() == 0
    assert re.search(rb"images .*\d+ images/s, \d:\d\d:\d\d left", shown)
