"""Classes from a tree of picture files, one folder a class."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fsl_basesel.data import cache
from fsl_basesel.data.pictures import as_tensor, fit, open_picture
from fsl_basesel.data.reading import ReadSource, in_random_order
from fsl_basesel.errors import InputError

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_FORMAT = 1
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
        members = [in_random_order(name, np.arange(len(found[name])), seed) for name in names]
        settings = repr((self.size, channels, int(seed)))
        super().__init__(names, members, on_corrupt, [settings, *self._files])

    def read(self, class_number: int, member: int) -> torch.Tensor:
        """Decode one file and bring it to size."""
        return self._finish(open_picture(self.describe(class_number, member), self.channels))

    def _finish(self, picture: Any) -> torch.Tensor:
        if self.transform is None:
            return as_tensor(fit(picture, self.size))
        return as_tensor(self.transform(picture))

    def describe(self, class_number: int, member: int) -> str:
        """Path of a file."""
        files = self._files[class_number].split("\0")
        return os.path.join(self.root, self.names[class_number], files[member])

    def add_files(self, class_number: int, files: list[str]) -> None:
        """Give a class further pictures, named by full path, after those it has."""
        known = self._files[class_number].count("\0") + 1
        self._files[class_number] = "\0".join([self._files[class_number], *files])
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
    and used again while no folder has changed.

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


def class_index(root: Path) -> dict[str, list[str]]:
    """For each class folder in `root` its picture files, as paths below that folder, sorted.

    Raises:
        InputError: if there is no such folder, no class folder in it, or one without pictures.
    """
    if not root.is_dir():
        raise InputError(f"Expected a folder of class folders but {str(root)!r} is not a folder.")
    name = f"folder-{cache.fingerprint([str(root.resolve())])}.json"
    index = _load_index(name, root)
    if index is None:
        started = time.time_ns()
        index, folders = _scan(root)
        if max(folders.values()) < started - _SETTLED_NS:
            content = {"format": _FORMAT, "folders": folders, "classes": index}
            text = json.dumps(content).encode()  # escapes, so file names of any bytes survive
            cache.store(name, lambda file: file.write(text))
    if not index:
        raise InputError(
            f"Expected class folders in {str(root)!r} but there are none; put the images of each "
            "class into a folder of its own."
        )
    empty = [name for name, files in index.items() if not files]
    if empty:
        raise InputError(
            f"Expected pictures ({', '.join(EXTENSIONS)}) in every class folder but "
            f"{str(root / empty[0])!r} has none ({len(empty)} such); add some or remove the folder."
        )
    return index


def _load_index(name: str, root: Path) -> dict[str, list[str]] | None:
    """The index from the cache, or None where there is none or a folder has changed since."""
    try:
        stored = json.loads((cache.cache_folder() / name).read_bytes())
        if stored["format"] != _FORMAT:
            return None
        for folder, changed in stored["folders"].items():
            if os.stat(root / folder).st_mtime_ns != changed:
                return None
        return dict(stored["classes"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _scan(root: Path) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Files of every class, and when each folder last changed."""
    changed = {".": os.stat(root).st_mtime_ns}
    with os.scandir(root) as entries:
        names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    index = {}
    for name in names:
        files = []
        for folder, below, inside in os.walk(root / name, followlinks=True):
            below[:] = [entry for entry in below if not entry.startswith(".")]
            changed[os.path.relpath(folder, root)] = os.stat(folder).st_mtime_ns
            prefix = os.path.relpath(folder, root / name)
            files += [
                file if prefix == "." else os.path.join(prefix, file)
                for file in inside
                if file.lower().endswith(EXTENSIONS) and not file.startswith(".")
            ]
        index[name] = sorted(files)
    return index, changed
