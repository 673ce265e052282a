"""Checks of user input: errors name the argument, what was expected, what was found, what to do."""

from __future__ import annotations

import difflib
import importlib
import operator
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.parallel import blocks

if TYPE_CHECKING:
    import torch

ArrayLike: TypeAlias = "np.ndarray | torch.Tensor | Sequence"

# Sums up to this stay far from infinity, also after a few more products.
LARGEST_SUM = 1e280


def is_tensor(values: object) -> TypeGuard[torch.Tensor]:
    """Whether `values` is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def array(values: ArrayLike, expected: str) -> np.ndarray:
    """`values` as an array on the CPU; `expected` begins the message if they are none.

    Refused: rows of different lengths, masked entries, sparse tensors.
    """
    if np.ma.is_masked(values):
        raise InputError(f"{expected} but got masked entries; fill them in or drop those classes.")
    try:
        if not is_tensor(values):
            return np.asarray(values)
        tensor = values.detach().cpu().resolve_neg()
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    except (TypeError, ValueError) as error:
        raise InputError(f"{expected} but it is no array ({error}).") from error


def matrix(values: ArrayLike, name: str, rows: str, columns: str) -> np.ndarray:
    """`values` as a two-dimensional float32 or float64 array on the CPU.

    Half precision becomes float32 and integers float64; both conversions are exact.
    """
    expected = f"Expected `{name}` to be a matrix of numbers ({rows} x {columns})"
    found = array(values, expected)
    if found.dtype.kind not in "fiu":
        raise InputError(f"{expected} but got dtype {found.dtype}; convert it to floats first.")
    if found.ndim != 2 or 0 in found.shape:
        raise InputError(
            f"{expected} with at least one row and one column but got shape {found.shape}."
        )
    if found.dtype.kind != "f" or found.dtype.itemsize > 4:
        found = found.astype(np.float64, copy=False)
    else:
        found = found.astype(np.float32, copy=False)
    for start, stop in blocks(len(found), 2048):
        finite = np.isfinite(found[start:stop])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise InputError(
                f"Expected `{name}` to hold finite numbers only but got "
                f"{found[start + row, column]} at [{start + row}, {column}]; drop or repair that "
                "class first."
            )
    return found


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
            f"{expected}, each at most once, but {_repeated(columns)} came more than once."
        )
    return columns


def integer(value: Any, name: str, low: int, high: int | None = None, limit: str = "") -> int:
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


def numbers(
    values: ArrayLike,
    name: str,
    count: int,
    least: float = -np.inf,
    what: str = "class",
    whole: bool = False,
) -> np.ndarray:
    """`values` as `count` finite float64 or whole int64 numbers of at least `least`, read-only."""
    bound = f" of at least {least:g}" if np.isfinite(least) else ""
    kind = "integers" if whole else "finite numbers"
    expected = f"Expected `{name}` to be {count} {kind}{bound}, one for each {what},"
    found = array(values, expected)
    if found.shape != (count,) or found.dtype.kind not in ("iu" if whole else "fiu"):
        raise InputError(f"{expected} but got {found.dtype} of shape {found.shape}.")
    found = found.astype(np.int64 if whole else np.float64)
    wrong = np.flatnonzero(~(np.isfinite(found) & (found >= least)))
    if len(wrong):
        raise InputError(f"{expected} but got {found[wrong[0]]} for {what} {wrong[0]}.")
    found.flags.writeable = False
    return found


def shares(weights: ArrayLike, count: int) -> np.ndarray:
    """Weights of `count` novel classes, scaled to a sum of 1."""
    found = numbers(weights, "weights", count, 0, "novel class")
    total = found.sum()
    if not 0 < total < np.inf:
        raise InputError(f"Expected `weights` with a finite sum above 0 but it is {total}.")
    # Shares stay as they are, to the last bit, when a problem is made from another.
    return found / total if abs(total - 1.0) > 1e-12 else found


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
            f"Expected `{argument}` to be unique but {_repeated(listed)!r} came more than "
            "once; merge those classes or rename one."
        )
    return listed


def positions(
    classes: Iterable[Any], names: Sequence[str], expected: str = "the name of a class"
) -> list[int]:
    """Positions in `names` of classes that are given by name or by number, each once."""
    listed = list(classes)
    position = {name: number for number, name in enumerate(names)}
    unknown = [entry for entry in listed if isinstance(entry, str) and entry not in position]
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"the first of them is {names[0]!r}."
        raise InputError(
            f"Expected {expected} but got {unknown[0]!r}, which is none of the {len(names)} "
            f"({len(unknown)} of {len(listed)} entries unknown); {advice}"
        )
    found: dict[int, None] = {}
    for entry in listed:
        try:
            number = position[entry] if isinstance(entry, str) else index(entry)
        except TypeError:
            raise InputError(f"Expected a class as a number or a name but got {entry!r}.") from None
        if not 0 <= number < len(names):
            raise InputError(f"Expected class numbers from 0 to {len(names) - 1} but got {number}.")
        if number in found:
            again = names[number]
            raise InputError(f"Expected each class once but got {again!r} twice; remove one.")
        found[number] = None
    return list(found)


def installed(module: str, extra: str) -> Any:
    """A library that an extra of this package brings."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"Expected {module} to be installed; run `pip install 'fsl-basesel[{extra}]'`."
        ) from None


def finite_sums(largest: float, terms: float, name: str) -> None:
    """Refuse numbers whose sums would leave the range of float64: a bound there proves nothing."""
    if not largest * terms <= LARGEST_SUM:
        raise InputError(
            f"Expected `{name}` small enough for sums of float64 (up to {LARGEST_SUM:g}) but got "
            f"{largest:g} in a sum of {terms:g} terms; use other units."
        )


def _repeated(entries: Sequence[Any]) -> Any:
    return Counter(entries).most_common(1)[0][0]
