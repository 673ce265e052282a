"""The loop from images to features: right, and nothing around it is changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torch import nn

from fsl_basesel.data import ImageSet, from_arrays
from fsl_basesel.embedding import feature_batches, summed_over_processes
from fsl_basesel.errors import InputError
from fsl_basesel.progress import listening


def pictures(count: int = 11) -> ImageSet:
    source = from_arrays(torch.rand(count, 3, 8, 8), [0] * count)
    return ImageSet(source, [0] * count, range(count), [0] * count)


def network() -> nn.Module:
    torch.manual_seed(0)
    parts = (nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*parts)


def test_features_of_every_image_whatever_batches_and_workers() -> None:
    images, module = pictures(), network()
    expected = module.eval()(images.batch(range(11))[0]).flatten(1).detach()
    module.train()
    for batch_size, workers in ((1, 0), (4, 0), (4, 2), (100, 0)):
        found = torch.zeros(11, 5)
        for positions, features in feature_batches(
            images, module, module=module, batch_size=batch_size, num_workers=workers
        ):
            found[torch.from_numpy(positions)] = features
        torch.testing.assert_close(found, expected)


def test_processes_share_the_batches_of_one_process_and_skip_those_that_are_done() -> None:
    images, module = pictures(), network()

    def batches(**options: object) -> dict[int, tuple[list[int], torch.Tensor]]:
        found = feature_batches(images, module, module=module, batch_size=3, **options)  # type: ignore[arg-type]
        return {int(where[0]) // 3: (where.tolist(), rows) for where, rows in found}

    whole = batches()
    assert [where for where, _ in whole.values()] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    shared = {**batches(rank=0, world=2), **batches(rank=1, world=2)}
    assert sorted(batches(rank=1, world=2)) == [1, 3]
    assert sorted(shared) == sorted(whole)
    assert all(torch.equal(shared[b][1], whole[b][1]) for b in whole)
    assert sorted(batches(done={0, 3})) == [1, 2]
    with pytest.raises(InputError, match="batch_size"):
        next(feature_batches(images, module, batch_size=0))


def test_modes_gradients_autocast_and_random_numbers_stay_as_they_were() -> None:
    images, module = pictures(), network()
    module[1].eval()
    modes = [part.training for part in module.modules()]
    state = torch.random.get_rng_state()

    def autocast() -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16)

    def extract(batch: torch.Tensor) -> torch.Tensor:
        assert not module.training
        assert not torch.is_grad_enabled()
        assert batch.dtype == torch.float64
        return module(batch.float())

    loop = feature_batches(
        images,
        extract,
        module=module,
        batch_size=4,
        precision=autocast,
        convert=torch.Tensor.double,
    )
    for _, features in loop:
        assert features.dtype == torch.bfloat16
        assert torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")
        assert [part.training for part in module.modules()] == modes
    assert torch.equal(torch.random.get_rng_state(), state)
    with pytest.raises(ZeroDivisionError):
        next(feature_batches(images, lambda batch: 1 / 0, module=module))  # type: ignore[arg-type,return-value]
    assert [part.training for part in module.modules()] == modes


def test_progress_counts_the_images_of_this_process() -> None:
    told: list[tuple[str, int, int]] = []
    with listening(lambda *words: told.append(words)):
        list(feature_batches(pictures(), torch.clone, batch_size=4, rank=1, world=2, title="pool"))
    assert told == [("pool", 0, 4), ("pool", 4, 4)]


def _sum_in(rank: int, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    values = None if rank == 1 else torch.arange(6, dtype=torch.float64).reshape(3, 2)
    total = summed_over_processes(values, 3)
    both = summed_over_processes(torch.full((3, 2), 1.0 + rank), 3)
    np.savez(f"{folder}/{rank}.npz", one=total.numpy(), both=both.numpy())
    torch.distributed.destroy_process_group()


def test_a_process_without_a_batch_learns_shape_and_type_from_the_others(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_sum_in, (str(tmp_path),), nprocs=2)
    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz") as found:
            assert found["one"].dtype == np.float64
            np.testing.assert_array_equal(found["one"], np.arange(6.0).reshape(3, 2))
            np.testing.assert_array_equal(found["both"], np.full((3, 2), 3.0))
