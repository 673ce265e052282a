"""Checks of what a study is made from: base sets, accuracies, numbers of test images."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fsl_basesel import checks
from fsl_basesel.checks import ArrayLike
from fsl_basesel.errors import InputError
from fsl_basesel.study.least_squares import NEEDED_SETS


def membership(sets: ArrayLike | Iterable[Iterable[int]], base: int) -> np.ndarray:
    """The base sets as a bool matrix `[S, |B|]`."""
    rows = list(sets)
    if len(rows) <= NEEDED_SETS:
        raise InputError(
            f"Expected at least {NEEDED_SETS + 1} base sets but got {len(rows)}; a regression on "
            "two variables needs them, and a useful one 30 or more."
        )
    member = np.zeros((len(rows), base), dtype=bool)
    for number, row in enumerate(rows):
        entries = checks.array(row, f"Expected `sets[{number}]` to be column numbers")
        if entries.dtype == bool:
            if entries.shape != (base,):
                raise InputError(
                    f"Expected `sets[{number}]` to say of each of the {base} candidates whether it "
                    f"is in but got shape {entries.shape}."
                )
            member[number] = entries
        else:
            member[number, list(checks.distinct_columns(entries, f"sets[{number}]", base))] = True
        if member[number].sum() < 2:
            raise InputError(
                f"Expected `sets[{number}]` to hold at least 2 classes but got "
                f"{int(member[number].sum())}; with fewer x1 is x2."
            )
    return member


def accuracies(values: ArrayLike, sets: int, novel: int) -> np.ndarray:
    """Accuracies as float64 `[S, |N|]` between 0 and 1, or NaN."""
    expected = f"Expected `accuracy` to be {sets} x {novel} numbers (base sets x novel classes)"
    array = checks.array(values, expected)
    if array.dtype.kind not in "fiu" or array.shape != (sets, novel):
        raise InputError(f"{expected} but got {array.dtype} of shape {array.shape}.")
    array = array.astype(np.float64)
    beyond = np.argwhere(~((array >= 0) & (array <= 1) | np.isnan(array)))
    if len(beyond):
        row, column = beyond[0]
        raise InputError(
            f"Expected `accuracy` between 0 and 1 but got {array[row, column]} for base set {row} "
            f"and novel class {column}; divide per cents by 100."
        )
    if (np.isfinite(array).sum(axis=0) > NEEDED_SETS).sum() == 0:
        raise InputError(
            f"Expected some novel class to be measured on at least {NEEDED_SETS + 1} base sets but "
            "none was; measure more (NaN counts as not measured)."
        )
    return array


def tests(values: int | ArrayLike | None, novel: int) -> np.ndarray | None:
    """Test images of every novel class as int64 `[|N|]`, or None."""
    if values is None:
        return None
    expected = f"Expected `tests_per_class` to be one whole number or {novel}, each at least 2,"
    array = checks.array(values, expected)  # type: ignore[arg-type]
    if array.dtype.kind not in "iu" or array.shape not in ((), (novel,)) or (array < 2).any():
        raise InputError(f"{expected} but got {values!r}.")
    return np.broadcast_to(array, (novel,)).astype(np.int64)
