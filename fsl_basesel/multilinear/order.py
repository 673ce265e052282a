"""`SortedRows`: similarities of every novel class in falling order, sorted once for all uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import radix
from fsl_basesel.parallel import blocks, map_blocks

ROWS_PER_BLOCK = 64  # novel classes a thread sorts in one go


def order_dtype(n_candidates: int) -> np.dtype:
    """The smallest integer type that numba, torch and Triton all index with.

    Example:
        >>> order_dtype(21_000), order_dtype(100_000)
        (dtype('uint16'), dtype('int32'))
    """
    return np.dtype(np.uint16 if n_candidates <= 1 << 16 else np.int32)


def likely_reach(mean: float, k: int) -> int:
    """How far walks go at points of this mean: where some 30 more than K entries are expected in.

    Example:
        >>> likely_reach(0.5, k=5), likely_reach(0.0, k=5) > 10**9
        (70, True)
    """
    return int((k + 30) / max(mean, 1e-9))


class PrefixTooShortError(ValueError):
    """A walk ran past the sorted prefix of a row, so the gradient would not be exact."""

    def __init__(self, length: int, left: float) -> None:
        super().__init__(
            f"Expected every novel class to have its top K within the {length} sorted candidates "
            f"but a probability of {left:.1e} lies beyond; sort a longer prefix"
        )


@dataclass(frozen=True)
class SortedRows:
    """Similarities `f[n, :]` of each novel class in falling order, and the columns they came from.

    Memory: as much again as the matrix, and half of that for the columns in `uint16`. With the
    matrix itself this is 2.5 copies of it in float32 up to 65536 candidates and 3 beyond
    (`benchmarks/memory.py` measures it).

    Attributes:
        values: `[|N|, L]` float32 or float64, each row falling; L = |B|, or less with a prefix.
        order: `[|N|, L]` column of each value, `uint16` up to 65536 candidates, else `int32`.
            Equal similarities stand in the order of their columns.
        floor: what a missing entry of a top-K sum counts as.
        n_candidates: |B|.
    """

    values: Tensor
    order: Tensor
    floor: float
    n_candidates: int

    @cached_property
    def n_novel(self) -> int:
        """|N|."""
        return self.values.shape[0]

    @cached_property
    def length(self) -> int:
        """L, how many of the largest similarities of a row are kept."""
        return self.values.shape[1]

    @cached_property
    def complete(self) -> bool:
        """Whether the rows hold every candidate."""
        return self.length == self.n_candidates

    @cached_property
    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """`values` and `order` as flat numpy arrays on the same memory, for the CPU."""
        return self.values.numpy().reshape(-1), self.order.numpy().reshape(-1)

    def to(self, device: torch.device | str) -> SortedRows:
        """The same rows on another device."""
        return SortedRows(
            self.values.to(device), self.order.to(device), self.floor, self.n_candidates
        )

    @classmethod
    def from_columns(
        cls, columns: np.ndarray, floor: float = 0.0, prefix: int | None = None
    ) -> SortedRows:
        """Sort a candidate-major similarity matrix, novel class by novel class.

        Args:
            columns: `[|B|, |N|]` similarities, float32 or float64.
            floor: what a missing entry of a top-K sum counts as.
            prefix: keep only this many of the largest similarities of each row.

        Example:
            >>> rows = SortedRows.from_columns(np.array([[0.2], [0.9], [0.2]]))
            >>> rows.values.tolist(), rows.order.tolist()
            ([[0.9, 0.2, 0.2]], [[1, 0, 2]])
        """
        if columns.ndim != 2 or columns.dtype not in (np.float32, np.float64):
            raise InputError(
                "Expected `columns` to be a [|B|, |N|] array of float32 or float64 but got "
                f"{columns.dtype} of shape {columns.shape}; convert it first"
            )
        n_candidates, n_novel = columns.shape
        length = n_candidates if prefix is None else min(prefix, n_candidates)
        if length < 0:
            raise InputError(f"Expected `prefix` to be at least 0 but got {prefix}")
        values = np.empty((n_novel, length), columns.dtype)
        order = np.empty((n_novel, length), order_dtype(n_candidates))
        bits = np.dtype(f"uint{8 * columns.dtype.itemsize}")
        column_bits, value_bits = columns.view(bits), values.view(bits)
        sign = bits.type(1 << (8 * bits.itemsize - 1))

        def sort(start: int, stop: int) -> None:
            spare = radix.Scratch.of(n_candidates, bits, order.dtype)
            # Whole rows are transposed into the place where they will stand sorted.
            room = None if length == n_candidates else np.empty((radix.TILE, n_candidates), bits)
            for first, end in blocks(stop - start, radix.TILE):
                here = slice(start + first, start + end)
                keys = value_bits[here] if room is None else room[: end - first]
                radix.falling_keys(column_bits, here.start, here.stop, keys, sign)
                radix.sort_rows(keys, sign, *spare, value_bits[here], order[here])

        map_blocks(sort, n_novel, ROWS_PER_BLOCK)
        return cls(torch.from_numpy(values), torch.from_numpy(order), float(floor), n_candidates)
