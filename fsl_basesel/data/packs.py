"""`JpegPack`: many small pictures in one `.npz` file, as a data set of torch."""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

from fsl_basesel.files.writing import load_npz

ENTRIES = ("jpeg", "offset", "label", "class_name")


class JpegPack(Dataset):
    """Pictures of a pack, brought to one size; each is decoded once and then kept as bytes.

    Args:
        path: `.npz` file with `jpeg` (uint8, all files one after another), `offset` (where each
            begins, and the end), `label` (class of each) and `class_name`.
        size: side of the pictures in pixels.
    """

    def __init__(self, path: str, size: int = 32) -> None:
        self._size = int(size)
        self._content, self._decoded = _shared(str(path), self._size)
        self.targets = self._content["label"].astype(int).tolist()
        self.classes = [str(name) for name in self._content["class_name"]]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, number: int) -> tuple[Image.Image, int]:
        if number not in self._decoded:
            start, stop = self._content["offset"][number : number + 2]
            with Image.open(io.BytesIO(self._content["jpeg"][start:stop].tobytes())) as image:
                small = image.convert("RGB").resize((self._size,) * 2, Image.Resampling.BILINEAR)
            self._decoded[number] = np.asarray(small)
        return Image.fromarray(self._decoded[number]), self.targets[number]


@lru_cache(maxsize=2)
def _shared(path: str, size: int) -> tuple[dict[str, np.ndarray], dict[int, np.ndarray]]:
    """The arrays of a file and the pictures decoded so far, for all data sets of a process."""
    what = f"a pack of pictures with {', '.join(ENTRIES)}"
    return load_npz(path, None, ENTRIES, what=what), {}
