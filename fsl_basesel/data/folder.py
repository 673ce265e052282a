"""Classes from a tree of picture files, one folder per class."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fsl_basesel.data import cache
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

_FORMAT = 2
_NO_CLASSES = ("__MACOSX",)  # folders that archives of macOS bring along
_PARTS = frozenset("train training val valid validation test testing dev eval".split())
_SETTLED_NS = 2_000_000_000  # a folder touched more recently than this may change unseen


class FolderSource(ReadSource):
    """Pictures in folders; see `image_folder`."""

    threads = min(32, (os.cpu_count() or 1) + 4)

    def __init__(
        self,
        root: str | os.PathLike[str],
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
        self.root = Path(root)
        self.size, self.channels, self.transform = int(size), channels, transform
        found = class_index(self.root)
        names = list(found)
        # A long string a class: a list of a million paths would be copied into every worker.
        self._files = ["\0".join(found[name]) for name in names]
        self._split: tuple[int, list[str]] = (-1, [])  # the files of the class last asked for
        members = [in_random_order(name, np.arange(len(found[name])), seed) for name in names]
        settings = repr((self.size, channels, int(seed)))
        if transform is not None:
            settings += text_of(transform)
        super().__init__(names, members, on_corrupt, [settings, *self._files])

    def read(self, class_number: int, member: int) -> torch.Tensor:
        """Decode one file and bring it to size."""
        return self._finish(open_picture(self.describe(class_number, member), self.channels))

    def _finish(self, picture: Any) -> torch.Tensor:
        if self.transform is None:
            return as_tensor(fit(picture, self.size))
        return as_tensor(self.transform(picture))

    def with_transform(self, transform: Callable[[Any], torch.Tensor]) -> FolderSource | None:
        """The same files with a transform in place of the resizing."""
        if self.transform is not None:
            return None
        channels = getattr(transform, "channels", self.channels)
        return self.changed(transform=transform, channels=channels)  # type: ignore[return-value]

    def describe(self, class_number: int, member: int) -> str:
        """Path of a file."""
        split = self._split  # another thread may replace it
        if split[0] != class_number:
            self._split = split = class_number, self._files[class_number].split("\0")
        return os.path.join(self.root, self.names[class_number], split[1][member])

    def add_files(self, class_number: int, files: list[str]) -> None:
        """Give a class further pictures, named by full path, after those it has."""
        known = self._files[class_number].count("\0") + 1
        self._files[class_number] = "\0".join([self._files[class_number], *files])
        self._split = (-1, [])
        new = known + np.arange(len(files))
        self._members[class_number] = np.concatenate([self._members[class_number], new])
        self.sizes[class_number] += len(files)


def image_folder(
    path: str | os.PathLike[str],
    size: int = 84,
    channels: int = 3,
    transform: Callable[[Any], Any] | None = None,
    on_corrupt: str = "raise",
    seed: int = 0,
) -> FolderSource:
    """Classes from folders: every folder in `path` is a class, every picture below it an image.

    Nothing is decoded until images are asked for. The list of files is kept in the cache folder
    and used again while no folder has changed. Links are followed, each folder once. Hidden files
    and `__MACOSX` are passed over. How pictures are read is said at `reading.upright`.

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
    return FolderSource(path, size, channels, transform, on_corrupt, seed)


def is_picture(entry: os.DirEntry[str]) -> bool:
    """Whether a name in a folder is that of a picture file, as far as can be told from outside.

    Pipes and devices are none. A link that leads nowhere counts, so that it is named when read.
    """
    if entry.name.startswith(".") or not entry.name.lower().endswith(extensions()):
        return False
    return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))


def class_index(root: Path) -> dict[str, list[str]]:
    """For each class folder in `root` its picture files, as paths below that folder, sorted.

    Raises:
        InputError: if there is no such folder, no class folder in it, one without pictures, or if
            the class folders seem to be one level further down.
    """
    if not root.is_dir():
        raise InputError(f"Expected a folder of class folders but {str(root)!r} is not a folder.")
    name = f"folder-{cache.fingerprint([str(root.resolve())])}.json"
    stored = _load_index(name, root)
    if stored is None:
        started = time.time_ns()
        index, folders, unread = _scan(root)
        stored = {
            "format": _FORMAT,
            "extensions": list(extensions()),
            "folders": folders,
            "classes": index,
            "unread": unread,
        }
        if max(folders.values()) < started - _SETTLED_NS:
            text = json.dumps(stored).encode()  # escapes, so file names of any bytes survive
            cache.store(name, lambda file: file.write(text))
    index, unread = stored["classes"], stored["unread"]
    for ending, count in unread.items():
        warnings.warn(
            f"{count} {ending} file(s) in {str(root)!r} cannot be read here and are passed over; "
            f"install {PLUGINS[ending]} to use them.",
            stacklevel=3,
        )
    if not index:
        with os.scandir(root) as entries:
            direct = sum(map(is_picture, entries))
        found = f"{direct} pictures and no folder" if direct else "none"
        raise InputError(
            f"Expected class folders in {str(root)!r} but there are {found}; put the images of "
            "each class into a folder of its own and name the folder that has all of these."
        )
    _require_classes(root, index)
    empty = [name for name, files in index.items() if not files]
    if empty:
        raise InputError(
            f"Expected pictures ({', '.join(extensions())}) in every class folder but "
            f"{str(root / empty[0])!r} has none ({len(empty)} such); add some or remove the folder."
        )
    return index


def _require_classes(root: Path, index: dict[str, list[str]]) -> None:
    """Refuse a folder whose own folders are the parts of a data set and not its classes."""
    filled = [name for name, files in index.items() if files]
    if len(filled) != 1 and not all(name.lower() in _PARTS for name in filled):
        return
    below = {}
    for name in filled:
        tops = {file.partition(os.sep)[0] if os.sep in file else "" for file in index[name]}
        if "" not in tops and (len(filled) > 1 or len(tops) > 1):
            below[name] = len(tops)
    if below:
        listed = " or ".join(f"{str(root / n)!r} ({c} classes)" for n, c in below.items())
        raise InputError(
            f"Expected class folders in {str(root)!r} but {', '.join(filled)} in it has class "
            f"folders of its own; give {listed} instead."
        )


def _load_index(name: str, root: Path) -> dict[str, Any] | None:
    """The index from the cache, or None where there is none or a folder has changed since."""
    try:
        stored = json.loads((cache.cache_folder() / name).read_bytes())
        if stored["format"] != _FORMAT or stored["extensions"] != list(extensions()):
            return None
        for folder, changed in stored["folders"].items():
            if os.stat(root / folder).st_mtime_ns != changed:
                return None
        stored["classes"], stored["unread"] = dict(stored["classes"]), dict(stored["unread"])
        return stored
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _scan(root: Path) -> tuple[dict[str, list[str]], dict[str, int], dict[str, int]]:
    """Files of every class, when each folder last changed, and how many no reader is there for."""
    changed = {".": os.stat(root).st_mtime_ns}
    unread: dict[str, int] = {}
    missing = tuple(ending for ending in PLUGINS if ending not in extensions())
    with os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries if _is_class_folder(entry))
    above = {_identity(folder) for folder in (root.resolve(), *root.resolve().parents)}
    index: dict[str, list[str]] = {}
    for name in names:
        visited, waiting = set(above), [name]  # a link to a folder above would never end
        files: list[str] = []
        while waiting:
            folder = waiting.pop()
            identity = _identity(root / folder)
            if identity in visited:
                continue
            visited.add(identity)
            changed[folder] = os.stat(root / folder).st_mtime_ns
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    path = os.path.join(folder, entry.name)
                    if _is_class_folder(entry):
                        waiting.append(path)
                    elif is_picture(entry):
                        files.append(path[len(name) + 1 :])
                    elif missing and entry.name.lower().endswith(missing):
                        ending = os.path.splitext(entry.name)[1].lower()
                        unread[ending] = unread.get(ending, 0) + 1
        if name in changed:
            index[name] = sorted(files)
    return index, changed, unread


def _is_class_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and not entry.name.startswith(".") and entry.name not in _NO_CLASSES


def _identity(folder: Path) -> tuple[int, int]:
    found = os.stat(folder)
    return found.st_dev, found.st_ino
