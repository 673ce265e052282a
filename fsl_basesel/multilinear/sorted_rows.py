"""`SortedRows`: similarities of every novel class in falling order, sorted once for all uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import radix
from fsl_basesel.parallel import blocks, map_blocks

if TYPE_CHECKING:
    import torch

ROWS_PER_BLOCK = 64  # novel classes a thread sorts in one go
ALIGNMENT = 16  # rows padded to a multiple of this many elements are read 16 bytes at a time
# Probability of at most K entries below which a device ignores the rest of a row, by bytes of x.
EPSILON = {4: 1e-7, 8: 1e-14}


@dataclass(frozen=True, eq=False)
class SortedRows:
    """Similarities `f[n, :]` of each novel class in falling order, and the columns they came from.

    Memory: twice the matrix in float32, so three copies of it with the matrix itself.

    Attributes:
        values: `[|N|, |B|]` float32 or float64, each row falling.
        order: `[|N|, |B|]` uint32, the column of each value. Equal similarities stand in the order
            of their columns.
        floor: what a missing entry of a top-K sum counts as.
    """

    values: np.ndarray
    order: np.ndarray
    floor: float
    _placed: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def n_novel(self) -> int:
        """|N|."""
        return self.values.shape[0]

    @property
    def n_candidates(self) -> int:
        """|B|."""
        return self.values.shape[1]

    @classmethod
    def from_columns(cls, columns: np.ndarray, floor: float = 0.0) -> SortedRows:
        """Sort a candidate-major similarity matrix, novel class by novel class.

        Args:
            columns: `[|B|, |N|]` similarities, float32 or float64.
            floor: what a missing entry of a top-K sum counts as.

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
        values = np.empty((n_novel, n_candidates), columns.dtype)
        order = np.empty((n_novel, n_candidates), np.uint32)
        bits = np.dtype(f"uint{8 * columns.dtype.itemsize}")
        column_bits, keys = columns.view(bits), values.view(bits)

        def sort(start: int, stop: int) -> None:
            pair = (2, n_candidates)
            spare = np.empty(pair, bits), np.empty(pair, np.uint32)
            counts = np.empty(radix.BUCKETS, np.uint32)
            for first, end in blocks(stop - start, radix.TILE):
                here = slice(start + first, start + end)
                radix.falling_keys(column_bits[:, here], keys[here])
                radix.sort_rows(keys[here], order[here], *spare, counts)

        map_blocks(sort, n_novel, ROWS_PER_BLOCK)
        return cls(values, order, float(floor))

    def on_device(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Values and order (int32) as views of padded rows on `device`, copied there once.

        Example:
            >>> import torch
            >>> values, order = SortedRows.from_columns(np.eye(3)).on_device(torch.device("cpu"))
            >>> values.shape, values.stride(0)
            (torch.Size([3, 3]), 16)
        """
        import torch

        def padded(array: np.ndarray) -> torch.Tensor:
            tensor = torch.from_numpy(array)
            width = -(-self.n_candidates // ALIGNMENT) * ALIGNMENT
            out = torch.zeros(len(array), width, dtype=tensor.dtype, device=device)
            out[:, : self.n_candidates] = tensor.to(device)
            return out[:, : self.n_candidates]

        if device not in self._placed:
            self._placed[device] = padded(self.values), padded(self.order.view(np.int32))
        return self._placed[device]
