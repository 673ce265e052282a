"""From picture files and picture objects to tensors of one size."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image


def open_picture(path: str, channels: int) -> Image.Image:
    """Read and decode a whole picture file, as grey (1 channel) or colour (3)."""
    with Image.open(path) as picture:
        return picture.convert("L" if channels == 1 else "RGB")  # decodes, so damage shows here


def fit(picture: Image.Image, size: int) -> Image.Image:
    """Bring the shorter side to `size` and cut the middle square."""
    width, height = picture.size
    scale = size / min(width, height)
    width, height = max(size, round(width * scale)), max(size, round(height * scale))
    picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return picture.crop((left, top, left + size, top + size))


def as_tensor(picture: Any) -> torch.Tensor:
    """`[C, H, W]` float32 of a PIL picture, an array or a tensor; bytes are brought to [0, 1].

    Example:
        >>> as_tensor(Image.new("RGB", (5, 4))).shape, as_tensor(Image.new("L", (5, 4))).shape
        (torch.Size([3, 4, 5]), torch.Size([1, 4, 5]))
    """
    if isinstance(picture, Image.Image):
        if picture.mode not in ("L", "RGB"):
            picture = picture.convert("L" if picture.mode in ("1", "I", "F", "I;16") else "RGB")
        picture = np.array(picture)
    if isinstance(picture, np.ndarray):
        picture = torch.from_numpy(np.ascontiguousarray(picture))
        if picture.dim() == 3:  # arrays, unlike tensors, have the channels last
            picture = picture.permute(2, 0, 1)
    tensor = torch.as_tensor(picture)
    if tensor.dim() == 2:
        tensor = tensor[None]
    return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor.float()
