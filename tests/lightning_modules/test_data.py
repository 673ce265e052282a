"""`BaseClassDataModule` on its own: labels never move, images are those of the chosen classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fsl_basesel.data import ClassPool, NovelTask, from_arrays
from fsl_basesel.errors import InputError
from lightning_modules import BaseClassDataModule
from tests.lightning_modules.runs import images_of, tiny_data, tiny_pool, tiny_task


def coded_pool(classes: int = 6, per_class: int = 5) -> ClassPool:
    """Every pixel of an image is the number of its class."""
    numbers = torch.arange(classes).repeat_interleave(per_class)
    pictures = numbers.float()[:, None, None, None].expand(-1, 1, 2, 2).contiguous()
    return ClassPool(from_arrays(pictures, numbers, [f"class {c}" for c in range(classes)]))


def pixel_and_label(data: BaseClassDataModule) -> list[tuple[int, int]]:
    pairs = []
    for images, labels in data.train_dataloader():
        pairs += list(zip(images[:, 0, 0, 0].int().tolist(), labels.tolist(), strict=True))
    return pairs


def test_labels_are_positions_in_the_order_of_choice_and_never_move() -> None:
    data = BaseClassDataModule(coded_pool(), batch_size=3)
    data.add_classes(["class 4", "class 1"])
    assert set(pixel_and_label(data)) == {(4, 0), (1, 1)}
    data.add_classes([5])
    pairs = pixel_and_label(data)
    assert set(pairs) == {(4, 0), (1, 1), (5, 2)}
    assert len(pairs) == 15
    assert data.classes == ("class 4", "class 1", "class 5")


def test_a_class_is_chosen_once() -> None:
    data = tiny_data()
    data.add_classes(["base 3"])
    with pytest.raises(InputError, match=r"not chosen yet but 'base 3' is \(1 of 2 classes\)"):
        data.add_classes(["base 2", "base 3"])
    assert data.classes == ("base 3",)


def test_the_loader_stays_while_the_classes_do() -> None:
    data = tiny_data()
    data.add_classes(["base 3"])
    loader = data.train_dataloader()
    assert data.train_dataloader() is loader
    data.add_classes(["base 2"])
    assert data.train_dataloader() is not loader
    loader = data.train_dataloader()
    data.batch_size = 2  # as the tuner does it
    assert len(data.train_dataloader()) == 2 * len(loader)


def test_an_epoch_of_few_classes_goes_over_them_until_it_is_long_enough() -> None:
    data = BaseClassDataModule(coded_pool(), batch_size=3, min_epoch_images=18)
    lengths = []
    for name in data.pool.names:
        data.add_classes([name])
        lengths.append(len(pixel_and_label(data)))
    assert lengths == [18, 18, 18, 20, 24, 30]  # 25 images leave one, too few for a batch


def test_validation_images_are_kept_out_of_training() -> None:
    data = tiny_data(val_per_class=3)
    data.add_classes(["base 3", "base 5"])
    training, validation = data.training_images(), data.validation_images()
    pairs = [
        set(zip(part.classes.tolist(), part.items.tolist(), strict=True))
        for part in (training, validation)
    ]
    assert len(pairs[0]) == 14
    assert len(pairs[1]) == 6
    assert not pairs[0] & pairs[1]
    assert sum(len(y) for _, y in data.val_dataloader()) == 6  # type: ignore[union-attr]
    assert tiny_data(val_per_class=0).val_dataloader() == []


def test_without_a_selection_the_expanded_classes_of_the_pool_are_used() -> None:
    pool = tiny_pool()
    pool.expand([7, 2])
    data = BaseClassDataModule(pool)
    data.train_dataloader()
    assert data.classes == ("base 7", "base 2")


def test_state_is_classes_and_place_and_comes_back() -> None:
    data = tiny_data()
    data.add_classes(["base 3", "base 0"])
    batches = iter(data.train_dataloader())
    next(batches)
    state = data.state_dict()
    assert state["classes"] == ["base 3", "base 0"]
    assert state["position"] == {"epoch": 0, "batches": 1}
    other = tiny_data()
    other.load_state_dict(state)
    assert other.classes == data.classes


# Misuse


def test_no_classes_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(InputError, match="add SelectBaseClasses or ColdStartSelection"):
        tiny_data().train_dataloader()


def test_a_class_both_candidate_and_novel_is_refused() -> None:
    task = NovelTask(images_of(["base 3", "novel"]), shots=2, queries=2)
    with pytest.raises(InputError, match="'base 3' is both"):
        BaseClassDataModule(tiny_pool(), task)


def test_an_empty_class_is_refused() -> None:
    with pytest.raises(InputError, match="class 'dog' has none"):
        from_arrays(torch.rand(2, 1, 4, 4), [0, 0], ["cat", "dog"])


def test_fewer_previews_than_asked_are_refused() -> None:
    with pytest.raises(InputError, match=r"at least 11 image\(s\) in every class but 'base 0' has"):
        tiny_pool(preview=11)


def test_keeping_all_images_for_validation_is_refused() -> None:
    data = tiny_data(val_per_class=10)
    data.add_classes(["base 1"])
    with pytest.raises(InputError, match="`val_per_class` = 10 images in every class but 'base 1'"):
        data.train_dataloader()


def test_no_novel_task_has_nothing_to_test_on() -> None:
    with pytest.raises(InputError, match="pass `novel`"):
        tiny_data(novel=None).test_dataloader()


@pytest.mark.parametrize(
    "name", ["batch_size", "num_workers", "val_per_class", "eval_batch_size", "min_epoch_images"]
)
def test_numbers_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"Expected `{name}` to be at least"):
        BaseClassDataModule(tiny_pool(), tiny_task(), **{name: -1})  # type: ignore[arg-type]


def test_training_on_so_many_images_in_all() -> None:
    data = tiny_data(max_images=5, val_per_class=2)
    data.add_classes([0, 1])
    images = data.training_images()
    assert np.bincount(images.labels).tolist() == [3, 2]
    assert images.items.tolist() == [0, 1, 2, 0, 1]
    assert np.bincount(data.validation_images().labels).tolist() == [2, 2]
    assert data.identity()["max_images"] == 5
    assert "max_images" not in tiny_data().identity()
    with pytest.raises(InputError, match="`max_images` to be at least 1"):
        tiny_data(max_images=0)
