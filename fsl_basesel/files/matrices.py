"""Read a similarity matrix that was computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.files import words
from fsl_basesel.files.arrays import UNNAMED, Arrays, open_arrays
from fsl_basesel.files.classes import check_features, locate
from fsl_basesel.files.columns import Table, is_text, open_table
from fsl_basesel.files.naming import to_names


@dataclass(frozen=True)
class SimilarityMatrix:
    """Similarity of every novel class (rows) to every candidate (columns).

    Attributes:
        values: `[|N|, |B|]`, float32 or float64.
        names: Names of the candidates, or None where the file has none.
        novel_names: Names of the novel classes, or None where the file has none.
    """

    values: np.ndarray
    names: tuple[str, ...] | None = None
    novel_names: tuple[str, ...] | None = None


def read_similarity(path: str | Path) -> SimilarityMatrix:
    r"""Read a |N| x |B| matrix: rows are novel classes, columns candidates.

    A table (.csv, .parquet) may name the candidates in its first line and the novel classes in its
    first column. An .npz, .pt or .safetensors file may hold `similarity`, `names` (or
    `candidates`) and `novel_names` (or `novel`); an .npy file is the bare matrix.

    Args:
        path: The file, or `file:key`.

    Raises:
        InputError: The file is missing, broken or ambiguous; the message says what to do.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "f.csv").write_text("novel,owl,elk\nyak,0.25,0.5\n")
        ...     read_similarity(folder + "/f.csv")
        SimilarityMatrix(values=array([[0.25, 0.5 ]]), names=('owl', 'elk'), novel_names=('yak',))
    """
    file, key = locate(path)
    if file.suffix.lower() in words.TABLE_ENDINGS:
        return _from_table(open_table(file))
    arrays = open_arrays(file)
    title = key if key is not None else _matrix_key(arrays)
    if title not in arrays.keys:
        raise InputError(
            f"Expected an array '{title}' in {file} but it holds {arrays.describe()}; name one of "
            "these"
        )
    values = check_features(file, title or "the array", arrays.load(title))
    return SimilarityMatrix(
        _plain(values),
        _names(arrays, words.CANDIDATE_NAMES, values.shape[1], "candidates (columns)"),
        _names(arrays, words.NOVEL_NAMES, values.shape[0], "novel classes (rows)"),
    )


def _plain(values: np.ndarray) -> np.ndarray:
    narrow = values.dtype in (np.float16, np.float32)
    return np.ascontiguousarray(values, np.float32 if narrow else np.float64)


def _matrix_key(arrays: Arrays) -> str:
    if arrays.keys == (UNNAMED,):
        return UNNAMED
    found = arrays.find(words.SIMILARITY)
    if len(found) == 1:
        return found[0]
    what = f"got several ({', '.join(found)})" if found else f"it holds {arrays.describe()}"
    raise InputError(
        f"Expected one array `similarity` in {arrays.path} but {what}; "
        f"say which one with {arrays.path.name}:KEY"
    )


def _names(arrays: Arrays, known: frozenset[str], count: int, what: str) -> tuple[str, ...] | None:
    found = [key for key in arrays.find(known) if arrays.load(key).dtype.kind in "US"]
    if not found:
        return None
    names = to_names(arrays.path, arrays.load(found[0]))
    if names.shape != (count,):
        raise InputError(
            f"Expected {count} names of {what} in `{found[0]}` of {arrays.path} but got "
            f"{names.size}; "
            "rows of the matrix are novel classes, columns candidates: transpose it if need be"
        )
    return tuple(names.tolist())


def _from_table(table: Table) -> SimilarityMatrix:
    columns = list(table.data.column_names)
    worded = words.NOVEL_NAMES | words.NAMES | {""}
    first = columns[0]
    rows: tuple[str, ...] | None = None
    if is_text(table.data.column(first).type) or first.strip().lower() in worded:
        rows = tuple(table.text(first).tolist())
        columns = columns[1:]
    if not columns:
        raise InputError(
            f"Expected {table.path} to hold a matrix of numbers but got one column of text; "
            "give one row a novel class and one column a candidate"
        )
    values = np.stack([table.numbers(name) for name in columns], axis=1)
    values = check_features(table.path, "the matrix", values)
    return SimilarityMatrix(_plain(values), tuple(columns) if table.has_header else None, rows)
