"""Random numbers that are a function of what they are for, never of what was drawn before.

`mix` folds one 64-bit word into another. A chain of it over (seed, class, image, ...) names a
number; the same chain gives the same number in every process, in any order, on every machine.
The steps are those of the splitmix64 generator's output function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _ONE = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(1)


def mix(state: Any, word: Any) -> Any:
    """Fold `word` into `state`, both uint64; works on arrays and compiles under numba."""
    z = state + (word + _ONE) * _GOLDEN
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


def key(*parts: int | str) -> np.uint64:
    """The number named by `parts`: whole numbers (taken modulo 2^64) and texts."""
    state = np.zeros(1, np.uint64)  # an array, since scalars warn when they wrap around
    for part in parts:
        number = part
        if isinstance(part, str):
            digest = hashlib.sha256(part.encode("utf-8", "surrogateescape")).digest()
            number = int.from_bytes(digest[:8], "little")
        state = mix(state, np.array([int(number) & 0xFFFFFFFFFFFFFFFF], np.uint64))
    return np.uint64(state[0])


def shuffled(start: np.uint64, words: Sequence[int] | np.ndarray) -> np.ndarray:
    """A random order of `words` (whole numbers): positions, sorted by the number each one names.

    Taking one word out leaves the order of the others as it was.
    """
    numbers = mix(np.full(len(words), start, np.uint64), np.asarray(words).astype(np.uint64))
    return np.argsort(numbers, kind="stable")
