"""The chosen classes of a folder, ready for any training loop."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import Any

from torchvision.datasets import ImageFolder

from fsl_basesel.data.hugging_face import chosen_names
from fsl_basesel.data.reading import extensions, open_picture
from fsl_basesel.errors import InputError
from fsl_basesel.selection import Selection


class ChosenFolder(ImageFolder):
    """A torchvision `ImageFolder` of some classes; see `chosen_folder`."""

    def __init__(self, root: str, names: list[str], **options: Any) -> None:
        self._names = names
        loader = partial(open_picture, channels=3)
        own: dict[str, Any] = {"loader": loader, "is_valid_file": _is_picture}
        super().__init__(root, **own | options)

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
    names = chosen_names(selection)
    missing = [name for name in names if not os.path.isdir(os.path.join(path, name))]
    if missing:
        raise InputError(
            f"Expected a folder for every chosen class in {os.fspath(path)!r} but there is none "
            f"for {missing[0]!r} ({len(missing)} of {len(names)} classes)."
        )
    return ChosenFolder(os.fspath(path), names, **options)


def _is_picture(path: str) -> bool:
    return not os.path.basename(path).startswith(".") and path.lower().endswith(extensions())
