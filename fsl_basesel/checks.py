"""Checks of what users pass in: the argument, what was expected, what came, what to do."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fsl_basesel import memory
from fsl_basesel.errors import InputError
from fsl_basesel.similarity import ArrayLike, as_array

# Sums up to this stay far from infinity, also after a few more products.
LARGEST_SUM = 1e280


def index(entry: Any) -> int:
    """`entry` as an int, if it is an integer of some kind and not a truth value."""
    if isinstance(entry, bool):
        raise TypeError("a truth value is no column number")
    return operator.index(entry)


def distinct_columns(indices: Iterable[int], name: str, count: int) -> tuple[int, ...]:
    """`indices` as plain ints, checked to be columns and different from each other."""
    expected = f"Expected `{name}` to be column numbers from 0 to {count - 1}"
    if hasattr(indices, "tolist"):  # of numpy and torch
        indices = indices.tolist()
    try:
        columns = tuple(index(entry) for entry in indices)
    except TypeError:
        raise InputError(f"{expected} but got {indices!r}.") from None
    for column in columns:
        if not 0 <= column < count:
            raise InputError(f"{expected} but got {column}.")
    if len(set(columns)) < len(columns):
        raise InputError(
            f"{expected}, each at most once, but {_first_repeated(columns)} came more than once."
        )
    return columns


def integer(value: Any, name: str, low: int, high: int | None, limit: str) -> int:
    """`value` as an int between `low` and `high`; `limit` says in words what `high` is."""
    try:
        number = index(value)
    except TypeError:
        raise InputError(f"Expected `{name}` to be an integer but got {value!r}.") from None
    if number < low or (high is not None and number > high):
        upper = f" and at most {limit}" if high is not None else ""
        raise InputError(f"Expected `{name}` to be at least {low}{upper} but got {number}.")
    return number


def _number(value: Any, name: str) -> float:
    """`value` as a float; neither a truth value nor a text is one."""
    try:
        if isinstance(value, bool | np.bool_ | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"Expected `{name}` to be a number but got {value!r}.") from None


def non_negative(value: Any, name: str) -> float:
    """`value` as a finite float of at least 0."""
    number = _number(value, name)
    if not (np.isfinite(number) and number >= 0):
        raise InputError(f"Expected `{name}` to be finite and at least 0 but got {number}.")
    return number


def one_of(value: str, allowed: Sequence[str], name: str) -> str:
    """`value` if it is among `allowed`, else an error that lists them."""
    if value not in allowed:
        raise InputError(f"Expected `{name}` to be one of {', '.join(allowed)} but got {value!r}.")
    return value


def floor_below(value: Any, lowest: float) -> float:
    """`value` as a float that is at most the smallest similarity."""
    number = _number(value, "floor")
    if not (np.isfinite(number) and number <= lowest):
        raise InputError(
            f"Expected `floor` to be at most the smallest similarity ({lowest}), as a higher one "
            f"breaks submodularity, but got {number}."
        )
    return number


def cost_vector(cost: ArrayLike | None, count: int) -> np.ndarray | None:
    """`cost` as `count` finite float64 numbers, or None."""
    if cost is None:
        return None
    expected = f"Expected `cost` to be {count} numbers, one for each candidate,"
    array = as_array(cost, expected)
    if array.shape != (count,) or array.dtype.kind not in "fiu":
        raise InputError(f"{expected} but got {array.dtype} of shape {array.shape}.")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise InputError(f"Expected `cost` to be finite but got {array[at]} for candidate {at}.")
    array.flags.writeable = False
    return array


def row_weights(weights: ArrayLike, count: int, brought: bool = False) -> np.ndarray:
    """`weights` as `count` finite float64 numbers of at least 0.

    Not all of them are 0, unless they are those of one process (`brought`).
    """
    expected = f"Expected `weights` to be {count} numbers of at least 0, one a novel class,"
    array = as_array(weights, expected)
    if array.shape != (count,) or array.dtype.kind not in "fiu":
        raise InputError(f"{expected} but got {array.dtype} of shape {array.shape}.")
    array = array.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        raise InputError(f"{expected} but got {array[wrong[0]]} for novel class {wrong[0]}.")
    if not brought and not 0 < array.sum() < np.inf:
        raise InputError(f"{expected} with a finite sum above 0 but their sum is {array.sum()}.")
    array.flags.writeable = False
    return array


def enough_memory(needed: int, processes: int = 1) -> None:
    """Refuse a matrix of `needed` bytes that this machine has no room for."""
    together = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if processes > 1 else 1
    free = memory.free_bytes()
    if needed * together > free:
        each = "" if together == 1 else f" on each of {together} processes"
        raise InputError(
            "Expected the similarities to fit into memory but they take "
            f"{memory.gigabytes(needed)}{each} and {memory.gigabytes(free)} are free; spread the "
            "novel classes over more machines (torchrun, docs/scaling.md), use float32 centroids, "
            "or fewer classes."
        )


def class_names(
    names: Sequence[str] | None, count: int, argument: str, what: str
) -> tuple[str, ...]:
    """`names` checked to be `count` different ones; numbers where there are none."""
    if names is None:
        return tuple(str(number) for number in range(count))
    listed = tuple(str(name) for name in names)
    if len(listed) != count:
        raise InputError(
            f"Expected `{argument}` to name every {what} ({count}) but got {len(listed)} names."
        )
    if len(set(listed)) < count:
        raise InputError(
            f"Expected `{argument}` to be unique but {_first_repeated(listed)!r} came more than "
            "once; merge those classes or rename one."
        )
    return listed


def finite_sums(largest: float, terms: float, name: str) -> None:
    """Refuse numbers whose sums would leave the range of float64: a bound there proves nothing."""
    if not largest * terms <= LARGEST_SUM:
        raise InputError(
            f"Expected `{name}` small enough for sums of float64 (up to {LARGEST_SUM:g}) but got "
            f"{largest:g} in a sum of {terms:g} terms; use other units."
        )


def _first_repeated(entries: Sequence[Any]) -> Any:
    seen = set()
    for entry in entries:
        if entry in seen:
            return entry
        seen.add(entry)
    return None
