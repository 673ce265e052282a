"""Near-duplicate characters: "A" and Greek "Α" look the same and are one class."""

from __future__ import annotations

import numpy as np
import torch

THRESHOLD = 0.94


def near_duplicates(templates: np.ndarray, owner: np.ndarray, face: np.ndarray) -> np.ndarray:
    """For each character the earlier one it looks like, or -1 where it is a class of its own.

    Two characters are near-duplicates where the correlation of their pictures, at half resolution
    so that half a pixel's shift hides no twin, is `THRESHOLD` or more in the mean over the faces
    that have both. The earliest of a family is kept, so the outcome depends on the order alone.

    The decision is taken in exact integer sums, the same on every machine; a bound on it in single
    precision first rules out all but one pair in a few hundred.

    Args:
        templates: `[T, S, S]` uint8 pictures, S divisible by 4.
        owner: `[T]` which character each picture shows, 0 .. n-1.
        face: `[T]` which face it was drawn with.

    Returns:
        `[n]` int64: index of the kept character, or -1.

    Example:
        >>> bar = np.repeat([[0, 255, 0, 0]], 4, axis=0).repeat(2, 0).repeat(2, 1).astype(np.uint8)
        >>> near_duplicates(np.stack([bar, bar.T, bar]), np.arange(3), np.zeros(3, int)).tolist()
        [-1, -1, 0]
    """
    half = _sum_cells(templates.astype(np.uint16))
    first, second = _possible_pairs(half, owner, face)
    alike = _exact_correlation(half, owner, face, first, second) >= THRESHOLD
    twins: dict[int, list[int]] = {}
    for later, earlier in zip(first[alike].tolist(), second[alike].tolist(), strict=True):
        twins.setdefault(later, []).append(earlier)
    kept_twin = np.full(int(owner.max(initial=-1)) + 1, -1, np.int64)
    for later in sorted(twins):  # every earlier character is decided when a later one asks for it
        standing = [earlier for earlier in twins[later] if kept_twin[earlier] < 0]
        if standing:
            kept_twin[later] = min(standing)
    return kept_twin


def _sum_cells(pictures: np.ndarray) -> np.ndarray:
    """Sums over 2 x 2 squares, `[T, S, S]` -> `[T, S/2, S/2]`."""
    rows = pictures[:, ::2] + pictures[:, 1::2]
    return rows[:, :, ::2] + rows[:, :, 1::2]


def _table(owner: np.ndarray, face: np.ndarray) -> np.ndarray:
    """`[characters, faces]` row of the picture that shows a character in a face, -1 for none."""
    table = np.full((int(owner.max()) + 1, int(face.max()) + 1), -1, np.int64)
    table[owner, face] = np.arange(len(owner))
    return table


def _possible_pairs(
    half: np.ndarray, owner: np.ndarray, face: np.ndarray, block: int = 512
) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (later, earlier) that may reach the threshold, and few others.

    For standardised pictures a mean correlation of t means a mean squared distance of 2 - 2t, and
    averaging 2 x 2 cells, an orthogonal projection, can only shorten distances.
    """
    flat = torch.from_numpy(half.reshape(len(half), -1).astype(np.float32))
    flat = flat - flat.mean(1, keepdim=True)
    flat = flat / flat.norm(dim=1, keepdim=True).clamp_min(1e-6)
    coarse = torch.nn.functional.avg_pool2d(flat.view(len(half), *half.shape[1:]), 2) * 2
    table = torch.from_numpy(_table(owner, face))
    present = table >= 0
    rows = torch.where(present[..., None], coarse.flatten(1)[table.clamp_min(0)], 0)
    squared = rows.square().sum(2)
    rows, shared = rows.flatten(1), present.to(rows.dtype)
    allowed = 2 - 2 * THRESHOLD + 1e-3  # the slack is for single precision
    later, earlier = [], []
    for start in range(0, len(table), block):
        mine, others = slice(start, start + block), slice(0, start + block)
        count = shared[mine] @ shared[others].T
        distance = squared[mine] @ shared[others].T + shared[mine] @ squared[others].T
        distance -= 2 * rows[mine] @ rows[others].T
        near = (distance <= allowed * count) & (count > 0)
        i, j = torch.nonzero(near.tril(start - 1), as_tuple=True)
        later.append(i.numpy() + start)
        earlier.append(j.numpy())
    return np.concatenate(later), np.concatenate(earlier)


def _exact_correlation(
    half: np.ndarray, owner: np.ndarray, face: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """Mean correlation of the pairs over the faces they share, from integer sums."""
    pictures = half.reshape(len(half), -1).astype(np.int64)
    cells = pictures.shape[1]
    total = pictures.sum(1)
    spread = np.sqrt((cells * (pictures * pictures).sum(1) - total * total).astype(np.float64))
    table = _table(owner, face)
    summed, shared = np.zeros(len(first)), np.zeros(len(first))
    for column in table.T:
        both = np.flatnonzero((column[first] >= 0) & (column[second] >= 0))
        a, b = column[first[both]], column[second[both]]
        products = np.einsum("tc,tc->t", pictures[a], pictures[b])
        scale = np.maximum(spread[a] * spread[b], 1e-9)  # a picture of one grey has no correlation
        summed[both] += (cells * products - total[a] * total[b]) / scale
        shared[both] += 1
    return summed / np.maximum(shared, 1)
