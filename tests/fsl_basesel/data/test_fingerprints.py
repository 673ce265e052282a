"""Fingerprints see other images, also where names, labels and numbers are the same."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset, TensorDataset
from torchvision import transforms
from torchvision.datasets import ImageFolder

from fsl_basesel.data import (
    ClassPool,
    ImageSource,
    NovelTask,
    from_arrays,
    from_dataset,
    from_features,
    glyph_splits,
    image_folder,
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(tmp_path / "cache"))
    for c, name in enumerate(("cat", "dog")):
        for i in range(4):
            path = tmp_path / "data" / name / f"{i}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (10 * c + i,) * 3).save(path)
            os.utime(path, (10**9, 10**9))
    return tmp_path / "data"


def replace(path: Path, grey: int, keep_time: bool) -> None:
    """Another picture of the same size in bytes, perhaps with the time of the old one."""
    before = path.stat()
    Image.new("RGB", (8, 8), (grey,) * 3).save(path)
    assert path.stat().st_size == before.st_size
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


FILES: list[Callable[[Path], ImageSource]] = [
    lambda root: image_folder(root, size=8),
    lambda root: from_dataset(ImageFolder(str(root)), size=8),
    lambda root: from_dataset(Subset(ImageFolder(str(root)), range(8)), size=8),
]


@pytest.mark.parametrize("make", FILES)
def test_files_that_were_replaced_are_seen(root: Path, make: Callable[[Path], ImageSource]) -> None:
    first = make(root).fingerprint
    assert make(root).fingerprint == first
    replace(root / "dog" / "3.bmp", 99, keep_time=False)
    second = make(root).fingerprint
    assert second != first
    for i in range(4):
        replace(root / "cat" / f"{i}.bmp", 77, keep_time=True)
    assert make(root).fingerprint != second


@pytest.mark.parametrize(
    "make", [image_folder, lambda root, **o: from_dataset(ImageFolder(root), **o)]
)
def test_another_transform_is_seen_and_the_same_one_is_the_same(
    root: Path, make: Callable[..., ImageSource]
) -> None:
    def resize(side: int) -> Callable[[object], object]:
        return transforms.Compose([transforms.Resize(side), transforms.ToTensor()])

    found = [
        make(root, transform=change).fingerprint
        for change in (
            None,
            resize(4),
            resize(5),
            lambda image: image.resize((4, 4)),
            lambda image: image.resize((4, 5)),
        )
    ]
    assert len(set(found)) == len(found)
    assert make(root, transform=resize(4)).fingerprint == found[1]
    own = from_dataset(ImageFolder(str(root), transform=resize(4)))
    assert own.fingerprint != from_dataset(ImageFolder(str(root), transform=resize(5))).fingerprint


def test_a_function_as_transform_is_the_same_in_another_process(root: Path) -> None:
    program = (
        "from fsl_basesel.data import image_folder\n"
        "def turn(image): return [image.rotate(a) for a in (90,)][0]\n"
        f"print(image_folder({str(root)!r}, transform=turn).fingerprint)\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout


@pytest.mark.parametrize("make", [from_arrays, from_features])
def test_one_other_number_in_an_array_is_seen(make: Callable[..., ImageSource]) -> None:
    """Before, only every 64th image was looked at."""
    images = np.zeros((1000, 3, 4, 4) if make is from_arrays else (1000, 5), np.float32)
    labels = np.arange(1000) % 10
    first = make(images, labels).fingerprint
    assert make(images.copy(), labels).fingerprint == first
    images[501] += 1
    assert make(images, labels).fingerprint != first


def test_of_a_large_array_the_first_images_of_every_class_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fsl_basesel.data.arrays._HASHED_NUMBERS", 100)
    labels = np.arange(200) % 10
    images = np.zeros((200, 4, 4), np.uint8)
    first = from_arrays(images, labels).fingerprint
    for label in range(10):
        changed = images.copy()
        changed[labels == label] = 9
        assert from_arrays(changed, labels).fingerprint != first


def test_data_sets_without_files_show_an_image_of_every_class() -> None:
    def source(images: torch.Tensor) -> ImageSource:
        data = TensorDataset(images)
        data.targets = [0, 0, 1, 1]
        return from_dataset(data)

    images = torch.rand(4, 1, 4, 4)
    assert source(images).fingerprint == source(images.clone()).fingerprint
    for start in (0, 2):
        other = images.clone()
        other[start : start + 2] += 1
        assert source(other).fingerprint != source(images).fingerprint


def test_a_random_transform_neither_changes_the_fingerprint_nor_the_random_numbers() -> None:
    class Noisy(TensorDataset):
        targets = (0, 0, 1, 1)

        def __getitem__(self, index: int) -> tuple:
            noise = torch.rand(()) + random.random() + np.random.random()  # noqa: NPY002
            return (super().__getitem__(index)[0] + noise,)

    images = torch.rand(4, 1, 4, 4)
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert from_dataset(Noisy(images)).fingerprint == from_dataset(Noisy(images)).fingerprint
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # noqa: NPY002


def test_pools_subsets_and_tasks_see_what_their_source_sees(root: Path) -> None:
    def all_of() -> list[str]:
        source = image_folder(root, size=8)
        some = source.subset(["dog"])
        return [
            some.fingerprint,
            ClassPool(source).fingerprint,
            NovelTask(some, shots=1).fingerprint,
        ]

    first = all_of()
    assert all_of() == first
    replace(root / "dog" / "3.bmp", 99, keep_time=False)
    assert not set(first) & set(all_of())


def test_dropping_and_labelling_images_do_not_change_it(root: Path) -> None:
    early, late = (image_folder(root, size=8, on_corrupt="skip") for _ in range(2))
    first = early.fingerprint
    (root / "cat" / "0.bmp").write_bytes(b"")
    with pytest.warns(UserWarning, match="Left out 1"):
        early.prepare([0, 1])
    assert early.fingerprint == first
    late.add_files(1, ["elsewhere.bmp"])
    os.unlink(root / "cat" / "0.bmp")
    Image.new("RGB", (8, 8), (0,) * 3).save(root / "cat" / "0.bmp")
    os.utime(root / "cat" / "0.bmp", (10**9, 10**9))
    assert late.fingerprint == first


def test_tasks_differ_by_their_draw() -> None:
    task = glyph_splits(
        candidates=4, novel=3, pretraining=2, per_class=50, shots=2, queries=2
    ).novel
    others = [
        task.drawn(1),
        NovelTask(task.source, 1, 2),
        NovelTask(task.source, 2, 1),
        NovelTask(task.source, 2, 2, seed=5),
    ]
    found = {task.fingerprint, *(other.fingerprint for other in others)}
    assert len(found) == 5
    assert NovelTask(task.source, 2, 2).fingerprint == task.fingerprint


def test_all_images_of_a_task_are_its_support_then_its_test_images() -> None:
    task = glyph_splits(
        candidates=4, novel=3, pretraining=2, per_class=50, shots=2, queries=3
    ).novel
    images = task.all_images()
    support, test = task.support_set(), task.test_set()
    assert images.labels.tolist() == [*support.labels, *test.labels]
    assert images.items.tolist() == [*support.items, *test.items]
    assert len(images) == 15
