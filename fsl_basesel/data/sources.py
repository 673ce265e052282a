"""Images of classes from any input: folders, sources, pools, tasks, data sets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image

from fsl_basesel.checks import installed, integer
from fsl_basesel.data.datasets import from_dataset
from fsl_basesel.data.folder import image_folder
from fsl_basesel.data.hugging_face import from_hugging_face, is_hugging_face
from fsl_basesel.data.novel import NovelTask
from fsl_basesel.data.pool import ClassPool
from fsl_basesel.data.source import ImageSet, ImageSource, first_images
from fsl_basesel.errors import InputError

Source: TypeAlias = "str | os.PathLike[str] | ImageSource | ClassPool | NovelTask | Any"


def as_source(source: Source, seed: int = 0, on_corrupt: str = "raise") -> ImageSource:
    """A source of `fsl_basesel.data` for a folder, a pool, a task or a data set.

    `seed` and `on_corrupt` count where `source` is not a source of `fsl_basesel.data` already.
    """
    if isinstance(source, ImageSource):
        return source
    if isinstance(source, ClassPool | NovelTask):
        return source.source
    if isinstance(source, str | os.PathLike):
        saved = (Path(source, name).is_file() for name in ("dataset_dict.json", "state.json"))
        if not any(saved):
            return image_folder(source, on_corrupt=on_corrupt, seed=seed)
        source = installed("datasets", "datasets").load_from_disk(str(source))
    if is_hugging_face(source):
        return from_hugging_face(source, on_corrupt=on_corrupt, seed=seed)
    if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return from_dataset(source, on_corrupt=on_corrupt, seed=seed)
    raise InputError(
        "Expected a folder of class folders, a source, a pool, a task or a data set but got "
        f"{type(source).__name__}."
    )


def images_of(
    source: Source,
    change: Callable[[Image.Image], torch.Tensor],
    per_class: int | None,
    seed: int,
    on_corrupt: str,
) -> tuple[ImageSet, bool]:
    """The images of each class to look at, labelled with the class number.

    `change` is the preprocessing of the network. Also returned is whether it is applied to
    the images; it is not if a source gives tensors. Without `per_class` all images are taken.
    """
    if per_class is not None:
        integer(per_class, "per_class", 1)
    plain = as_source(source, seed, on_corrupt)
    changed = plain.with_transform(change)
    used = plain if changed is None else changed
    if isinstance(source, NovelTask):
        support = source.support_set()
        images = ImageSet(used, support.classes, support.items, support.labels)
        return images, changed is not None
    everything = range(len(used))
    used.prepare(everything, per_class)
    counts = used.sizes if per_class is None else np.minimum(used.sizes, per_class)
    empty = np.flatnonzero(counts < 1)
    if len(empty):
        raise InputError(
            f"Expected a readable image in every class but {used.names[empty[0]]!r} has none "
            f"({len(empty)} of {len(used)} classes); add images or remove the class."
        )
    return first_images(used, everything, counts, everything), changed is not None
