"""Labels of torchvision and learn2learn data sets, found without opening an image."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset
from torchvision.datasets import CIFAR10, Caltech101, FakeData, ImageFolder, Omniglot

from fsl_basesel.data import ClassPool, CorruptImageError, from_dataset
from fsl_basesel.data.datasets import dataset_labels
from fsl_basesel.errors import InputError


class Locked(Dataset):
    """A data set whose images must not be opened."""

    def __init__(self, count: int, **attributes: object) -> None:
        self._count = count
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple:
        raise AssertionError("an image was opened")


@pytest.mark.parametrize(
    "attributes",
    [
        {"targets": [0, 1, 1]},
        {"targets": torch.tensor([0, 1, 1])},
        {"labels": np.array([0, 1, 1])},
        {"_labels": [0, 1, 1]},
        {"y": np.array([0.0, 1.0, 1.0])},
        {"samples": [("a", 0), ("b", 1), ("c", 1)]},
        {"_samples": [("a", 0), ("b", 1), ("c", 1)]},
        {"data": [("a", 0), ("b", 1), ("c", 1)]},
        {"_flat_character_images": [("a", 0), ("b", 1), ("c", 1)]},
        {"indices_to_labels": {0: 0, 1: 1, 2: 1}, "labels": [0, 1]},
        {"data": np.zeros((3, 2)), "targets": [0, 1, 1]},
        {"labels": [[0, 1], [0], [2]], "y": [0, 1, 1]},
        {"dataset": Locked(3, targets=[0, 1, 1])},
        {"targets": [0, 5, 5], "target_transform": lambda label: label // 5},
    ],
)
def test_labels_are_found_wherever_data_sets_keep_them(attributes: dict) -> None:
    assert dataset_labels(Locked(3, **attributes)) == [0, 1, 1]
    assert from_dataset(Locked(3, **attributes)).sizes.tolist() == [1, 2]


def test_labels_pass_through_wrappers() -> None:
    first, second = Locked(3, targets=[0, 1, 2]), Locked(2, targets=[3, 4])
    both = ConcatDataset([first, Subset(second, [1])])
    assert dataset_labels(both) == [0, 1, 2, 4]
    assert dataset_labels(Subset(both, [3, 0])) == [4, 0]


def test_labels_that_are_nowhere_are_asked_for() -> None:
    with pytest.raises(InputError, match="pass `labels`"):
        from_dataset(Locked(3))
    with pytest.raises(InputError, match="pass `labels`"):
        from_dataset(ConcatDataset([Locked(3), Locked(1, targets=[0])]))
    with pytest.raises(InputError, match="got 2 for 3"):
        from_dataset(Locked(3), labels=[0, 1])


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (["cat", "dog"], ("cat", "dog")),
        ([("tench", "Tinca"), ("crane",)], ("tench, Tinca", "crane")),
        (["crane", "crane"], ("crane (0)", "crane (1)")),
        (["too few"], ("0", "1")),
    ],
)
def test_the_data_sets_own_class_names_are_used(own: list, expected: tuple) -> None:
    assert from_dataset(Locked(3, targets=[0, 1, 1], classes=own)).names == expected


def test_names_of_classes_that_a_subset_leaves_out_are_left_out() -> None:
    data = Locked(3, targets=[0, 1, 2], classes=["a", "b", "c"])
    assert from_dataset(Subset(data, [2, 0])).names == ("a", "c")


def test_a_torchvision_folder_gives_the_right_images(tmp_path: Path) -> None:
    for c, name in enumerate(["猫", "dog"]):
        (tmp_path / name).mkdir()
        for i in range(3):
            Image.new("RGB", (9 + i, 8), (100 * c + i,) * 3).save(tmp_path / name / f"{i}.png")
    data = ImageFolder(tmp_path)
    source = from_dataset(data, size=6)
    assert source.names == tuple(data.classes) == ("dog", "猫")
    images = source.images(np.array([0, 0, 0]), np.arange(3))
    assert sorted((images[:, 0, 0, 0] * 255).round().int().tolist()) == [100, 101, 102]
    with pytest.raises(InputError, match="pass `size`"):
        from_dataset(data).images(np.array([0, 0]), np.array([0, 1]))

    (tmp_path / "dog" / "1.png").write_bytes(b"no picture")
    with pytest.raises(CorruptImageError, match=r"1\.png of class 'dog'"):
        source.images(np.array([0, 0, 0]), np.arange(3))
    pool = ClassPool(from_dataset(data, size=6, on_corrupt="skip"))
    with pytest.warns(UserWarning, match=r"1\.png of class 'dog'"):
        pool.expand(["dog"])
    assert pool.source.sizes.tolist() == [2, 3]


def test_tensors_need_no_size_and_say_so() -> None:
    data = FakeData(size=4, image_size=(3, 8, 8), transform=lambda image: torch.ones(3, 8, 8))
    source = from_dataset(data, labels=[0, 0, 1, 1], size=4)
    with pytest.raises(InputError, match="PIL pictures for `size` but got Tensor"):
        source.images(np.array([0]), np.array([0]))


def test_real_torchvision_classes_without_their_downloads() -> None:
    """The attributes are those that the real classes fill in."""
    cifar = CIFAR10.__new__(CIFAR10)
    cifar.data, cifar.targets = np.zeros((3, 32, 32, 3), np.uint8), [2, 0, 2]
    cifar.classes, cifar.transform, cifar.target_transform = ["cat", "dog", "owl"], None, None
    source = from_dataset(cifar)
    assert source.names == ("cat", "owl")
    assert source.images(np.array([1]), np.array([1])).shape == (1, 3, 32, 32)

    caltech = Caltech101.__new__(Caltech101)
    caltech.index, caltech.y, caltech.categories = [1, 2, 1], [0, 0, 1], ["ant", "bass"]
    assert from_dataset(caltech).names == ("ant", "bass")

    omniglot = Omniglot.__new__(Omniglot)
    omniglot._characters = ["Greek/01", "Greek/02"]
    omniglot._flat_character_images = [("1.png", 0), ("2.png", 1)]
    omniglot.target_transform = None
    assert from_dataset(omniglot).names == ("Greek/01", "Greek/02")


def test_learn2learn_data_sets_and_meta_data_sets() -> None:
    l2l = pytest.importorskip("learn2learn")
    full = l2l.vision.datasets.FullOmniglot.__new__(l2l.vision.datasets.FullOmniglot)
    background = Locked(3, _flat_character_images=[("a", 0), ("b", 0), ("c", 1)])
    evaluation = Locked(
        2, _flat_character_images=[("d", 0), ("e", 1)], target_transform=lambda label: label + 2
    )
    full.dataset = ConcatDataset([background, evaluation])
    full.transform = full.target_transform = None
    assert dataset_labels(full) == [0, 0, 1, 2, 3]

    mini = l2l.vision.datasets.MiniImagenet.__new__(l2l.vision.datasets.MiniImagenet)
    mini.x, mini.y = torch.rand(3, 3, 8, 8), np.array([4.0, 4.0, 7.0])
    mini.transform = mini.target_transform = None
    assert from_dataset(mini).names == ("4", "7")
    assert from_dataset(mini).images(np.array([1]), np.array([0])).shape == (1, 3, 8, 8)

    tensors = torch.utils.data.TensorDataset(torch.rand(4, 2), torch.tensor([5, 6, 5, 6]))
    table = {5: [0, 2], 6: [1, 3]}
    meta = l2l.data.MetaDataset(tensors, labels_to_indices=table)
    assert dataset_labels(meta) == [5, 6, 5, 6]
    filtered = l2l.data.FilteredMetaDataset(meta, [6])
    assert dataset_labels(filtered) == [6, 6]
