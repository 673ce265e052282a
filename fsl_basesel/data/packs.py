"""`JpegPack`: many small pictures in one `.npz` file, as a data set of torch."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

from fsl_basesel.errors import InputError

ENTRIES = ("jpeg", "offset", "label", "class_name")


class JpegPack(Dataset):
    """Pictures of a pack, brought to one size; each is decoded once and then kept as bytes.

    Args:
        path: `.npz` file with `jpeg` (uint8, all files one after another), `offset` (where each
            begins, and the end), `label` (class of each) and `class_name`.
        size: side of the pictures in pixels.

    Attributes:
        targets: class number of every picture.
        classes: names of the classes.
    """

    def __init__(self, path: str, size: int = 32) -> None:
        self._pack = _pack(str(path), int(size))
        self.targets, self.classes = self._pack.labels, self._pack.names

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, number: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self._pack.picture(number)), self.targets[number]


class _Pack:
    """The content of a file, shared by all data sets of a process that show it at one size."""

    def __init__(self, path: str, size: int) -> None:
        if not Path(path).is_file():
            raise InputError(f"Expected a pack of pictures (.npz) but there is no file {path!r}.")
        try:
            with np.load(path, allow_pickle=False) as file:
                jpeg, offset, label, names = (file[name] for name in ENTRIES)
        except Exception as error:  # damaged archives raise all sorts of errors
            raise InputError(
                f"Expected {path!r} to be an .npz file with {', '.join(ENTRIES)} but it could not "
                f"be read ({type(error).__name__}: {error})."
            ) from error
        self._bytes, self._offset, self._size = jpeg.tobytes(), offset, size
        self.labels, self.names = label.astype(int).tolist(), [str(name) for name in names]
        self._decoded = np.zeros((len(label), size, size, 3), np.uint8)
        self._ready = np.zeros(len(label), bool)

    def picture(self, number: int) -> np.ndarray:
        """`[size, size, 3]` uint8."""
        if not self._ready[number]:
            start, stop = self._offset[number : number + 2]
            with Image.open(io.BytesIO(self._bytes[start:stop])) as image:
                small = image.convert("RGB").resize((self._size,) * 2, Image.Resampling.BILINEAR)
            self._decoded[number] = np.asarray(small)
            self._ready[number] = True
        return self._decoded[number]


@lru_cache(maxsize=2)
def _pack(path: str, size: int) -> _Pack:
    return _Pack(path, size)
