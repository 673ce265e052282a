"""Open .csv and .parquet tables: which columns are features, labels, names and counts."""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from fsl_basesel.errors import InputError
from fsl_basesel.files import words
from fsl_basesel.files.arrays import broken


@dataclass(frozen=True)
class Table:
    """A table that was read whole, and whether its first line named the columns."""

    path: Path
    data: pa.Table
    has_header: bool

    def find(self, known: frozenset[str]) -> list[str]:
        """Columns that mean one of the `known` lower-case words, in the order of the file."""
        return [name for name in self.data.column_names if name.strip().lower() in known]

    def text(self, name: str) -> np.ndarray:
        """One column as text, exactly as written.

        Raises:
            InputError: A row has no entry.
        """
        column = self.data.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        self._refuse_holes(name, column)
        return np.array([str(entry) for entry in column.to_pylist()], dtype=str)

    def numbers(self, name: str) -> np.ndarray:
        """One column as numbers, type kept.

        Raises:
            InputError: A row has no entry, or one that is no number.
        """
        column = self.data.column(name)
        if pa.types.is_null(column.type):
            self._refuse_holes(name, column)
        if not is_number(column.type):
            raise InputError(
                f"Expected column {self.title(name)} of {self.path} to hold numbers but got "
                f"{column.type}{self._first_text(column)}; correct it, or remove the column"
            )
        self._refuse_holes(name, column)
        return column.to_numpy()

    def title(self, name: str) -> str:
        """How to call a column in a message: its name, or its number if the file has no header."""
        if self.has_header:
            return f"'{name}'"
        return f"number {self.data.column_names.index(name) + 1}"

    def row(self, index: int) -> str:
        """How to call a row in a message: for a .csv the line of the file."""
        if self.path.suffix.lower() == ".csv":
            return f"line {index + 1 + self.has_header}"
        return f"row {index}"

    def _refuse_holes(self, name: str, column: pa.ChunkedArray) -> None:
        if column.null_count:
            index = int(np.argmax(column.is_null().to_numpy()))
            raise InputError(
                f"Expected every row of {self.path} to be complete but got no value (empty, NA or "
                f"NaN) in column {self.title(name)}, {self.row(index)}; fill it or remove the row"
            )

    def _first_text(self, column: pa.ChunkedArray) -> str:
        for index, entry in enumerate(column.to_pylist()):
            try:
                float(str(entry))
            except ValueError:
                return f" ('{str(entry)[:40]}' in {self.row(index)})"
        return ""


def is_number(kind: pa.DataType) -> bool:
    """Whether a column type is a plain number."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column type is text, plain or as a pandas category."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_list(kind: pa.DataType) -> bool:
    """Whether each entry of a column is a list (one feature vector a row)."""
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def open_table(path: Path) -> Table:
    """Open a table by its ending: .csv or .parquet.

    Raises:
        InputError: The file is broken, or has no rows.
    """
    table = _open_csv(path) if path.suffix.lower() == ".csv" else _open_parquet(path)
    if table.data.num_rows == 0 or table.data.num_columns == 0:
        raise InputError(f"Expected {path} to hold at least one row but got none; check the file")
    return table


def _open_parquet(path: Path) -> Table:
    try:
        data = pa.parquet.read_table(path)
        data.validate(full=True)  # damaged text shows here, not in the middle of the work
        return Table(path, data.rename_columns([str(name) for name in data.column_names]), True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise broken(path, ".parquet", error) from error


def _open_csv(path: Path) -> Table:
    first = _first_row(path)
    has_header = _is_header(path, first)
    titles = (
        [title.strip() for title in first] if has_header else [f"f{i}" for i in range(len(first))]
    )
    repeated = [title for title, count in Counter(titles).items() if count > 1]
    if repeated:
        raise InputError(
            f"Expected the columns of {path} to have different names but got '{repeated[0]}' "
            f"{titles.count(repeated[0])} times; rename them"
        )
    # Text that names something stays as written: "007" is not 7, and "nan" (bread) is not missing.
    worded = words.NAMES | words.LABELS | words.NOVEL_NAMES
    as_text = {title: pa.string() for title in titles if title.lower() in worded}
    if has_header and not titles[0]:
        as_text[""] = pa.string()
    try:
        data = pa.csv.read_csv(
            path,
            # One block: pyarrow would settle a column's type by its first megabyte alone.
            read_options=pa.csv.ReadOptions(
                column_names=titles,
                skip_rows=1 if has_header else 0,
                block_size=min(max(path.stat().st_size + 1, 1 << 20), (1 << 31) - 1),
            ),
            convert_options=pa.csv.ConvertOptions(column_types=as_text),
        )
    except (pa.ArrowException, OSError) as error:
        raise broken(path, ".csv", error) from error
    return Table(path, data, has_header)


def _first_row(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = next(csv.reader(file), [])
    except UnicodeDecodeError as error:
        raise InputError(
            f"Expected {path} to be text in UTF-8 but got other bytes ({error.reason}); save it as "
            "UTF-8"
        ) from error
    except csv.Error as error:
        raise broken(path, ".csv", error) from error
    if not first:
        raise InputError(f"Expected {path} to hold at least one row but got none; check the file")
    if len(first) == 1 and re.search(r"[;\t]", first[0]):
        raise InputError(
            f"Expected commas between the columns of {path} but got {first[0][:40]!r}; "
            "save it with commas"
        )
    return first


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _is_header(path: Path, first: list[str]) -> bool:
    """Whether the first line names columns rather than holding a class.

    It does if no cell is a number. Numbers 0, 1, 2, ... (which pandas writes for unnamed columns)
    also name columns if the other cells are words we know; alone they could be either, and guessing
    wrong would lose a class or invent one.
    """
    numeric = [cell for cell in first if _number(cell) is not None]
    if not numeric:
        return True
    counted = numeric in ([str(i + start) for i in range(len(numeric))] for start in (0, 1))
    if len(numeric) == len(first):
        if counted and len(first) > 2:
            raise InputError(
                f"Expected the first line of {path} to be names or features but got the numbers "
                f"{first[0]}, {first[1]}, {first[2]}, ..., which could be either; remove the line "
                "or name the columns f0, f1, ..."
            )
        return False
    known = words.NAMES | words.LABELS | words.COUNTS | words.ROW_NUMBERS
    rest = [cell.strip().lower() for cell in first if _number(cell) is None]
    return counted and all(cell in known for cell in rest)


def split_columns(table: Table) -> dict[str, np.ndarray]:
    """Sort columns into `features` [n, d] and, where there are any, `labels`, `names`, `counts`.

    Features are one column of lists under a known word, or else every column of numbers that is not
    a label, a name, a count or a row number. Where columns are numbered (`f0`, `f1`, ...) a further
    unnumbered column of numbers is refused rather than guessed at.

    Raises:
        InputError: It is not clear what a column is, or a value is missing.
    """
    parts: dict[str, np.ndarray] = {}
    taken = set(table.find(words.ROW_NUMBERS)) if table.has_header else set()
    for part, known in (("names", words.NAMES), ("labels", words.LABELS)):
        found = [name for name in table.find(known) if not is_list(table.data.column(name).type)]
        if len(found) > 1:
            raise InputError(
                f"Expected one column of {part} in {table.path} but got {' and '.join(found)}; "
                "remove all but one"
            )
        if found:
            parts[part] = table.text(found[0])
            taken.update(found)
    for name in table.find(words.COUNTS):
        if pa.types.is_integer(table.data.column(name).type):
            parts.setdefault("counts", table.numbers(name))
            taken.add(name)
    rest = [name for name in table.data.column_names if name not in taken]
    _refuse_spoiled(table, rest)
    texts = [name for name in rest if is_text(table.data.column(name).type)]
    if texts and not {"names", "labels"} & parts.keys():
        if len(texts) > 1:
            raise InputError(
                f"Expected one column of class names in {table.path} but got text in "
                f"{', '.join(table.title(name) for name in texts[:4])}; call the right one "
                "class_name"
            )
        parts["names"] = table.text(texts[0])
    parts["features"] = _features(table, [name for name in rest if name not in texts])
    return parts


def _refuse_spoiled(table: Table, rest: list[str]) -> None:
    """Refuse a feature column that a stray word or a hole made something else than numbers.

    Passing over it as a remark would silently drop a feature.
    """
    kinds = {name: table.data.column(name).type for name in rest}
    stems = {_stem(name) for name in rest if is_number(kinds[name])} - {None}
    for name in rest:
        spoiled = pa.types.is_null(kinds[name])
        if is_text(kinds[name]):
            entries = table.text(name)
            numbers = sum(_number(entry) is not None for entry in entries)
            spoiled = 2 * numbers >= len(entries) or (table.has_header and _stem(name) in stems)
        if spoiled:
            table.numbers(name)


def _stem(name: str) -> str | None:
    """What stands before the number of a numbered column; None if it has no number."""
    match = re.fullmatch(r"(.*?)\d+", name)
    return match and match[1]


def _features(table: Table, rest: list[str]) -> np.ndarray:
    lists = [name for name in rest if is_list(table.data.column(name).type)]
    known = [name for name in table.find(words.FEATURES) if name in lists]
    if known or len(lists) == 1:
        chosen = known or lists
        if len(chosen) > 1:
            raise InputError(
                f"Expected one column of feature vectors in {table.path} but got "
                f"{' and '.join(chosen)}; remove all but one"
            )
        return _stack_lists(table, chosen[0])
    numeric = [name for name in rest if is_number(table.data.column(name).type)]
    numbered = [name for name in numeric if _stem(name) is not None]
    odd = [name for name in numeric if _stem(name) is None]
    if numbered and odd:
        raise InputError(
            f"Expected the feature columns of {table.path} to be numbered alike ({numbered[0]}, "
            "...) "
            f"but got a column of numbers {table.title(odd[0])} beside them; remove it, or number "
            "it too if it is a feature"
        )
    others = [name for name in rest if not is_number(table.data.column(name).type)]
    if not numeric or (others and not table.has_header):
        what = f"column {table.title(others[0])} is not numbers" if others else "there are none"
        raise InputError(
            f"Expected {table.path} to hold columns of numbers but {what}; "
            "give one column a feature, or (in .parquet) one column `features` of lists"
        )
    return np.stack([table.numbers(name) for name in numeric], axis=1)


def _stack_lists(table: Table, name: str) -> np.ndarray:
    column = table.data.column(name)
    table._refuse_holes(name, column)
    lengths = np.asarray(pa.compute.list_value_length(column).to_numpy())
    if lengths.min() != lengths.max():
        index = int(np.argmax(lengths != lengths[0]))
        raise InputError(
            f"Expected every vector in column '{name}' of {table.path} to have {lengths[0]} "
            "entries "
            f"but got {lengths[index]} in {table.row(index)}; write them all with the same length"
        )
    flat = pa.chunked_array([pa.compute.list_flatten(chunk) for chunk in column.chunks])
    if flat.null_count or not is_number(flat.type):
        raise InputError(
            f"Expected column '{name}' of {table.path} to hold lists of numbers but got "
            f"{column.type} with {flat.null_count} missing entries; write every vector whole"
        )
    return flat.to_numpy().reshape(len(column), -1)
