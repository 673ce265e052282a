"""Data modules that make their own pool, and the augmentation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from fsl_basesel.data import from_dataset, split_classes
from fsl_basesel.data.splitting import draw_parts
from fsl_basesel.errors import InputError
from lightning_modules.augment import CropAndFlip
from lightning_modules.sources import DatasetDataModule, GlyphDataModule, SplitDataModule
from tests.lightning_modules.runs import images_of

SMALL = {"per_class": 4, "preview": 2, "shots": 1, "queries": 1, "size": 8}


def test_glyph_parts_are_disjoint_and_belong_together() -> None:
    sizes = {"candidates": 12, "novel_classes": 4, "pretraining": 5}
    selecting = GlyphDataModule(**sizes, **SMALL)  # type: ignore[arg-type]
    pretraining = GlyphDataModule(part="pretraining", **sizes, **SMALL)  # type: ignore[arg-type]
    assert selecting.novel is not None
    parts = [selecting.pool.names, selecting.novel.names, pretraining.pool.names]
    assert [len(part) for part in parts] == [12, 4, 5]
    assert len({name for part in parts for name in part}) == 21
    assert pretraining.novel is None
    pretraining.train_dataloader()
    assert len(pretraining.classes) == 5
    general = GlyphDataModule(candidates=12, novel_classes=0, pretraining=5, **SMALL)  # type: ignore[arg-type]
    assert general.novel is None
    with pytest.raises(InputError, match="`part` to be one of candidates, pretraining but got 'x'"):
        GlyphDataModule(part="x")


def test_classes_are_divided_without_overlap_and_the_first_model_is_shared() -> None:
    source = images_of([f"class {c}" for c in range(20)])
    pool, task, first = draw_parts(source, 4, 7, 5, seed=1)
    assert task is not None
    assert first is not None
    assert [len(pool), len(task), len(first)] == [7, 4, 5]
    assert len({*pool.names, *task.names, *first.names}) == 16
    _, none, same = draw_parts(source, None, None, 5, seed=1)
    assert none is None
    assert same is not None
    assert same.names == first.names
    pool, task, _ = draw_parts(source, ["class 3", "class 9"], None, 0, seed=1)
    assert task is not None
    assert task.names == ("class 3", "class 9")
    assert len(pool) == 18
    with pytest.raises(InputError, match=r"at most 20 together, .* but got 10, 8 and 3"):
        draw_parts(source, 8, 3, 10, seed=0)


def test_split_classes_draws_the_classes_of_the_data_modules() -> None:
    data = labelled(20)
    drawn: dict[str, Any] = {"shots": 1, "preview": 2}
    for candidates, seed in ((10, 1), (None, 0)):
        novel: int | list[str]
        for novel in (5, ["3", "9"]):
            pool, task = split_classes(from_dataset(data), novel, candidates, seed, **drawn)
            module = DatasetDataModule(
                data, novel_classes=novel, candidate_classes=candidates, split_seed=seed, **drawn
            )
            assert module.novel is not None
            assert (pool.names, task.names) == (module.pool.names, module.novel.names)


def labelled(classes: int, first: int = 0) -> TensorDataset:
    data = TensorDataset(torch.rand(classes * 5, 1, 8, 8))
    data.targets = [first + i // 5 for i in range(classes * 5)]  # type: ignore[attr-defined]
    return data


def test_a_data_set_may_hold_the_novel_classes_too_or_another_one_may() -> None:
    options = {"shots": 2, "queries": 2, "preview": 3}
    one = DatasetDataModule(labelled(8), novel_classes=3, **options)  # type: ignore[arg-type]
    assert one.novel is not None
    assert (len(one.pool), len(one.novel)) == (5, 3)
    two = DatasetDataModule(labelled(8), labelled(4, first=10), novel_classes=2, **options)  # type: ignore[arg-type]
    assert two.novel is not None
    assert (len(two.pool), len(two.novel)) == (8, 2)
    assert all(int(name) >= 10 for name in two.novel.names)
    with pytest.raises(InputError, match=r"`novel_classes` from 1 to 4, .* but got 9"):
        DatasetDataModule(labelled(8), labelled(4, first=10), novel_classes=9, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`pretraining` of at least 1"):
        DatasetDataModule(labelled(8), part="pretraining", **options)  # type: ignore[arg-type]


def test_every_image_is_shifted_and_mirrored_on_its_own() -> None:
    height, width, padding = 6, 7, 2
    image = torch.arange(height * width).float().reshape(1, 1, height, width)
    images = image.repeat(200, 2, 1, 1)
    torch.manual_seed(0)
    changed = CropAndFlip(padding)(images)
    assert changed.shape == images.shape
    assert torch.equal(changed[:, 0], changed[:, 1])  # channels go together
    padded = torch.nn.functional.pad(image, [padding] * 4, mode="replicate")[0, 0]
    possible = set()
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            cut = padded[top : top + height, left : left + width]
            possible |= {tuple(cut.flatten().tolist()), tuple(cut.flip(1).flatten().tolist())}
    seen = {tuple(picture.flatten().tolist()) for picture in changed[:, 0]}
    assert seen <= possible
    assert len(seen) > 40  # of 50
    assert torch.equal(CropAndFlip(0, flip=False)(images), images)
    with pytest.raises(InputError, match="`padding` to be at least 0"):
        CropAndFlip(-1)


def test_a_narrow_task_is_drawn_among_some_classes_and_leaves_the_others_in_the_pool() -> None:
    def made(seed: int, **options: Any) -> SplitDataModule:
        sizes = {"preview": 1, "shots": 1, "queries": 1, "split_seed": seed}
        return SplitDataModule(images_of(list("abcdefgh")), **(sizes | options))

    tasks = set()
    for seed in range(8):
        data = made(seed, novel_classes=2, novel_among=["b", "d", "h"])
        assert data.novel is not None
        assert set(data.novel.names) < {"b", "d", "h"}
        assert len(data.pool) == 6
        assert not set(data.novel.names) & set(data.pool.names)
        tasks.add(frozenset(data.novel.names))
    assert len(tasks) > 1
    first = made(0, novel_classes=3, novel_among=3).novel
    assert first is not None
    assert set(first.names) == set("abc")
    with pytest.raises(InputError, match="`novel_classes` from 1 to 3, the classes there are"):
        made(0, novel_classes=4, novel_among=3)
    with pytest.raises(InputError, match="`novel_among` with a number of `novel_classes`"):
        made(0, novel_classes=["a"], novel_among=3)
