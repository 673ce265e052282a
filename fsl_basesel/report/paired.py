"""Paired statistics of methods: means over seeds and differences to a reference on common seeds.

Rows are dicts with the columns of `results.csv` (numbers or their text). Seeds share everything but
the method (pre-trained model, supports, test sets), so a difference is taken seed by seed and its
interval is far narrower than the intervals of the two means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsl_basesel.errors import InputError

REFERENCE = "Random"
"""The label that others are compared with."""

COMPARISON = ("experiment", "domain", "setting", "m", "head", "shots")
"""Columns in which rows must agree to be compared; a column that is absent agrees with itself."""

_WHOLE = ("m", "shots", "seed")


@dataclass(frozen=True)
class Estimate:
    """A mean of `n` independent values and half the width of its 95 % Student t interval.

    A single value has no interval: its `half_width` is None.
    """

    n: int
    mean: float
    half_width: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.half_width is not None and abs(self.mean) > self.half_width


@dataclass(frozen=True)
class Line:
    """A method in one comparison: a line of the table.

    `key` has the values of the columns of `COMPARISON`. `difference` is the accuracy minus that of
    the reference on the seeds both have; None for the reference itself and where no seed is common.
    """

    key: dict[str, Any]
    label: str
    accuracy: Estimate
    difference: Estimate | None


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and 95 % t interval of independent values."""
    from scipy import stats

    array = np.asarray(values, np.float64)
    if not array.size:
        raise InputError("Expected at least one value to estimate from but got none.")
    mean = math.fsum(array) / array.size
    if array.size == 1:
        return Estimate(1, mean, None)
    error = float(array.std(ddof=1)) / math.sqrt(array.size)
    return Estimate(int(array.size), mean, float(stats.t.ppf(0.975, array.size - 1)) * error)


def points(estimate: Estimate | None, sign: bool = False, digits: int = 2) -> str:
    """An estimate in per cent, or a difference in percentage points.

    Example:
        >>> points(Estimate(10, 0.0212, 0.004), sign=True)
        '+2.12 ± 0.40'
    """
    if estimate is None:
        return ""
    mean = f"{100 * estimate.mean:{'+' if sign else ''}.{digits}f}"
    if estimate.half_width is None:
        return mean
    return f"{mean} ± {100 * estimate.half_width:.{digits}f}"


def paired_difference(ours: Mapping[Any, float], reference: Mapping[Any, float]) -> Estimate | None:
    """Mean difference of values by seed, on common seeds; None without a common seed."""
    common = [ours[seed] - reference[seed] for seed in ours if seed in reference]
    return estimate(common) if common else None


def summarise(rows: Iterable[Mapping[str, Any]]) -> list[Line]:
    """A line for each method of each comparison, in the order in which they first appear.

    Rows without an accuracy do not count. The same seed twice under one label is one result if the
    accuracies agree, and an error if they do not: then the label covers two methods. The columns
    `label`, `seed` and `accuracy` are needed.
    """
    comparisons: dict[tuple[Any, ...], dict[str, dict[Any, float]]] = {}
    for number, raw in enumerate(rows, 1):
        row = _parsed(raw, number)
        if row["accuracy"] is None:
            continue
        key = tuple(row.get(column) for column in COMPARISON)
        seeds = comparisons.setdefault(key, {}).setdefault(row["label"], {})
        known = seeds.setdefault(row["seed"], row["accuracy"])
        if known != row["accuracy"]:
            where = ", ".join(f"{name}={row.get(name)}" for name in COMPARISON)
            raise InputError(
                f"Expected one accuracy for {row['label']!r} and seed {row['seed']} ({where}) but "
                f"got {known} and {row['accuracy']}; give each method its own label, or remove the "
                "outdated row."
            )
    lines = []
    for key, methods in comparisons.items():
        others = methods.get(REFERENCE, {})
        for label, ours in methods.items():
            difference = None if label == REFERENCE else paired_difference(ours, others)
            named = dict(zip(COMPARISON, key, strict=True))
            lines.append(Line(named, label, estimate(list(ours.values())), difference))
    return lines


def _parsed(raw: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The row with numbers as numbers and blanks as None."""
    for needed in ("label", "seed", "accuracy"):
        if needed not in raw:
            raise InputError(
                f"Expected rows with a column {needed!r} but row {number} has "
                f"{', '.join(map(str, raw)) or 'none'}."
            )
    row = dict(raw)
    for name in (*_WHOLE, "accuracy"):
        value = row.get(name)
        try:
            read = float(value) if value is not None and str(value).strip() else math.nan
        except (TypeError, ValueError) as error:
            raise InputError(
                f"Expected a number in column {name!r} of row {number} but got {value!r}."
            ) from error
        whole = int(read) if read.is_integer() and name in _WHOLE else read
        row[name] = None if math.isnan(read) else whole
    return row
