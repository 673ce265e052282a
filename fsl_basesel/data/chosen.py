"""The chosen classes of a folder or a data set, ready for any training loop."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from torchvision.datasets import ImageFolder

from fsl_basesel.data.hugging_face import find_columns, installed_datasets
from fsl_basesel.data.reading import extensions, open_picture
from fsl_basesel.errors import InputError
from fsl_basesel.selection import Selection


class ChosenFolder(ImageFolder):
    """A torchvision `ImageFolder` of some classes; see `chosen_folder`."""

    def __init__(self, root: str, names: list[str], **options: Any) -> None:
        self._names = names
        super().__init__(root, **{"loader": _open, "is_valid_file": _is_picture, **options})

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        """The chosen classes in their order."""
        return self._names, {name: number for number, name in enumerate(self._names)}


def chosen_folder(
    path: str | os.PathLike[str], selection: Selection | Iterable[str], **options: Any
) -> ChosenFolder:
    """A torchvision `ImageFolder` of the chosen classes, with labels 0 to m - 1 in order of choice.

    Args:
        path: folder with one folder for each class.
        selection: a selection, or names of classes.
        options: `transform`, `target_transform` and others of `ImageFolder`.

    Raises:
        InputError: if a chosen class has no folder.
    """
    names = _names(selection)
    missing = [name for name in names if not os.path.isdir(os.path.join(path, name))]
    if missing:
        raise InputError(
            f"Expected a folder for every chosen class in {os.fspath(path)!r} but there is none "
            f"for {missing[0]!r} ({len(missing)} such)."
        )
    return ChosenFolder(os.fspath(path), names, **options)


def chosen_rows(data: Any, selection: Selection | Iterable[str], label: str | None = None) -> Any:
    """The rows of the chosen classes, with labels 0 to m - 1 in order of choice.

    Args:
        data: a data set of Hugging Face `datasets`, one split of it.
        selection: a selection, or names of classes.
        label: column of the labels; None finds it.

    Raises:
        InputError: if a chosen class has no row.
    """
    _, label = find_columns(data, None, label, needs_image=False)
    names = _names(selection)
    own = getattr(data.features[label], "names", None)
    targets = np.asarray(data.with_format("numpy")[label][:]).tolist()
    titles = [str(value if own is None else own[value]) for value in targets]
    missing = sorted(set(names) - set(titles))
    if missing:
        raise InputError(
            f"Expected rows of every chosen class but the data set has none of {missing[0]!r} "
            f"({len(missing)} such)."
        )
    number = {name: i for i, name in enumerate(names)}
    rows = [row for row, title in enumerate(titles) if title in number]
    labels = [number[titles[row]] for row in rows]
    kind = installed_datasets().ClassLabel(names=names)
    return data.select(rows).remove_columns(label).add_column(label, labels, feature=kind)


def _names(selection: Selection | Iterable[str]) -> list[str]:
    return list(selection.names if isinstance(selection, Selection) else map(str, selection))


def _open(path: str) -> Any:
    return open_picture(path, 3)


def _is_picture(path: str) -> bool:
    return not os.path.basename(path).startswith(".") and path.lower().endswith(extensions())
