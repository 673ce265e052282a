"""From photographs to centroids: real JPEG files, the default backbone, the cache, processes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.models import MobileNet_V3_Small_Weights

import fsl_basesel as fb
from fsl_basesel.backbones import load_backbone
from fsl_basesel.data import (
    ClassPool,
    NovelTask,
    chosen_folder,
    chosen_rows,
    from_arrays,
    from_dataset,
    image_folder,
)
from fsl_basesel.errors import InputError
from fsl_basesel.photographs import EmbeddingJob, embed
from fsl_basesel.progress import listening

TASK = ("tabby", "lion", "chimpanzee", "golden retriever", "bison")
ANIMALS = ("Persian cat", "cougar", "baboon", "German shepherd", "ox", "brown bear", "orangutan")
THINGS = ("abacus", "barn", "beer bottle", "bullet train", "desk", "obelisk", "school bus")
THINGS += ("teapot", "umbrella", "water tower", "pizza", "sports car")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Small networks do not gain by more, and lose a lot where the cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Path:
    """Folders of photographs: `pool` with animals and things, `task` with animals."""
    path = data_folder / "tinyimagenet_train100.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    root = tmp_path_factory.mktemp("photos")
    with np.load(path) as pack:
        content, offset = pack["jpeg"].tobytes(), pack["offset"]
        labels, names = pack["label"], [str(name) for name in pack["class_name"]]
    short = [name.partition(" ")[2].split(",")[0] for name in names]
    for number, name in enumerate((*TASK, *ANIMALS, *THINGS)):
        part = "task" if name in TASK else "pool"
        folder = root / part / name
        folder.mkdir(parents=True)
        for image in np.flatnonzero(labels == short.index(name))[:10]:
            data = content[offset[image] : offset[image + 1]]
            (folder / f"{number}-{image}.jpg").write_bytes(data)
    return root


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 5, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())


SMALL: dict[str, Any] = {"size": 16, "normalize": "none", "per_class": 6}


def test_animals_choose_animals_in_either_precision(photos: Path, tmp_path: Path) -> None:
    """The main use: which of these folders serve my task?"""
    chosen = {}
    for precision in ("float32", "bfloat16"):
        options: dict[str, Any] = {"size": 128, "per_class": 8, "precision": precision}
        pool, task = (embed(photos / part, **options) for part in ("pool", "task"))
        assert len(pool) == 19
        selection = fb.select(fb.SelectionProblem.from_centroids(pool, task, m=5, k=2))
        chosen[precision] = set(selection.names)
        assert selection.hyperparameters["backbone"] == "efficientnet-lite0"
        assert selection.hyperparameters["similarity"] == "cosine"
        assert "crop 128" in selection.hyperparameters["preprocessing"]
        assert fb.Selection.load(selection.save(tmp_path / "x.json")) == selection
    assert chosen["float32"] <= set(ANIMALS)
    assert chosen["bfloat16"] == chosen["float32"]
    other = embed(photos / "task", network(), **SMALL)
    with pytest.raises(InputError, match="from one backbone but got efficientnet-lite0 and"):
        fb.SelectionProblem.from_centroids(pool, other, m=5)


def test_centroids_are_the_means_of_a_plain_torchvision_loop(photos: Path) -> None:
    """Every image, by torchvision's own reading, preprocessing and network."""
    name = "torchvision:mobilenet_v3_small@random"
    found = embed(photos / "task", name, per_class=None)
    preset = MobileNet_V3_Small_Weights.DEFAULT.transforms()
    backbone = load_backbone(name)
    assert backbone.module is not None
    data = ImageFolder(str(photos / "task"), transform=preset)
    with torch.no_grad():
        rows = torch.cat([backbone.module.eval()(data[i][0][None]) for i in range(len(data))])
    expected = fb.class_centroids(rows.numpy(), np.array(data.targets))
    assert found.names == tuple(data.classes)
    assert found.images is not None
    assert found.images.tolist() == np.bincount(data.targets).tolist()
    np.testing.assert_allclose(found.values, expected, rtol=1e-4, atol=1e-5)


def test_threads_batches_and_a_second_call_change_nothing(photos: Path) -> None:
    first = EmbeddingJob(photos / "task", network(), **SMALL, workers=1, batch_size=4)
    whole = first.centroids()
    assert whole.made_by["preprocessing"].startswith("bilinear resize")
    again = EmbeddingJob(photos / "task", network(), **SMALL, workers=3, batch_size=4, cache=False)
    np.testing.assert_array_equal(again.centroids().values, whole.values)
    told: list[tuple[str, int, int]] = []
    with listening(lambda *words: told.append(words)):
        stored = EmbeddingJob(photos / "task", network(), **SMALL, batch_size=4)
        np.testing.assert_array_equal(stored.centroids().values, whole.values)
    assert told == [("images", 0, 0)]
    rows, labels = stored.features()
    assert rows.shape == (30, 6 * 6 * 6)
    np.testing.assert_allclose(fb.class_centroids(rows, labels), whole.values, rtol=1e-6)


def test_per_class_and_seed_draw_the_images(photos: Path) -> None:
    drawn = [
        EmbeddingJob(photos / "task", network(), size=16, per_class=3, seed=seed).images
        for seed in (0, 0, 1)
    ]
    files = [tuple(images.source.files(images.classes, images.items)) for images in drawn]  # type: ignore[attr-defined]
    assert len(files[0]) == 15
    assert files[0] == files[1] != files[2]
    many = from_arrays(torch.zeros(60, 3, 8, 8), [0] * 60)
    assert len(EmbeddingJob(many, network(), size=16).images) == 50  # the paper's preview


def test_what_is_another_embedding_is_not_taken_from_the_cache(photos: Path, cache: Path) -> None:
    base: dict[str, Any] = {**SMALL, "backbone": network()}
    keys = set()
    changed = network()
    with torch.no_grad():
        changed[0].weight[0, 0, 0, 0] += 1  # type: ignore[index,operator]
    for change in (
        {},
        {"size": 20},
        {"normalize": "half"},
        {"per_class": 5},
        {"seed": 1},
        {"precision": "bfloat16"},
        {"backbone": changed},
        {"backbone": nn.Sequential(*network(), nn.ReLU())},
    ):
        embed(photos / "task", **{**base, **change})
        keys.add(len(list((cache / "embeddings").iterdir())))
    assert max(keys) == len(keys) == 8
    picture = next((photos / "task" / "lion").iterdir())
    content = picture.read_bytes()
    before = embed(photos / "task", **{**base, "per_class": None})
    try:
        Image.new("RGB", (64, 64), "red").save(picture)
        after = embed(photos / "task", **{**base, "per_class": None})
    finally:
        picture.write_bytes(content)
    differs = np.abs(after.values - before.values).max(1) > 0
    assert [name for name, d in zip(after.names, differs, strict=True) if d] == ["lion"]


SLOW = """
import sys, time, torch
from fsl_basesel import photographs
photographs.FLUSH_SECONDS = 0
class Slow(torch.nn.Module):
    def forward(self, images):
        time.sleep(0.2)
        return images.flatten(1)[:, ::7]
from fsl_basesel.progress import listening
def told(task, seen, total):
    print(seen, total, flush=True)
with listening(told):
    found = photographs.embed(sys.argv[1], Slow(), size=16, per_class=8, batch_size=4, workers=1)
import numpy as np
np.save(sys.argv[2], found.values)
"""


def test_a_killed_run_goes_on_where_it_was(photos: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW, str(photos / "task"), str(tmp_path / "x.npy")]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    for line in killed.stdout:
        if int(line.split()[0]) >= 12:
            killed.send_signal(signal.SIGKILL)
            break
    killed.wait()
    assert not (tmp_path / "x.npy").exists()
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(again.stdout.splitlines()[0].split()[1]) <= 28  # of 40
    plain = embed(
        photos / "task", lambda x: x.flatten(1)[:, ::7], size=16, per_class=8, cache=False
    )
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), plain.values, rtol=1e-12)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_cache_is_made_again(photos: Path, cache: Path, damage: str) -> None:
    first = embed(photos / "task", network(), **SMALL)
    (part,) = cache.glob("embeddings/*/*.npz")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 0xFF
    part.write_bytes({"cut": content[:200], "empty": b""}.get(damage, content))
    np.testing.assert_array_equal(embed(photos / "task", network(), **SMALL).values, first.values)


def test_without_a_writable_disk_features_are_not_kept(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="Features are not kept"):
        assert len(embed(photos / "task", network(), **SMALL)) == 5


SHARED = """
import os, sys, numpy as np
from fsl_basesel.photographs import embed
found = embed(sys.argv[1], size=64, per_class=4, batch_size=4)
np.save(f"{sys.argv[2]}-{os.environ['RANK']}.npy", found.values)
"""


def test_two_processes_of_torchrun_give_the_bits_of_one(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SHARED)
    arguments = [str(tmp_path / "program.py"), str(photos / "task"), str(tmp_path / "x")]
    environment = {**os.environ, "PYTHONPATH": str(Path(fb.__file__).parents[1])}
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*run, *arguments], check=True, env=environment, capture_output=True)
    one = embed(photos / "task", size=64, per_class=4, batch_size=4, cache=False)
    for rank in range(2):
        np.testing.assert_array_equal(np.load(tmp_path / f"x-{rank}.npy"), one.values)


def test_every_kind_of_source_gives_the_same_centroids(photos: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    options: dict[str, Any] = {"backbone": network(), "size": 16, "per_class": None}
    expected = embed(photos / "task", **options)
    names = expected.names
    folder = image_folder(photos / "task")
    rows: dict[str, list] = {"picture": [], "kind": []}
    for c, name in enumerate(names):
        for file in sorted((photos / "task" / name).iterdir()):
            rows["picture"].append({"bytes": file.read_bytes(), "path": None})
            rows["kind"].append(c)
    features = datasets.Features(
        {"picture": datasets.Image(), "kind": datasets.ClassLabel(names=list(names))}
    )
    hugging = datasets.Dataset.from_dict(rows, features=features)
    hugging.save_to_disk(str(tmp_path / "saved"))
    sources = [
        folder,
        ClassPool(folder),
        folder.subset(list(names)),
        ImageFolder(str(photos / "task")),
        from_dataset(ImageFolder(str(photos / "task"))),
        hugging,
        tmp_path / "saved",
        str(tmp_path / "saved"),
    ]
    for source in sources:
        found = embed(source, **options)
        assert found.names == names
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-6, atol=1e-7)
    with pytest.raises(InputError, match=r"one split .* \(train\); take one"):
        embed(datasets.DatasetDict({"train": hugging}), **options)
    with pytest.raises(InputError, match="or a data set but got float"):
        embed(3.5, **options)


def test_a_task_shows_its_support_images_only(photos: Path) -> None:
    task = NovelTask(image_folder(photos / "task"), shots=3, queries=5)
    found = embed(task, network(), size=16)
    assert found.images is not None
    assert found.images.tolist() == [3] * 5
    support = task.support_set()
    files = [str(Path(f)) for f in task.source.files(support.classes, support.items)]  # type: ignore[attr-defined]
    prepared = load_backbone(network(), size=16).preprocessing
    with torch.no_grad():
        rows = network().eval()(torch.stack([prepared(Image.open(f)) for f in files]))
    expected = fb.class_centroids(rows.numpy(), support.labels)
    np.testing.assert_allclose(found.values, expected, rtol=1e-5, atol=1e-6)


def test_tensors_are_resized_and_normalised(photos: Path) -> None:
    images = torch.rand(4, 1, 20, 20)
    found = embed(from_arrays(images, [0, 0, 1, 1]), nn.Flatten(), size=10, normalize="half")
    grey = nn.functional.interpolate(images, (10, 10), mode="bilinear", antialias=True)
    rows = ((grey.expand(-1, 3, -1, -1) - 0.5) / 0.5).flatten(1)
    np.testing.assert_allclose(
        found.values, fb.class_centroids(rows.numpy(), [0, 0, 1, 1]), atol=1e-6
    )
    own = ImageFolder(str(photos / "task"), transform=transforms.ToTensor())
    assert embed(own, nn.Flatten(), size=10).values.shape == (5, 300)


def test_a_network_of_ones_own_keeps_its_mode(photos: Path) -> None:
    module = network()
    module[1].eval()
    embed(photos / "task", module, **SMALL)
    assert module.training
    assert module[0].training
    assert not module[1].training


def test_damaged_photographs_are_named_or_left_out(photos: Path, tmp_path: Path) -> None:
    root = tmp_path / "photos"
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (20, 20), (40 * number,) * 3).save(root / name / f"{number}.png")
    (root / "dog" / "1.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"1\.png of class 'dog' is not"):
        embed(root, network(), **SMALL)
    with pytest.warns(UserWarning, match="Left out 1"):
        found = embed(root, network(), **SMALL, on_corrupt="skip")
    assert found.images is not None
    assert found.images.tolist() == [3, 2]


def test_numbers_that_are_no_numbers_are_refused(photos: Path) -> None:
    with pytest.raises(InputError, match=r"finite features but .* for an image of class"):
        embed(photos / "task", lambda images: images.flatten(1) / 0, **SMALL)
    for option, message in (
        ({"precision": "float16"}, "float32, bfloat16"),
        ({"per_class": 0}, "`per_class` to be at least 1"),
        ({"batch_size": 0}, "`batch_size` to be at least 1"),
        ({"workers": -1}, "`workers` to be at least 0"),
        ({"device": "gpu"}, "`device` to be auto, cpu or a GPU"),
    ):
        with pytest.raises(InputError, match=message):
            embed(photos / "task", **{"backbone": network(), **SMALL, **option})


def test_the_estimate_counts_images_and_what_is_cached(photos: Path) -> None:
    job = EmbeddingJob(photos / "task", network(), **SMALL)
    before = job.estimate()
    assert (before.images, before.cached) == (30, 0)
    assert before.seconds > 0
    assert before.memory > 1 << 20
    assert before.disk == 30 * 6 * 6 * 6 * 4
    job.centroids()
    after = EmbeddingJob(photos / "task", network(), **SMALL).estimate()
    assert (after.cached, after.seconds) == (30, 0)


def test_memory_does_not_grow_with_the_images(tmp_path: Path) -> None:
    program = (
        "import re, torch\n"
        "from fsl_basesel import photographs\n"
        "from fsl_basesel.data import from_arrays\n"
        "photographs.FLUSH_IMAGES = 64\n"
        "class Wide(torch.nn.Module):\n"
        "    def forward(self, x): return x.mean((1, 2, 3))[:, None].expand(-1, 20000)\n"
        "for count in (200, 2000):\n"
        "    images = torch.zeros(1, 3, 8, 8, dtype=torch.uint8).expand(count, 3, 8, 8)\n"
        "    source = from_arrays(images, [i % 2 for i in range(count)])\n"
        "    photographs.embed(source, Wide(), size=8, per_class=None)\n"
        "    print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    command = [sys.executable, "-c", program]
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell the peak memory of a process")
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    few, many = map(int, run.stdout.split())  # kilobytes
    assert many < few + 40_000  # all features of 1800 images more would take 144,000


def test_chosen_folders_for_any_training_loop(photos: Path) -> None:
    data = chosen_folder(photos / "pool", ["teapot", "cougar"], transform=transforms.ToTensor())
    assert isinstance(data, ImageFolder)
    assert data.classes == ["teapot", "cougar"]
    assert sorted(set(data.targets)) == [0, 1]
    assert all(("teapot", "cougar")[label] in path for path, label in data.samples)
    assert data[0][0].shape == (3, 64, 64)
    selection = fb.select(fb.SelectionProblem([[0.9, 0.1]], m=1, k=1, names=["cougar", "desk"]))
    assert chosen_folder(photos / "pool", selection).classes == ["cougar"]
    with pytest.raises(InputError, match=r"none for 'griffin' \(1 of 1 classes\)"):
        chosen_folder(photos / "pool", ["griffin"])


def test_chosen_rows_of_a_hugging_face_data_set() -> None:
    datasets = pytest.importorskip("datasets")
    picture = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(picture, "PNG")
    rows = {"image": [{"bytes": picture.getvalue(), "path": None}] * 5, "label": [0, 1, 2, 1, 0]}
    names = datasets.ClassLabel(names=["ant", "bee", "cat"])
    data = datasets.Dataset.from_dict(
        rows, features=datasets.Features({"image": datasets.Image(), "label": names})
    )
    chosen = chosen_rows(data, ["cat", "bee"])
    assert chosen["label"][:] == [1, 0, 1]
    assert chosen.features["label"].names == ["cat", "bee"]
    assert chosen[0]["image"].size == (4, 4)
    with pytest.raises(InputError, match="none of 'dog'"):
        chosen_rows(data, ["dog"])


def test_features_of_a_plain_function_are_not_kept(photos: Path, cache: Path) -> None:
    """What it calls may have changed, and nobody can tell."""
    for factor in (1, 2):
        found = embed(photos / "task", lambda images: factor * images.flatten(1), **SMALL)  # noqa: B023
        assert found.values.max() == pytest.approx(factor, abs=0.3 * factor)
    assert not cache.joinpath("embeddings").exists()


def test_unlabelled_rows_of_a_data_set_are_refused_not_given_the_last_name() -> None:
    datasets = pytest.importorskip("datasets")
    kinds = {"picture": datasets.Image(), "kind": datasets.ClassLabel(names=["cat", "dog"])}
    rows = {"picture": [Image.new("RGB", (8, 8))] * 3, "kind": [0, 1, -1]}
    data = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    for use in (lambda: chosen_rows(data, ["dog"]), lambda: embed(data, network(), **SMALL)):
        with pytest.raises(InputError, match=r"0 to 1 in every row but got -1 to 1; leave unlab"):
            use()
