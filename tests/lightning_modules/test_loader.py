"""The order of the images: a function of (seed, epoch), shared out evenly, resumable anywhere."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fsl_basesel.data import ImageSet
from fsl_basesel.errors import InputError
from lightning_modules.data import (
    EpochLoader,
    batch_count,
    epoch_batches,
    epoch_order,
)
from tests.lightning_modules.runs import images_of


def numbered(count: int) -> ImageSet:
    """Images whose label is their position."""
    source = images_of(["one class"], per_class=count)
    return ImageSet(source, np.zeros(count, int), np.arange(count), np.arange(count))


def labels_of(loader: EpochLoader) -> list[list[int]]:
    return [labels.tolist() for _, labels in loader]


@given(
    images=st.integers(1, 200),
    batch_size=st.integers(1, 17),
    world=st.integers(1, 4),
    epoch=st.integers(0, 3),
)
def test_processes_together_see_what_one_with_larger_batches_would_see(
    images: int, batch_size: int, world: int, epoch: int
) -> None:
    shares = [epoch_batches(images, batch_size, 7, epoch, r, world) for r in range(world)]
    assert {len(share) for share in shares} == {batch_count(images, batch_size, world)}
    alone = epoch_batches(images, batch_size * world, 7, epoch)
    for number, parts in enumerate(zip(*shares, strict=True)):
        assert len({len(part) for part in parts}) == 1  # ranks step together on equal batches
        together = set(np.concatenate(parts).tolist())
        if number < len(alone):
            assert set(alone[number].tolist()) <= together
    seen = [position for share in shares for batch in share for position in batch.tolist()]
    assert set(seen) <= set(range(images))
    left_out = images - len(set(seen))
    assert left_out < 2 * world
    assert len(seen) - len(set(seen)) < max(world, 2)


@given(images=st.integers(1, 60), min_images=st.integers(0, 300), epoch=st.integers(0, 3))
def test_a_longer_epoch_is_passes_over_all_images_one_after_another(
    images: int, min_images: int, epoch: int
) -> None:
    order = epoch_order(images, 7, epoch, min_images)
    assert len(order) == max(images, min_images)
    passes = [order[start : start + images] for start in range(0, len(order), images)]
    for one in passes[:-1]:
        assert sorted(one.tolist()) == list(range(images))
    assert len(set(passes[-1].tolist())) == len(passes[-1])
    np.testing.assert_array_equal(passes[0], epoch_order(images, 7, epoch))
    if images >= 20 and len(passes) > 2:  # by chance two orders of 20 are never the same
        assert passes[0].tolist() != passes[1].tolist()


@given(
    images=st.integers(1, 40),
    min_images=st.integers(0, 200),
    batch_size=st.integers(2, 17),
    world=st.integers(1, 3),
)
def test_processes_share_a_longer_epoch_out_too(
    images: int, min_images: int, batch_size: int, world: int
) -> None:
    shares = [epoch_batches(images, batch_size, 7, 0, r, world, min_images) for r in range(world)]
    assert {len(share) for share in shares} == {
        batch_count(max(images, min_images), batch_size, world)
    }
    seen = sum(len(batch) for share in shares for batch in share)
    assert abs(seen - max(images, min_images)) < 2 * world


def test_the_order_changes_with_epoch_and_seed_and_with_nothing_else() -> None:
    pictures = numbered(20)
    epoch = [0]
    first = EpochLoader(pictures, 4, lambda: epoch[0], seed=3)
    again = EpochLoader(pictures, 4, lambda: epoch[0], seed=3)
    order = labels_of(first)
    torch.manual_seed(99)
    assert labels_of(again) == order == labels_of(first)
    assert labels_of(EpochLoader(pictures, 4, lambda: 0, seed=4)) != order
    epoch[0] = 1
    assert labels_of(first) != order
    assert sorted(label for batch in labels_of(first) for label in batch) == list(range(20))


def jittered(images: torch.Tensor) -> torch.Tensor:
    scale = np.random.rand() + random.random()  # noqa: NPY002
    return images + scale * torch.rand_like(images)


def test_iterating_leaves_the_global_random_numbers_alone() -> None:
    def states() -> str:
        return repr((torch.random.get_rng_state(), np.random.get_state(), random.getstate()))  # noqa: NPY002

    before = states()
    list(EpochLoader(numbered(8), 4, augment=jittered))
    assert states() == before


@pytest.mark.parametrize(
    ("images", "options"),
    [
        (20, {}),
        (20, {"num_workers": 2, "persistent_workers": True}),
        (5, {"min_images": 20}),  # goes on in the second pass of four
    ],
)
def test_goes_on_in_mid_epoch_with_any_number_of_workers(
    images: int, options: dict[str, Any]
) -> None:
    def make() -> EpochLoader:
        by_epoch = lambda: epoch[0]  # noqa: E731
        return EpochLoader(numbered(images), 4, by_epoch, seed=1, augment=jittered, **options)

    epoch = [2]
    whole = list(make())
    loader = make()
    batches = iter(loader)
    next(batches), next(batches)
    state = loader.state_dict()
    assert state == {"epoch": 2, "batches": 2}
    resumed = make()
    resumed.load_state_dict(state)
    rest = list(resumed)
    assert len(rest) == len(whole) - 2
    for (pictures, labels), (expected_pictures, expected) in zip(rest, whole[2:], strict=True):
        assert torch.equal(labels, expected)
        assert torch.equal(pictures, expected_pictures)  # the augmentation too
    assert labels_of(resumed) == [labels.tolist() for _, labels in whole]  # the state holds once
    resumed.load_state_dict(state)
    epoch[0] = 3
    assert len(labels_of(resumed)) == len(whole)  # and only in its own epoch
    for open_loader in (loader, resumed):
        open_loader.close()


def test_nothing_is_fetched_before_the_first_batch_is_asked_for() -> None:
    epoch = [0]
    loader = EpochLoader(numbered(12), 4, lambda: epoch[0])
    early = iter(loader)
    epoch[0] = 1  # as Lightning does it
    expected = labels_of(loader)
    assert [labels.tolist() for _, labels in early] == expected


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="`batch_size` to be at least 1 but got 0"):
        EpochLoader(numbered(3), 0)
