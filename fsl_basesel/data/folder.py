"""Classes from a tree of picture files, one folder per class."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fsl_basesel.data.reading import (
    PLUGINS,
    ReadSource,
    as_tensor,
    extensions,
    fit,
    in_random_order,
    open_picture,
    text_of,
)
from fsl_basesel.errors import InputError

_NO_CLASSES = ("__MACOSX",)  # folders that archives of macOS bring along
_PARTS = frozenset("train training val valid validation test testing dev eval".split())


class FolderSource(ReadSource):
    """Classes from folders: every folder in `path` is a class, every picture below it an image.

    `image_folder` is another name for it. Nothing is decoded until images are asked for. Links are
    followed, each folder once. Hidden files and `__MACOSX` are passed over. How pictures are read
    is said at `reading.upright`.

    Args:
        path: folder with one folder for each class.
        size: side of the square images: the shorter side is brought to it, the middle is cut out.
        channels: 3 for colour, 1 for grey.
        transform: what to do with a decoded PIL picture instead; it must give tensors of one
            shape, and the same one each time.
        on_corrupt: "raise" or "skip", see `ReadSource`.
        seed: seed of the order of a class's images, of which the first are its preview.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as root:
        ...     for name in ("cat", "dog"):
        ...         os.mkdir(os.path.join(root, name))
        ...         Image.new("RGB", (100, 90)).save(os.path.join(root, name, "1.png"))
        ...     source = image_folder(root, size=32)
        ...     source.names, tuple(source.images(np.array([0]), np.array([0])).shape)
        (('cat', 'dog'), (1, 3, 32, 32))
    """

    threads = min(32, (os.cpu_count() or 1) + 4)

    def __init__(
        self,
        path: str | os.PathLike[str],
        size: int = 84,
        channels: int = 3,
        transform: Callable[[Any], Any] | None = None,
        on_corrupt: str = "raise",
        seed: int = 0,
    ) -> None:
        if size < 1 or channels not in (1, 3):
            raise InputError(
                "Expected `size` of at least 1 and `channels` of 1 or 3 but got "
                f"size={size} and channels={channels}."
            )
        self.root = Path(path)
        self.size, self.channels, self.transform = int(size), channels, transform
        found = class_index(self.root)
        names = list(found)
        # A long string a class: a list of a million paths would be copied into every worker.
        self._files = ["\0".join(found[name]) for name in names]
        members = [in_random_order(name, np.arange(len(found[name])), seed) for name in names]
        settings = repr((self.size, channels, int(seed)))
        if transform is not None:
            settings += text_of(transform)
        super().__init__(names, members, on_corrupt, [settings, *self._files])

    def read(self, class_number: int, member: int) -> torch.Tensor:
        """Decode one file and bring it to size."""
        picture = open_picture(self.describe(class_number, member), self.channels)
        change = self.transform
        return as_tensor(fit(picture, self.size) if change is None else change(picture))

    def with_transform(self, transform: Callable[[Any], torch.Tensor]) -> FolderSource | None:
        """The same files with a transform in place of the resizing."""
        if self.transform is not None:
            return None
        channels = getattr(transform, "channels", self.channels)
        return self.changed(transform=transform, channels=channels)  # type: ignore[return-value]

    def describe(self, class_number: int, member: int) -> str:
        """Path of a file."""
        file = self._files[class_number].split("\0")[member]
        return os.path.join(self.root, self.names[class_number], file)

    def add_files(self, class_number: int, files: list[str]) -> None:
        """Give a class further pictures, named by full path, after those it has."""
        known = self._files[class_number].count("\0") + 1
        self._files[class_number] = "\0".join([self._files[class_number], *files])
        new = known + np.arange(len(files))
        self._members[class_number] = np.concatenate([self._members[class_number], new])
        self.sizes[class_number] += len(files)


image_folder = FolderSource


def is_picture(entry: os.DirEntry[str]) -> bool:
    """Whether a name in a folder is that of a picture file, judged without opening it.

    Pipes and devices are none. A link that leads nowhere counts, so that it is named when read.
    """
    if entry.name.startswith(".") or not entry.name.lower().endswith(extensions()):
        return False
    return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))


def class_index(root: Path) -> dict[str, list[str]]:
    """For each class folder in `root` its picture files, as paths below that folder, sorted."""
    if not root.is_dir():
        found = "a file" if root.exists() else "missing"
        raise InputError(
            f"Expected a folder of class folders but {str(root)!r} is {found}; name the folder "
            "that has one folder of pictures for each class."
        )
    try:
        index, unread = _scan(root)
    except OSError as error:
        raise InputError(
            f"Expected folders that can be read but {error.filename!r} cannot "
            f"({error.strerror}); change its permissions or remove it."
        ) from error
    if unread:
        listed = " and ".join(f"{count} {ending}" for ending, count in sorted(unread.items()))
        needed = " and ".join(sorted({PLUGINS[ending] for ending in unread}))
        warnings.warn(
            f"{listed} file(s) in {str(root)!r} cannot be read here and are passed over; install "
            f"{needed} to use them.",
            stacklevel=3,
        )
    if not index:
        with os.scandir(root) as entries:
            direct = sum(map(is_picture, entries))
        has = f"{direct} pictures and no folder" if direct else "none"
        raise InputError(
            f"Expected class folders in {str(root)!r} but there are {has}; put the images of "
            "each class into a folder of its own and name the folder that has all of these."
        )
    _require_classes(root, index)
    empty = [name for name, files in index.items() if not files]
    if empty:
        raise InputError(
            f"Expected pictures ({', '.join(extensions())}) in every class folder but "
            f"{str(root / empty[0])!r} has none ({len(empty)} of {len(index)} folders); add some "
            "or remove the folder."
        )
    return index


def _require_classes(root: Path, index: dict[str, list[str]]) -> None:
    """Refuse a folder whose own folders are the parts of a data set and not its classes.

    Its folders have no pictures of their own but folders of pictures, and more of those than there
    are such folders; or they are called train, val and the like. Classes with folders of their own
    are possible (day and night of every class), so where it is less clear a warning is given.
    """
    filled = [name for name, files in index.items() if files]
    below: dict[str, set[str]] = {}
    for name in filled:
        tops = {file.partition(os.sep)[0] if os.sep in file else "" for file in index[name]}
        if "" not in tops:
            below[name] = tops
    inner = sum(map(len, below.values()))
    parts = len(filled) > 1 and all(name.lower() in _PARTS for name in filled)
    if not below or not (parts or (len(below) == len(filled) < inner)):
        return
    listed = [f"{str(root / name)!r} ({len(tops)} classes)" for name, tops in below.items()]
    if parts or inner >= len(filled) ** 2:
        shown = " or ".join(listed[:4]) + (" or ..." if len(listed) > 4 else "")
        raise InputError(
            f"Expected class folders in {str(root)!r} but its folders ({', '.join(filled[:4])}) "
            f"have class folders of their own; give {shown} instead."
        )
    warnings.warn(
        f"The {len(filled)} folders in {str(root)!r} are taken as classes although each has only "
        f"folders in it; if those are the classes, give {listed[0]} instead.",
        stacklevel=4,
    )


def _scan(root: Path) -> tuple[dict[str, list[str]], Counter[str]]:
    """Files of every class, and how many of each ending no reader is there for."""
    unread: Counter[str] = Counter()
    missing = tuple(ending for ending in PLUGINS if ending not in extensions())
    with os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries if _is_class_folder(entry))
    above = {_identity(folder) for folder in (root.resolve(), *root.resolve().parents)}
    index: dict[str, list[str]] = {}
    for name in names:
        visited, waiting = set(above), [name]  # a link to a folder above would never end
        while waiting:
            folder = waiting.pop()
            identity = _identity(root / folder)
            if identity in visited:
                continue
            visited.add(identity)
            files = index.setdefault(name, [])
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    path = os.path.join(folder, entry.name)
                    if _is_class_folder(entry):
                        waiting.append(path)
                    elif is_picture(entry):
                        files.append(path[len(name) + 1 :])
                    elif entry.name.lower().endswith(missing) and entry.name[0] != ".":
                        unread[os.path.splitext(entry.name)[1].lower()] += 1
    return {name: sorted(files) for name, files in index.items()}, unread


def _is_class_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and not entry.name.startswith(".") and entry.name not in _NO_CLASSES


def _identity(folder: Path) -> tuple[int, int]:
    found = os.stat(folder)
    return found.st_dev, found.st_ino
