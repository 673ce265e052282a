"""Pools, novel tasks and splits, on small arrays whose pixels say which image they are."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fsl_basesel.data import (
    ClassPool,
    ImageSource,
    NovelTask,
    from_arrays,
    from_features,
    glyphs,
    require_disjoint,
    split_classes,
)
from fsl_basesel.errors import InputError

NAMES = ["猫", "dog", "naïve fish", "owl"]
COUNTS = [9, 4, 6, 5]


@pytest.fixture
def source() -> ImageSource:
    """Classes of unequal size; every pixel of an image is its number in the array."""
    labels = np.repeat(np.arange(4), COUNTS)
    images = np.arange(len(labels), dtype=np.float32)[:, None, None] * np.ones(
        (1, 2, 2), np.float32
    )
    return from_arrays(images, labels, NAMES)


def numbers(dataset: torch.utils.data.Dataset) -> list[int]:
    images, _ = dataset.batch(range(len(dataset)))
    return images[:, 0, 0, 0].int().tolist()


def test_a_class_shows_its_preview_and_once_expanded_everything(source: ImageSource) -> None:
    pool = ClassPool(source, preview=3)
    preview = pool.preview_set()
    assert preview.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert pool.expand(["owl", "猫"]) == [3, 0]
    training = pool.training_set()
    assert training.labels.tolist() == [0] * 5 + [1] * 9
    assert sorted(numbers(training)) == [*range(9), *range(19, 24)]
    assert set(numbers(pool.preview_set([3]))) <= set(numbers(training))


def test_the_preview_does_not_move_when_classes_are_expanded(source: ImageSource) -> None:
    pool = ClassPool(source, preview=3)
    before = numbers(pool.preview_set())
    pool.expand([1, 2])
    assert numbers(pool.preview_set()) == before


def test_labels_stay_when_classes_are_added(source: ImageSource) -> None:
    pool = ClassPool(source, preview=2)
    pool.expand([2])
    first = dict(zip(numbers(pool.training_set()), pool.training_set().labels, strict=True))
    pool.expand([0, 3])
    second = dict(zip(numbers(pool.training_set()), pool.training_set().labels, strict=True))
    assert pool.expanded == [2, 0, 3]
    assert first.items() <= second.items()


def test_expanding_twice_changes_nothing(source: ImageSource) -> None:
    pool = ClassPool(source)
    fingerprint = pool.fingerprint
    assert pool.expand([1, 2]) == [1, 2]
    assert pool.expand([2, 1, 0]) == [0]
    assert pool.expanded == [1, 2, 0]
    assert pool.fingerprint == fingerprint


def test_the_label_order_can_be_given(source: ImageSource) -> None:
    pool = ClassPool(source)
    pool.expand(range(4))
    training = pool.training_set(["owl", "dog"])
    assert training.labels.tolist() == [0] * 5 + [1] * 4
    assert set(training.classes.tolist()) == {3, 1}


def test_the_default_preview_takes_what_a_class_has(source: ImageSource) -> None:
    assert len(ClassPool(source).preview_set()) == sum(COUNTS)


def test_a_class_of_one_image_is_a_class() -> None:
    pool = ClassPool(from_arrays(torch.rand(3, 4, 4), [0, 1, 1]))
    assert len(pool.preview_set()) == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_whole_batches_in_order(source: ImageSource, workers: int) -> None:
    pool = ClassPool(source)
    pool.expand(range(4))
    batches = list(DataLoader(pool.training_set(), batch_size=5, num_workers=workers))
    assert torch.cat([y for _, y in batches]).tolist() == np.repeat(range(4), COUNTS).tolist()
    images = torch.cat([x for x, _ in batches])
    assert images[:, 0, 0, 0].int().tolist() == numbers(pool.training_set())
    assert pool.training_set()[3][0].equal(images[3])


def test_pools_and_tasks_survive_pickling(source: ImageSource) -> None:
    pool = ClassPool(source, preview=2)
    pool.expand([1])
    copy = pickle.loads(pickle.dumps(pool))
    assert copy.expanded == [1]
    assert copy.fingerprint == pool.fingerprint
    assert numbers(copy.training_set()) == numbers(pool.training_set())


def test_another_preview_seed_or_content_is_another_fingerprint() -> None:
    images, labels = torch.rand(6, 4, 4), [0, 0, 0, 1, 1, 1]
    prints = {
        ClassPool(from_arrays(images, labels), preview=2).fingerprint,
        ClassPool(from_arrays(images, labels), preview=3).fingerprint,
        ClassPool(from_arrays(images + 1, labels), preview=2).fingerprint,
        ClassPool(from_arrays(images, labels, ["a", "b"]), preview=2).fingerprint,
        ClassPool(from_arrays(images, labels, seed=1), preview=2).fingerprint,
        ClassPool(from_arrays(images, labels[::-1]), preview=2).fingerprint,
    }
    assert len(prints) >= 5


def test_support_and_test_images_are_disjoint_and_every_image_is_of_its_class(
    source: ImageSource,
) -> None:
    task = NovelTask(source, shots=3, queries=2)
    support, test = task.support_set(), task.test_set()
    assert support.labels.tolist() == [c for c in range(4) for _ in range(3)]
    assert test.labels.tolist() == [0, 0, 1, 2, 2, 3, 3]  # the class of four has one left
    assert set(numbers(support)).isdisjoint(numbers(test))
    bounds = np.cumsum([0, *COUNTS])
    for dataset in (support, test):
        for number, label in zip(numbers(dataset), dataset.labels, strict=True):
            assert bounds[label] <= number < bounds[label + 1]


def test_the_same_repeat_is_the_same_draw_and_another_is_not(source: ImageSource) -> None:
    task = NovelTask(source, shots=3, queries=2, seed=4)
    again = NovelTask(source, shots=3, queries=2, seed=4)
    assert numbers(again.support_set()) == numbers(task.support_set())
    assert numbers(again.test_set()) == numbers(task.test_set())
    assert numbers(task.drawn(1).support_set()) != numbers(task.support_set())
    assert numbers(task.drawn(1).drawn(0).test_set()) == numbers(task.test_set())


def test_fewer_shots_are_the_first_of_more(source: ImageSource) -> None:
    task = NovelTask(source, shots=3, queries=2)
    three = np.array(numbers(task.support_set())).reshape(4, 3)
    assert (
        np.array(numbers(task.support_set(shots=2))).reshape(4, 2).tolist() == three[:, :2].tolist()
    )


def test_every_image_is_drawn_as_often_as_any_other() -> None:
    source = from_features(np.arange(10.0)[:, None], [0] * 10)
    drawn = np.zeros(10)
    for repeat in range(400):
        images, _ = NovelTask(source, shots=3, repeat=repeat).support_set().batch([0, 1, 2])
        drawn[images[:, 0].int().numpy()] += 1
    assert drawn.sum() == 1200
    assert np.abs(drawn - 120).max() < 45  # 4.9 standard deviations of 400 draws at rate 0.3


def test_features_are_classes_too() -> None:
    features = torch.rand(6, 5, dtype=torch.float16)
    pool = ClassPool(from_features(features, ["b", "a", "b", "a", "b", "a"]))
    assert pool.names == ("a", "b")
    images, labels = pool.preview_set().batch(range(6))
    assert images.dtype == torch.float32
    expected = {(0, tuple(row)) for row in features[1::2].float().tolist()}
    expected |= {(1, tuple(row)) for row in features[::2].float().tolist()}
    assert {
        (c, tuple(x)) for c, x in zip(labels.tolist(), images.tolist(), strict=True)
    } == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((4, 6, 5), (1, 6, 5)), ((4, 6, 5, 3), (3, 6, 5)), ((4, 3, 6, 5), (3, 6, 5))],
)
def test_bytes_of_any_layout_become_numbers_up_to_one(shape: tuple, expected: tuple) -> None:
    source = from_arrays(np.full(shape, 255, np.uint8), [0, 0, 1, 1])
    images = source.images(np.array([0, 1]), np.array([1, 0]))
    assert images.shape == (2, *expected)
    assert torch.all(images == 1)


def test_a_split_is_disjoint_seeded_and_of_the_size_asked_for() -> None:
    source = from_features(np.random.default_rng(0).random((60, 4)), np.repeat(np.arange(20), 3))
    pool, task = split_classes(source, novel=5, candidates=10, seed=1, shots=2)
    assert (len(pool), len(task)) == (10, 5)
    require_disjoint(pool, task)
    again, _ = split_classes(source, novel=5, candidates=10, seed=1, shots=2)
    other, _ = split_classes(source, novel=5, candidates=10, seed=2, shots=2)
    assert again.names == pool.names != other.names
    rest, _ = split_classes(source, novel=5, seed=1, shots=2)
    assert len(rest) == 15
    image, label = pool.preview_set()[4]
    expected = source.images(np.array([source.positions([pool.names[label]])[0]]), np.array([1]))
    assert torch.equal(image, expected[0])


def test_subsets_of_subsets_keep_names_groups_and_images() -> None:
    pool, _ = glyphs(candidates=20, novel=5)
    once = pool.source.subset([7, 3, 11])
    twice = once.subset([pool.names[11], 0])
    assert twice.names == (pool.names[11], pool.names[7])
    assert twice.groups == (pool.groups[11], pool.groups[7])
    where = np.array([0]), np.array([5])
    assert torch.equal(twice.images(*where), pool.source.images(np.array([11]), where[1]))


def test_misuse_of_a_pool_is_refused(source: ImageSource) -> None:
    pool = ClassPool(source, preview=2)
    with pytest.raises(InputError, match="did you mean 'naïve fish'"):
        pool.expand(["naive fish"])
    with pytest.raises(InputError, match="numbers from 0 to 3 but got 4"):
        pool.expand([4])
    with pytest.raises(InputError, match="numbers from 0 to 3 but got -1"):
        pool.expand([-1])
    with pytest.raises(InputError, match="each class once but got 'dog' twice"):
        pool.expand([1, "dog"])
    with pytest.raises(InputError, match=r"a number or a name but got 1\.5"):
        pool.expand([1.5])
    assert pool.expanded == []
    with pytest.raises(InputError, match=r"'dog' is not .1 of 1 classes.; call pool.expand"):
        pool.training_set(["dog"])
    with pytest.raises(InputError, match=r"at least 5 .* but 'dog' has 4"):
        ClassPool(source, preview=5)
    with pytest.raises(InputError, match="`preview` to be at least 1"):
        ClassPool(source, preview=0)
    with pytest.raises(IndexError):
        pool.preview_set()[8]


def test_misuse_of_a_task_is_refused(source: ImageSource) -> None:
    with pytest.raises(InputError, match="= 5 images in every novel class but 'dog' has 4"):
        NovelTask(source, shots=4)
    with pytest.raises(InputError, match="`shots` to be at least 1"):
        NovelTask(source, shots=0)
    with pytest.raises(InputError, match="`queries` to be at least 1"):
        NovelTask(source, shots=1, queries=0)
    task = NovelTask(source, shots=3, queries=2)
    with pytest.raises(InputError, match="`shots` from 1 to 3 but got 4"):
        task.support_set(shots=4)
    with pytest.raises(InputError, match="`queries` from 1 to 2 but got 3"):
        task.test_set(queries=3)
    with pytest.raises(InputError, match=r"'dog' is both .4 of 4 novel classes"):
        require_disjoint(ClassPool(source), task)


def test_misuse_of_a_split_is_refused(source: ImageSource) -> None:
    with pytest.raises(InputError, match=r"at most 4 together, .* but got 0, 4 and None"):
        split_classes(source, novel=4)
    with pytest.raises(InputError, match=r"at most 3 together, .* but got 0, 0 and 4"):
        split_classes(source, novel=["owl"], candidates=4, shots=1)
    with pytest.raises(InputError, match="at least one class in `novel`"):
        split_classes(source, novel=[])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.rand(3, 4), [0, 1, 1]), "use from_features"),
        ((torch.rand(3, 4, 4), [0, 1]), "one label per image but got 2 for 3"),
        ((torch.rand(3, 4, 4), [0.5, 1, 1]), "whole numbers or texts"),
        ((torch.rand(3, 4, 4), [[0], [1], [1]]), "whole numbers or texts"),
        ((torch.rand(0, 4, 4), []), "whole numbers or texts"),
        ((torch.rand(3, 4, 4), [0, 1, 2], ["a", "b"]), "labels from 0 to 1 for 2 names"),
        ((torch.rand(3, 4, 4), [0, 0, 2], ["a", "b", "c"]), "class 'b' has none"),
        ((torch.rand(3, 4, 4), [0, 1, 2], ["a", "b", "a"]), "got 'a' twice"),
    ],
)
def test_misuse_of_arrays_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays(*arguments)


def test_misuse_of_features_is_refused() -> None:
    with pytest.raises(InputError, match="use from_arrays"):
        from_features(torch.rand(3, 4, 4), [0, 1, 1])
