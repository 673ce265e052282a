"""Data sets of Hugging Face `datasets`: as sources of classes, and the rows of chosen classes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fsl_basesel.checks import installed
from fsl_basesel.data.datasets import DatasetSource
from fsl_basesel.errors import InputError

if TYPE_CHECKING:
    from fsl_basesel.selection import Selection


def is_hugging_face(data: Any) -> bool:
    """Whether `data` is a data set (or a dict of them) of the package `datasets`."""
    package = sys.modules.get("datasets")
    kinds = (getattr(package, name, ()) for name in ("Dataset", "DatasetDict"))
    return isinstance(data, tuple(kinds))


class _Rows:
    """Rows as (picture, label); opening one decodes one picture."""

    def __init__(self, data: Any, image: str, labels: list[Any]) -> None:
        self._data, self._image, self.targets = data.select_columns([image]), image, labels

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        return self._data[int(row)][self._image], self.targets[row]


def from_hugging_face(
    data: Any, image: str | None = None, label: str | None = None, **options: Any
) -> DatasetSource:
    """Classes from a data set of Hugging Face `datasets`.

    Args:
        data: the data set, one split of it.
        image: column of the pictures; None finds it.
        label: column of the labels; None finds it.
        options: `size`, `transform`, `on_corrupt`, `seed` of `from_dataset`.
    """
    image = _column(data, image, "Image", "image")
    label = _column(data, label, "ClassLabel", "label")
    labels = _labels(data, label)
    return DatasetSource(_Rows(data, image, labels), labels, **options)


def chosen_rows(data: Any, selection: Selection | Iterable[str], label: str | None = None) -> Any:
    """The rows of the chosen classes, with labels 0 to m - 1 in order of choice.

    Args:
        data: a data set of Hugging Face `datasets`, one split of it.
        selection: a selection, or names of classes.
        label: column of the labels; None finds it.

    Raises:
        InputError: if a chosen class has no row.
    """
    label = _column(data, label, "ClassLabel", "label")
    names = chosen_names(selection)
    titles = [str(value) for value in _labels(data, label)]
    missing = sorted(set(names) - set(titles))
    if missing:
        raise InputError(
            f"Expected rows of every chosen class but the data set has none of {missing[0]!r} "
            f"({len(missing)} of {len(names)} classes)."
        )
    number = {name: i for i, name in enumerate(names)}
    rows = [row for row, title in enumerate(titles) if title in number]
    labels = [number[titles[row]] for row in rows]
    kind = installed("datasets", "datasets").ClassLabel(names=names)
    return data.select(rows).remove_columns(label).add_column(label, labels, feature=kind)


def chosen_names(selection: Selection | Iterable[str]) -> list[str]:
    """Names of classes, of a selection or as given."""
    names = getattr(selection, "names", None) or selection
    return [str(name) for name in names]  # type: ignore[union-attr]


def _labels(data: Any, label: str) -> list[Any]:
    """The label of every row, by name where the data set knows names."""
    targets = np.asarray(data.with_format("numpy")[label][:])
    names = getattr(data.features[label], "names", None)
    if names is None:
        return targets.tolist()
    if len(targets) and not 0 <= targets.min() <= targets.max() < len(names):
        raise InputError(
            f"Expected a label from 0 to {len(names) - 1} in every row but got {targets.min()} to "
            f"{targets.max()}; leave unlabelled rows out."
        )
    return [str(names[c]) for c in targets.tolist()]


def _column(data: Any, name: str | None, kind: str, argument: str) -> str:
    """The column that is named, else the only one of a kind, else the one called `argument`."""
    package = installed("datasets", "datasets")
    if isinstance(data, package.DatasetDict):
        raise InputError(
            f"Expected one split of the data set but got all ({', '.join(data)}); take one, as in "
            f"data[{next(iter(data))!r}]."
        )
    columns = data.features
    found = [column for column in columns if isinstance(columns[column], getattr(package, kind))]
    if name is not None or (len(found) != 1 and argument in columns):
        found = [column for column in columns if column == (name or argument)]
    if len(found) != 1:
        raise InputError(
            f"Expected {'a column ' + repr(name) if name else f'one column of {argument}s'} but "
            f"the data set has {', '.join(found) or 'none'} among {', '.join(columns)}; name it "
            f"with `{argument}`."
        )
    return found[0]
