"""Read the lists that go with a pool: classes already selected, and what each class costs."""

from __future__ import annotations

import csv
import difflib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.files import words
from fsl_basesel.files.arrays import broken, open_arrays, shape_of
from fsl_basesel.files.classes import check_file


def read_selected(path: str | Path, names: Sequence[str]) -> tuple[int, ...]:
    r"""Positions in `names` of the classes that are already selected.

    Reads a selection saved as .json (its names; its indices if it has none), a .json list, a .csv
    (its column of names, else of indices, else its only column) or a .txt with one entry a line. An
    entry is a class name, or, if not all entries are names, the position of a class from 0.

    Args:
        path: The file.
        names: The candidates, in order.

    Raises:
        InputError: The file is broken, or an entry is no candidate or comes twice.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "have.txt").write_text("elk\nowl\n")
        ...     read_selected(folder + "/have.txt", ["owl", "yak", "elk"])
        (2, 0)
    """
    file = Path(path)
    check_file(file, (".json", ".txt", ".csv"))
    entries = _json_entries(file) if file.suffix.lower() == ".json" else _text_entries(file)
    position = {name: index for index, name in enumerate(names)}
    if all(entry in position for entry in entries):
        chosen = [position[entry] for entry in entries]
    elif all(_is_position(entry) for entry in entries):
        chosen = [int(entry) for entry in entries]
        beyond = next((index for index in chosen if index >= len(names)), None)
        if beyond is not None:
            raise InputError(
                f"Expected positions from 0 to {len(names) - 1} in {file} but got {beyond}; "
                "was it made from another pool of candidates?"
            )
    else:
        raise _unknown(file, entries, names)
    for place, index in enumerate(chosen):
        if index in chosen[:place]:
            raise InputError(
                f"Expected every class once in {file} but got '{names[index]}' twice; remove one"
            )
    return tuple(chosen)


def _is_position(entry: str) -> bool:
    return entry.isascii() and entry.isdigit()


def _unknown(file: Path, entries: list[str], names: Sequence[str]) -> InputError:
    known = set(names)
    bad = [entry for entry in entries if entry not in known]
    near = difflib.get_close_matches(bad[0], names, n=1)
    advice = f"did you mean '{near[0]}'?" if near else f"the first candidate is '{names[0]}'"
    return InputError(
        f"Expected {file} to list candidates but got '{bad[0]}', which is none of the {len(names)} "
        f"({len(bad)} of {len(entries)} entries unknown); {advice}"
    )


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"Expected {file} to be text in UTF-8 but got other bytes ({error.reason}); save it as "
            "UTF-8"
        ) from error


def _json_entries(file: Path) -> list[str]:
    try:
        saved: Any = json.loads(_read_text(file))
    except json.JSONDecodeError as error:
        raise broken(file, ".json", error) from error
    if isinstance(saved, dict):
        saved = saved.get("names") or saved.get("indices")
    if not isinstance(saved, list) or not all(isinstance(entry, str | int) for entry in saved):
        raise InputError(
            f"Expected {file} to be a saved selection or a list of class names but got another "
            "JSON document; pass what `fsl-basesel select --out` wrote"
        )
    return [str(entry) for entry in saved]


def _rows(file: Path) -> list[list[str]]:
    """Lines of a .csv split at commas, or of a .txt left whole; without blank lines."""
    text = _read_text(file)
    if file.suffix.lower() == ".txt":
        return [[line.strip()] for line in text.splitlines() if line.strip()]
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise broken(file, ".csv", error) from error
    return [[cell.strip() for cell in row] for row in rows if any(cell.strip() for cell in row)]


def _text_entries(file: Path) -> list[str]:
    rows = _rows(file)
    if not rows:
        raise InputError(f"Expected {file} to list at least one class but got none; fill it in")
    titles = [cell.lower() for cell in rows[0]]
    for known in (words.NAMES, words.INDICES):
        columns = [number for number, title in enumerate(titles) if title in known]
        if columns:
            return [_cell(file, rows, line, columns[0]) for line in range(1, len(rows))]
    if len(titles) > 1:
        raise InputError(
            f"Expected {file} to have one column, or one called class_name, but got {len(titles)} "
            "columns; name the right one class_name"
        )
    return [_cell(file, rows, line, 0) for line in range(len(rows))]


def _cell(file: Path, rows: list[list[str]], line: int, column: int) -> str:
    if column >= len(rows[line]):
        raise InputError(
            f"Expected {column + 1} columns or more in line {line + 1} of {file} but got "
            f"{len(rows[line])}; it may be cut off"
        )
    return rows[line][column]


def read_cost(path: str | Path, names: Sequence[str]) -> np.ndarray:
    r"""What each candidate costs, `[len(names)]` float64 in the order of `names`.

    Reads a .csv of `name,cost` in any order (names that are no candidates are passed over), a
    .csv or .txt with one number a line, or an array from .npy, .npz, .pt or .safetensors.

    Args:
        path: The file.
        names: The candidates, in order.

    Raises:
        InputError: The file is broken, a candidate has no cost, or a cost is no finite number.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "cost.csv").write_text("name,cost\nelk,2\nowl,1.5\n")
        ...     read_cost(folder + "/cost.csv", ["owl", "elk"])
        array([1.5, 2. ])
    """
    file = Path(path)
    check_file(file, (".csv", ".txt", *words.ARRAY_ENDINGS))
    costs = (
        _table_cost(file, names) if file.suffix.lower() in (".csv", ".txt") else _array_cost(file)
    )
    if costs.ndim != 1 or len(costs) != len(names):
        raise InputError(
            f"Expected {len(names)} costs in {file}, one for each candidate, but got "
            f"{shape_of(costs)}; give one number a class, or lines of name,cost"
        )
    if not np.isfinite(costs).all():
        index = int(np.argmin(np.isfinite(costs)))
        raise InputError(
            f"Expected finite costs in {file} but got {costs[index]} for '{names[index]}'; correct "
            "it"
        )
    return costs


def _array_cost(file: Path) -> np.ndarray:
    arrays = open_arrays(file)
    found = arrays.keys if len(arrays.keys) == 1 else tuple(arrays.find(words.COSTS))
    if len(found) != 1:
        raise InputError(
            f"Expected one array `cost` in {file} but it holds {arrays.describe()}; rename one to "
            "cost"
        )
    costs = arrays.load(found[0])
    if costs.dtype.kind not in "fiu":
        raise InputError(
            f"Expected the costs in {file} to be numbers but got {shape_of(costs)}; save numbers"
        )
    return costs.astype(np.float64)


def _table_cost(file: Path, names: Sequence[str]) -> np.ndarray:
    rows = _rows(file)
    if not rows:
        raise InputError(f"Expected {len(names)} costs in {file} but got none; fill it in")
    if _number(rows[0][-1]) is None:  # a header
        titles = [cell.lower() for cell in rows[0]]
        columns = [next((i for i, t in enumerate(titles) if t in words.NAMES), 0)]
        columns.append(next((i for i, t in enumerate(titles) if t in words.COSTS), len(titles) - 1))
        start, width = 1, len(titles)
    else:
        columns, start, width = [0, -1], 0, len(rows[0])
    costs = []
    for line in range(start, len(rows)):
        value = _number(_cell(file, rows, line, columns[1]))
        if len(rows[line]) != width or value is None:
            raise InputError(
                f"Expected line {line + 1} of {file} to end in a number but got "
                f"'{','.join(rows[line])[:60]}'; give one number a line, or name,cost"
            )
        costs.append(value)
    if width == 1:
        return np.array(costs)
    by_name: dict[str, float] = {}
    for line, value in enumerate(costs, start):
        name = rows[line][columns[0]]
        if name in by_name:
            raise InputError(
                f"Expected one cost a class in {file} but got '{name}' twice; remove one"
            )
        by_name[name] = value
    missing = [name for name in names if name not in by_name]
    if missing:
        raise InputError(
            f"Expected a cost for each of the {len(names)} candidates in {file} but got none for "
            f"'{missing[0]}' ({len(missing)} missing); add them"
        )
    return np.array([by_name[name] for name in names])


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
