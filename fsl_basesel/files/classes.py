"""Read class centroids, or samples with labels that are averaged to centroids, from one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.files import words
from fsl_basesel.files.arrays import UNNAMED, Arrays, open_arrays, shape_of
from fsl_basesel.files.columns import open_table, split_columns
from fsl_basesel.files.naming import name_rows
from fsl_basesel.similarity import class_centroids


@dataclass(frozen=True)
class ClassFeatures:
    """One centroid a class.

    Attributes:
        centroids: `[C, d]`, float32 (rows of a float16 or float32 file) or float64 (all else).
        names: C different names; the row number as text where the file has none.
        images: How many samples stand behind each centroid `[C]`, None where the file is silent.
    """

    centroids: np.ndarray
    names: tuple[str, ...]
    images: np.ndarray | None = None


def locate(text: str | Path) -> tuple[Path, str | None]:
    """Split `file.npz:key` into file and key, and check that the file can be read by its ending.

    Raises:
        InputError: No such file, a folder, an empty file, or an ending nobody reads.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(folder + "/pool.npz", weight=np.eye(2))
        ...     locate(folder + "/pool.npz:weight")[1]
        'weight'
    """
    path, key = Path(text), None
    if not path.exists():
        head, colon, tail = str(text).rpartition(":")
        if colon and Path(head).suffix.lower() in words.ARRAY_ENDINGS:
            path, key = Path(head), tail
    check_file(path, words.ARRAY_ENDINGS + words.TABLE_ENDINGS)
    return path, key


def check_file(path: Path, endings: tuple[str, ...]) -> None:
    """Refuse a path that is no file, an empty file, or one whose ending is not among `endings`.

    Raises:
        InputError: As above.
    """
    if not path.exists():
        raise InputError(f"Expected a file at {path} but there is none; check the path")
    if not path.is_file():
        raise InputError(f"Expected {path} to be a file but got a folder; name a file in it")
    if path.suffix.lower() not in endings:
        raise InputError(
            f"Expected {path} to end in one of {', '.join(endings)} but got "
            f"'{path.suffix or 'no ending'}'; convert or rename it"
        )
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise InputError(
            f"Expected to read {path} but got '{error.strerror}'; check its permissions"
        ) from error
    if empty:
        raise InputError(f"Expected {path} to hold data but got an empty file; write it again")


def read_classes(path: str | Path, key: str | None = None) -> ClassFeatures:
    """Read class centroids, or samples with labels, from any of the known formats.

    These are .npz, .npy, .pt, .safetensors, .csv and .parquet. Arrays are found by common words for
    them (`features`, `feat`, `centroids`, `embeddings`, `x`; `labels`, `y`, `targets`; `names`,
    `class_name`, `classes`), or by `key`, which may also follow the file after a colon. What the
    rows are:

    - labels, or names that repeat: samples. A class is the float64 mean of its samples.
      Where integer labels point into a list of class names, classes come in the order of that list;
      integer labels without a list give rising order, text labels the order of first appearance.
    - else: one row a class, in the order of the file.
    - no known word, and every array is one vector or one stack of vectors: one array a class, named
      by its key.

    Args:
        path: The file, or `file:key`.
        key: Which array holds the features, where the file has several.

    Raises:
        InputError: The file is missing, broken or ambiguous; the message says what to do.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(
        ...         folder + "/pool.npz",
        ...         feat=[[0, 2], [3, 1], [0, 4]],
        ...         label=[0, 1, 0],
        ...         class_name=["owl", "élan"],
        ...     )
        ...     read_classes(folder + "/pool.npz")
        ClassFeatures(centroids=array([[0., 3.],
               [3., 1.]]), names=('owl', 'élan'), images=array([2, 1]))
    """
    file, tail = locate(path)
    key = key if key is not None else tail
    if file.suffix.lower() in words.TABLE_ENDINGS:
        parts = split_columns(open_table(file))
        return _to_classes(file, "features", parts, names_by_row=True)
    arrays = open_arrays(file)
    if key is None and not arrays.find(words.FEATURES):
        stacked = _one_array_a_class(arrays)
        if stacked is not None:
            return stacked
    title = _features_key(arrays, key)
    parts = {"features": arrays.load(title)}
    for part, known in (("labels", words.LABELS), ("names", words.NAMES)):
        found = [other for other in arrays.find(known) if other != title]
        if len(found) > 1:
            raise InputError(
                f"Expected one array of {part} in {file} but got {' and '.join(found)}; remove all "
                "but one"
            )
        if found:
            parts[part] = arrays.load(found[0])
    if {"labels", "names"} <= parts.keys():
        rows = parts["features"].shape[:1]
        if parts["names"].shape == rows != parts["labels"].shape:
            del parts["labels"]  # they belong to another array; these rows are the named classes
    for other in arrays.find(words.COUNTS):
        counts = arrays.load(other)
        if counts.ndim == 1 and counts.dtype.kind in "iu":
            parts.setdefault("counts", counts)
    return _to_classes(file, title or "the array", parts, names_by_row=False)


def _features_key(arrays: Arrays, key: str | None) -> str:
    if key is not None:
        if key not in arrays.keys:
            raise InputError(
                f"Expected an array '{key}' in {arrays.path} but it holds {arrays.describe()}; "
                "name one of these"
            )
        return key
    if arrays.keys == (UNNAMED,):
        return UNNAMED
    found = arrays.find(words.FEATURES)
    if not found and len(arrays.keys) <= 64:
        found = [name for name in arrays.keys if _is_float_matrix(arrays, name)]
    if len(found) == 1:
        return found[0]
    what = f"got several ({', '.join(found)})" if found else f"it holds {arrays.describe()}"
    example = found[0] if found else "KEY"
    raise InputError(
        f"Expected one array of features in {arrays.path} but {what}; "
        f"say which one with {arrays.path.name}:{example}"
    )


def _is_float_matrix(arrays: Arrays, key: str) -> bool:
    try:
        array = arrays.load(key)
    except InputError:
        return False
    return array.ndim == 2 and array.dtype.kind == "f"


def _one_array_a_class(arrays: Arrays) -> ClassFeatures | None:
    """The classes of a file like `{"owl": vector, "elk": vector}`, or None if it is not one."""
    if len(arrays.keys) < 2 or arrays.find(words.LABELS | words.NAMES):
        return None
    blocks: list[np.ndarray] = []
    for name in arrays.keys:
        array = arrays.load(name)
        width = array.shape[-1] if array.ndim in (1, 2) else 0
        if array.dtype.kind not in "fiu" or width < 2 or (blocks and width != blocks[0].shape[1]):
            return None
        blocks.append(array.reshape(-1, width))
    labels = np.repeat(np.array(arrays.keys), [len(block) for block in blocks])
    parts = {"features": np.concatenate(blocks), "labels": labels}
    return _to_classes(arrays.path, "the arrays", parts, names_by_row=True)


def _to_classes(
    path: Path, title: str, parts: dict[str, np.ndarray], *, names_by_row: bool
) -> ClassFeatures:
    features = check_features(path, title, parts["features"])
    rows = len(features)
    classes, order = name_rows(
        path, title, rows, parts.get("labels"), parts.get("names"), names_by_row=names_by_row
    )
    if len(order) == rows:  # one row a class: keep the order and the type of the file
        return ClassFeatures(
            np.ascontiguousarray(features, _row_type(features.dtype)),
            tuple(map(str, classes)),
            _class_counts(parts.get("counts"), rows),
        )
    names = tuple(map(str, order))
    position = {name: index for index, name in enumerate(names)}
    number = np.array([position[name] for name in classes.tolist()])
    centroids = class_centroids(features, number, len(names))
    return ClassFeatures(centroids, names, np.bincount(number))


def check_features(path: Path, title: str, features: np.ndarray) -> np.ndarray:
    """Refuse features that are not a matrix of finite numbers.

    Raises:
        InputError: Wrong dimensions, no entries, text, complex numbers, NaN or infinity.
    """
    if features.dtype.kind not in "fiub" or features.ndim != 2 or 0 in features.shape:
        raise InputError(
            f"Expected {title} of {path} to be a matrix of numbers [rows, dimensions] but got "
            f"{shape_of(features)}; give one row a class or a sample"
        )
    if features.dtype.kind == "f":
        finite = np.isfinite(features)
        if not finite.all():
            row, column = (int(i) for i in np.argwhere(~finite)[0])
            raise InputError(
                f"Expected {title} of {path} to be finite but got {features[row, column]} "
                f"in row {row}, column {column} ({int((~finite).sum())} such entries); "
                "remove or repair these rows"
            )
    return features.astype(np.uint8) if features.dtype.kind == "b" else features


def _row_type(dtype: np.dtype) -> type[np.floating]:
    return np.float32 if dtype in (np.float16, np.float32) else np.float64


def _class_counts(counts: np.ndarray | None, rows: int) -> np.ndarray | None:
    if counts is None or counts.shape != (rows,):
        return None
    return counts.astype(np.int64)
