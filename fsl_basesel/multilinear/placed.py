"""Sorted rows on a device, copied there once."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fsl_basesel.multilinear.sorted_rows import SortedRows

ALIGNMENT = 16  # rows padded to a multiple of this many elements are read 16 bytes at a time


class PlacedRows(NamedTuple):
    """Views `[|N|, |B|]` of rows that are padded to a multiple of 16 elements.

    Attributes:
        values: similarities, each row falling.
        order: int32, their columns.
    """

    values: Tensor
    order: Tensor


_placed: dict[tuple[int, torch.device], PlacedRows] = {}


def on_device(rows: SortedRows, device: torch.device) -> PlacedRows:
    """The rows on `device`; a copy is kept as long as the rows live.

    Example:
        >>> rows = SortedRows.from_columns(np.eye(3))
        >>> values, order = on_device(rows, torch.device("cpu"))
        >>> values.shape, values.stride(0)
        (torch.Size([3, 3]), 16)
    """
    device = torch.empty(0, device=device).device  # "cuda" is one of its devices
    key = (id(rows), device)
    if key not in _placed:
        width = -(-rows.n_candidates // ALIGNMENT) * ALIGNMENT

        def padded(array: np.ndarray) -> Tensor:
            tensor = torch.from_numpy(array)
            out = torch.zeros(len(array), width, dtype=tensor.dtype, device=device)
            out[:, : rows.n_candidates] = tensor.to(device)
            return out[:, : rows.n_candidates]

        _placed[key] = PlacedRows(padded(rows.values), padded(rows.order.view(np.int32)))
        weakref.finalize(rows, _placed.pop, key, None)
    return _placed[key]
