"""Near-duplicate characters: "A" and Greek "Α" look the same and are one class."""

from __future__ import annotations

import numpy as np

THRESHOLD = 0.94
_BLOCK = 512  # characters that are compared with all earlier ones at a time


def near_duplicates(templates: np.ndarray, owner: np.ndarray, face: np.ndarray) -> np.ndarray:
    """For each character the earlier one it looks like, or -1 where it is a class of its own.

    Two characters are near-duplicates where the correlation of their pictures, at half resolution
    so that half a pixel's shift hides no twin, is `THRESHOLD` or more in the mean over the faces
    that have both. The earliest of a family is kept, so the outcome depends on the order alone.

    The sums are whole numbers below 2^53. They are exact in float64, so the outcome is the same on
    every machine.

    Args:
        templates: `[T, S, S]` uint8 pictures, S even.
        owner: `[T]` which character each picture shows, 0 .. n-1.
        face: `[T]` which face it was drawn with.

    Returns:
        `[n]` int64: index of the kept character, or -1.

    Example:
        >>> bar = np.repeat([[0, 255, 0, 0]], 4, axis=0).repeat(2, 0).repeat(2, 1).astype(np.uint8)
        >>> near_duplicates(np.stack([bar, bar.T, bar]), np.arange(3), np.zeros(3, int)).tolist()
        [-1, -1, 0]
    """
    rows = templates[:, ::2].astype(np.uint16) + templates[:, 1::2]
    pictures = (rows[:, :, ::2] + rows[:, :, 1::2]).reshape(len(templates), -1).astype(np.float64)
    cells, total = pictures.shape[1], pictures.sum(1)
    spread = np.sqrt(cells * np.square(pictures).sum(1) - total * total)
    # The row of the picture that shows a character in a face, -1 for none.
    table = np.full((int(owner.max()) + 1, int(face.max()) + 1), -1, np.int64)
    table[owner, face] = np.arange(len(owner))
    twin = np.full(len(table), -1, np.int64)
    for start in range(0, len(table), _BLOCK):
        block, known = table[start : start + _BLOCK], table[: start + _BLOCK]
        summed = np.zeros((len(block), len(known)))
        shared = np.zeros((len(block), len(known)))
        for mine, others in zip(block.T, known.T, strict=True):
            pairs = np.ix_(mine >= 0, others >= 0)
            a, b = mine[mine >= 0], others[others >= 0]
            scale = np.outer(spread[a], spread[b])
            covariance = cells * (pictures[a] @ pictures[b].T) - np.outer(total[a], total[b])
            # A picture of one grey has no correlation.
            summed[pairs] += covariance / np.maximum(scale, 1e-9)
            shared[pairs] += 1
        alike = summed / np.maximum(shared, 1) >= THRESHOLD
        for later, like in enumerate(alike, start):
            kept = np.flatnonzero(like[:later] & (twin[:later] < 0))
            if len(kept):
                twin[later] = kept[0]
    return twin
