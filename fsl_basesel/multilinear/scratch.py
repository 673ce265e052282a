"""Memory that a thread keeps between two gradients, so that none is asked for again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence

import numpy as np

LINE = 64  # bytes of a cache line

Scratch = tuple[np.ndarray, ...]

_kept = threading.local()


def kept(use: str, key: Hashable, dtype: np.dtype, sizes: Callable[[], Sequence[int]]) -> Scratch:
    """Arrays with any content: those this thread had for `use` before, if `key` is the same.

    Example:
        >>> first, second = kept("example", 1, np.dtype("float32"), lambda: (3, 5))
        >>> len(second), kept("example", 1, np.dtype("float32"), lambda: ())[0] is first
        (5, True)
    """
    known, arrays = getattr(_kept, use, (None, ()))
    if known != (key, dtype):
        arrays = tuple(_aligned(size, dtype) for size in sizes())
        setattr(_kept, use, ((key, dtype), arrays))
    return arrays


def _aligned(size: int, dtype: np.dtype) -> np.ndarray:
    """An array that begins on a cache line: vectors that straddle two are slow."""
    room = np.empty(size + LINE // dtype.itemsize, dtype)
    skip = -room.ctypes.data % LINE // dtype.itemsize
    return room[skip : skip + size]
