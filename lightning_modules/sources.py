"""Data modules that make their own pool, so that a YAML file can define everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

from fsl_basesel import checks
from fsl_basesel.data import (
    ClassPool,
    ImageSource,
    LabellingQueue,
    NovelTask,
    from_dataset,
    glyph_splits,
    image_folder,
)
from fsl_basesel.data.splitting import draw_novel, draw_parts
from fsl_basesel.errors import InputError
from lightning_modules.data import BaseClassDataModule

PARTS = ("candidates", "pretraining")


class GlyphDataModule(BaseClassDataModule):
    """The embedded data set of written characters; nothing is downloaded.

    Args:
        domain: "plain", "transfer" or "fine"; see `fsl_basesel.data.glyph_splits`.
        candidates: number of candidate classes.
        novel_classes: number of novel classes; 0 is General Selection.
        pretraining: number of classes to train a first model on, disjoint from the others.
        part: "candidates" to select from the candidates, "pretraining" to train on the
            pre-training classes.
        split_seed: seed of the split and of all images.
        preview: images a candidate shows before it is chosen.
        per_class: images of a class.
        shots: support images of a novel class.
        queries: test images of a novel class.
        size: side of the images in pixels.
        options: see `BaseClassDataModule`.

    Example:
        >>> data = GlyphDataModule(candidates=20, novel_classes=5, pretraining=5, batch_size=8)
        >>> len(data.pool), len(data.novel), data.batch_size
        (20, 5, 8)
    """

    def __init__(
        self,
        domain: str = "plain",
        candidates: int = 400,
        novel_classes: int = 100,
        pretraining: int = 100,
        part: str = "candidates",
        split_seed: int = 0,
        preview: int = 50,
        per_class: int = 500,
        shots: int = 20,
        queries: int = 100,
        size: int = 28,
        **options: Any,
    ) -> None:
        checks.one_of(part, PARTS, "part")
        numbers: dict[str, Any] = {"preview": preview, "per_class": per_class, "size": size}
        numbers |= {"shots": shots, "queries": queries}
        splits = glyph_splits(
            domain, candidates, max(1, novel_classes), pretraining, split_seed, **numbers
        )
        pool, novel = splits.candidates, splits.novel if novel_classes else None
        if part == "pretraining":
            pool, novel = splits.pretraining, None
        super().__init__(pool, novel, **options)


class SplitDataModule(BaseClassDataModule):
    """Classes of one source or of two, divided into candidates, novel and pre-training classes.

    Args:
        source: the candidate classes, or a pool of them that is not to be divided.
        novel_source: the novel classes, where they have a source of their own.
        novel_classes: which novel classes, or how many at random: of `novel_source` if there is
            one, else of `source`. None takes all of `novel_source`, or is General Selection.
        novel_among: draw the novel classes among these classes of `source`, or among its first so
            many, for a narrow task; those that are not drawn stay candidates.
        candidate_classes: how many of the others to draw as candidates; None takes them all.
        pretraining: how many classes to set aside to train a first model on.
        part: "candidates" to select from the candidates, "pretraining" to train on the
            pre-training classes.
        split_seed: seed of all draws of classes and images.
        preview: images a candidate shows before it is chosen; None is 50, or all it has.
        shots: support images of a novel class.
        queries: test images of a novel class.
        options: see `BaseClassDataModule`.
    """

    def __init__(
        self,
        source: ImageSource | ClassPool,
        novel_source: ImageSource | None = None,
        novel_classes: int | list[str] | None = None,
        candidate_classes: int | None = None,
        pretraining: int = 0,
        part: str = "candidates",
        split_seed: int = 0,
        preview: int | None = None,
        shots: int = 20,
        queries: int = 100,
        novel_among: int | list[str] | None = None,
        **options: Any,
    ) -> None:
        checks.one_of(part, PARTS, "part")
        here: int | Sequence[int | str] | None = novel_classes if novel_source is None else None
        if novel_among is not None:
            if not isinstance(here, int) or isinstance(source, ClassPool):
                raise InputError(
                    "Expected `novel_among` with a number of `novel_classes` of the same source "
                    f"but got {novel_classes!r}; leave one of them out."
                )
            here = draw_novel(source, here, split_seed, novel_among)
        target: ImageSource | None = None
        if isinstance(source, ClassPool):
            if candidate_classes is not None or pretraining or here:
                raise InputError(
                    "Expected `labelled` without `candidate_classes`, `pretraining` and novel "
                    "classes of `path`, since people label classes of the whole folder; use "
                    "`novel_path` for the task."
                )
            pool = source
        else:
            candidates, target, first = draw_parts(
                source, here, candidate_classes, pretraining, split_seed
            )
            if part == "pretraining":
                if first is None:
                    raise InputError("Expected `pretraining` of at least 1 for part 'pretraining'.")
                pool = ClassPool(first, preview)
                pool.expand(range(len(pool)))
                super().__init__(pool, None, **options)
                return
            pool = ClassPool(candidates, preview)
        if novel_source is not None:
            target = novel_source
            if novel_classes is not None:
                target = target.subset(draw_novel(target, novel_classes, split_seed))
        novel = None if target is None else NovelTask(target, shots, queries, seed=split_seed)
        super().__init__(pool, novel, **options)


class ImageFolderDataModule(SplitDataModule):
    """Pictures in folders, one folder per class: ImageNet, Caltech256, CUB, your own.

    Args:
        path: folder with one folder for each candidate class.
        novel_path: the same for the novel classes, where they have a tree of their own.
        labelled: folder in which people put the images of chosen classes; `path` then has the
            previews. See `fsl_basesel.data.LabellingQueue`.
        queue: file that lists the classes to label.
        needed: images of a class to wait for.
        size: side of the images in pixels.
        channels: 3 for colour, 1 for grey.
        on_corrupt: "raise" or "skip" for images that cannot be read.
        split_seed: seed of all draws of classes and images.
        preview: images a candidate shows before it is chosen; None is 50, or all it has.
        options: see `SplitDataModule`.
    """

    def __init__(
        self,
        path: str,
        novel_path: str | None = None,
        *,
        labelled: str | None = None,
        queue: str = "classes-to-label.json",
        needed: int = 1,
        size: int = 84,
        channels: int = 3,
        on_corrupt: str = "raise",
        split_seed: int = 0,
        preview: int | None = None,
        **options: Any,
    ) -> None:
        pictures: dict[str, Any] = {"size": size, "channels": channels}
        pictures |= {"on_corrupt": on_corrupt, "seed": split_seed}
        source: ImageSource | ClassPool = (
            image_folder(path, **pictures)
            if labelled is None
            else LabellingQueue(path, labelled, queue, needed=needed, preview=preview, **pictures)
        )
        novel = None if novel_path is None else image_folder(novel_path, **pictures)
        super().__init__(source, novel, split_seed=split_seed, preview=preview, **options)


class DatasetDataModule(SplitDataModule):
    """A data set of torchvision or learn2learn, such as Omniglot.

    Args:
        dataset: the data set with the candidate classes.
        novel_dataset: the data set with the novel classes, if another.
        size: side of the images, for data sets that give pictures of various sizes.
        split_seed: seed of all draws of classes and images.
        options: see `SplitDataModule`.
    """

    def __init__(
        self,
        dataset: Dataset,
        novel_dataset: Dataset | None = None,
        *,
        size: int | None = None,
        split_seed: int = 0,
        **options: Any,
    ) -> None:
        novel = None
        if novel_dataset is not None:
            novel = from_dataset(novel_dataset, size=size, seed=split_seed)
        source = from_dataset(dataset, size=size, seed=split_seed)
        super().__init__(source, novel, split_seed=split_seed, **options)
