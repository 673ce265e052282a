"""Read lists of classes (selected, excluded, ...) and values of classes (cost, group, weight)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fsl_basesel import checks
from fsl_basesel.errors import InputError
from fsl_basesel.files.array_files import TABLES, broken, check_file, describe, read_arrays
from fsl_basesel.files.classes import KEYS, named_in


def read_list(path: str | Path) -> Any:
    """Names in a file: a saved selection or a list (.json), a column `name` (.csv), or lines."""
    file = check_file(Path(path), (".json", ".txt", ".csv"))
    if file.suffix.lower() == ".csv":
        return _columns(file, KEYS["names"])[0]
    entries = _read(file)
    return entries.get("names") if isinstance(entries, dict) else entries


def read_names(path: str | Path, names: Sequence[str]) -> tuple[int, ...]:
    """Positions in `names` of the classes that a file lists; see `read_list`."""
    entries = read_list(path)
    with named_in(Path(path)):
        return positions(entries, names)


def positions(entries: Any, names: Sequence[str]) -> tuple[int, ...]:
    """Position in `names` of each entry of a list of different names."""
    if not entries or not isinstance(entries, list):
        raise InputError(f"Expected a list of class names but got {entries!r:.60}")
    return tuple(checks.positions(map(str, entries), names, "names of candidates"))


def read_values(path: str | Path, names: Sequence[str], key: str) -> list[Any]:
    """One value for each class: its `cost`, `weight` or `group`.

    Reads a table with columns `name` and `key` (.csv, .parquet), or an object of names and values
    (.json). Names that are none of the classes are passed over.
    """
    file = check_file(Path(path), (".json", *TABLES))
    with named_in(file):
        if file.suffix.lower() == ".json":
            return by_name(_read(file), names, key)
        listed, values = _columns(file, KEYS["names"], (key, f"{key}s"))
        known = set(names)
        checks.positions([name for name in listed if name in known], names)  # each once
        return by_name(dict(zip(listed, values, strict=True)), names, key)


def by_name(values: Any, names: Sequence[str], key: str) -> list[Any]:
    """The entries of a mapping from class names, in the order of `names`."""
    missing = [name for name in names if not isinstance(values, Mapping) or name not in values]
    if missing:
        raise InputError(
            f"Expected a {key} for each of the {len(names)} classes but got none for "
            f"'{missing[0]}' ({len(missing)} missing); add them"
        )
    return [values[name] for name in names]


def read_numbers(path: str | Path, names: Sequence[str], key: str) -> np.ndarray:
    """One number for each class; see `read_values`."""
    return numbers(read_values(path, names, key), names, key)


def numbers(values: Sequence[Any], names: Sequence[str], key: str) -> np.ndarray:
    """Values of classes as finite float64 numbers."""
    found = np.full(len(values), np.nan)
    for at, value in enumerate(values):
        with contextlib.suppress(TypeError, ValueError):
            found[at] = float(value)
    if not np.isfinite(found).all():
        at = int(np.argmin(np.isfinite(found)))
        raise InputError(f"Expected numbers as {key} but got {values[at]!r} for '{names[at]}'")
    return found


def _read(file: Path) -> Any:
    """A JSON document, or the lines of a .txt file that are not empty."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix.lower() == ".json":
            return json.loads(text)
        return [line.strip() for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise broken(file, error) from error


def _columns(file: Path, *wanted: Sequence[str]) -> list[list[Any]]:
    """Columns of a table, each by the words for it."""
    arrays = read_arrays(file)
    found = [[key for key in arrays if key.lower() in known] for known in wanted]
    if not all(len(keys) == 1 for keys in found):
        raise InputError(
            f"Expected the columns {' and '.join(known[-1] for known in wanted)} in {file} but it "
            f"holds {describe(arrays)}; name the columns in the first line"
        )
    return [arrays[keys[0]].tolist() for keys in found]
