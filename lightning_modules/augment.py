"""Random augmentation of training images: on whole batches, different for each image."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fsl_basesel import checks


class CropAndFlip:
    """Shifts every image at random within a padded frame and mirrors about half of them.

    Args:
        padding: pixels an image may be shifted by, each way; the border is repeated.
        flip: mirror images left to right; not for characters.

    Example:
        >>> CropAndFlip(padding=2)(torch.rand(5, 3, 8, 8)).shape
        torch.Size([5, 3, 8, 8])
    """

    def __init__(self, padding: int = 8, flip: bool = True) -> None:
        self.padding, self.flip = checks.integer(padding, "padding", 0), flip

    def __repr__(self) -> str:
        return f"CropAndFlip(padding={self.padding}, flip={self.flip})"

    def __call__(self, images: Tensor) -> Tensor:
        """The images `[B, C, H, W]`, changed."""
        count, _, height, width = images.shape
        padded = functional.pad(images, [self.padding] * 4, mode="replicate")
        shifts = torch.randint(0, 2 * self.padding + 1, (2, count, 1))
        rows = torch.arange(height) + shifts[0]
        columns = torch.arange(width) + shifts[1]
        if self.flip:
            mirrored = torch.rand(count, 1) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        picture = torch.arange(count)[:, None, None]
        # Indexing with tensors around a slice puts the slice last: [B, H, W, C].
        cut = padded[picture, :, rows[:, :, None], columns[:, None, :]]
        return cut.permute(0, 3, 1, 2).contiguous()
