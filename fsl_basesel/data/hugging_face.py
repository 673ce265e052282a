"""Data sets of Hugging Face `datasets` as sources of classes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fsl_basesel.data.datasets import DatasetSource, from_dataset
from fsl_basesel.errors import InputError


def is_hugging_face(data: Any) -> bool:
    """Whether `data` is a data set (or a dict of them) of the package `datasets`."""
    package = sys.modules.get("datasets")
    known = () if package is None else (package.Dataset, package.DatasetDict)
    return isinstance(data, known)


def was_saved(path: str | os.PathLike[str]) -> bool:
    """Whether a folder was written by `Dataset.save_to_disk`."""
    return any((Path(path) / name).is_file() for name in ("dataset_dict.json", "state.json"))


def load_saved(path: str | os.PathLike[str]) -> Any:
    """The data set in such a folder."""
    return installed_datasets().load_from_disk(str(path))


def installed_datasets() -> Any:
    """The package `datasets`."""
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise InputError(
            "Expected Hugging Face datasets to be installed; run `pip install "
            "'fsl-basesel[datasets]'`."
        ) from None


class _Rows:
    """Rows as (picture, label); opening one decodes one picture."""

    def __init__(self, data: Any, image: str, label: str) -> None:
        self._data, self._image = data, image
        self.targets = np.asarray(data.with_format("numpy")[label][:])

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        return self._data[int(row)][self._image], self.targets[row]


def from_hugging_face(
    data: Any,
    image: str | None = None,
    label: str | None = None,
    **options: Any,
) -> DatasetSource:
    """Classes from a data set of Hugging Face `datasets`.

    Args:
        data: the data set, one split of it.
        image: column of the pictures; None finds it.
        label: column of the labels; None finds it.
        options: `size`, `transform`, `on_corrupt`, `seed` of `from_dataset`.
    """
    image, label = find_columns(data, image, label)
    names = getattr(data.features[label], "names", None)
    rows = _Rows(data.select_columns([image, label]), image, label)
    if names is not None:
        present = np.unique(rows.targets).tolist()
        options |= {"labels": [str(names[c]) for c in rows.targets.tolist()]}
        if present and (present[0] < 0 or present[-1] >= len(names)):
            raise InputError(
                f"Expected a label from 0 to {len(names) - 1} in every row but got {present[0]} to "
                f"{present[-1]}; leave unlabelled rows out."
            )
    return from_dataset(rows, **options)


def find_columns(
    data: Any, image: str | None, label: str | None, needs_image: bool = True
) -> tuple[str, str]:
    """The columns of pictures and labels, where they are not named."""
    package = installed_datasets()
    if isinstance(data, package.DatasetDict):
        raise InputError(
            f"Expected one split of the data set but got all ({', '.join(data)}); take one, as in "
            f"data[{next(iter(data))!r}]."
        )
    if image is None:
        image = _only(data, package.Image, "image", "pictures") if needs_image else ""
    if label is None:
        label = _only(data, package.ClassLabel, "label", "labels")
    missing = [name for name in (image, label) if name and name not in data.features]
    if missing:
        raise InputError(
            f"Expected a column {missing[0]!r} but the data set has {', '.join(data.features)}."
        )
    return image, label


def _only(data: Any, kind: type, argument: str, what: str) -> str:
    """The only column of a kind, or the one that is called as the argument."""
    found: Sequence[str] = [
        name for name, value in data.features.items() if isinstance(value, kind)
    ]
    if len(found) != 1:
        found = [argument] if argument in data.features else found
    if len(found) != 1:
        raise InputError(
            f"Expected one column of {what} but the data set has {', '.join(found) or 'none'} "
            f"among {', '.join(data.features)}; name it with `{argument}`."
        )
    return found[0]
