"""Which class each row belongs to, from the labels and the names of a file."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.files import words
from fsl_basesel.files.arrays import shape_of


def name_rows(
    path: Path,
    title: str,
    rows: int,
    labels: np.ndarray | None,
    names: np.ndarray | None,
    *,
    names_by_row: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The class name of every row, and the different names in the order of the classes.

    As many classes as rows means one row a class; the order is then that of the file.

    Args:
        path: The file, for messages.
        title: What its features are called, for messages.
        rows: How many rows of features there are.
        labels: One label a row, if any.
        names: One name a class, or one a row, if any.
        names_by_row: The file is a table, whose names can only go by row.

    Raises:
        InputError: Labels or names do not fit the rows or each other.

    Example:
        >>> name_rows(
        ...     Path("a.npz"),
        ...     "x",
        ...     3,
        ...     np.array([1, 0, 1]),
        ...     np.array(["owl", "elk"]),
        ...     names_by_row=False,
        ... )
        (array(['elk', 'owl', 'elk'], dtype='<U3'), array(['owl', 'elk'], dtype='<U3'))
    """
    if names is not None:
        names = to_names(path, names)
    if labels is not None:
        labels = _to_labels(path, labels, rows)
        classes, order = _named_labels(path, labels, names, names_by_row=names_by_row)
    elif names is not None:
        if len(names) != rows:
            raise InputError(
                f"Expected {rows} class names in {path}, one for each row of {title}, but got "
                f"{len(names)}; if the rows are samples, add an array `labels` with their classes"
            )
        _refuse_few_repeats(path, title, names)
        classes, order = names, _order(names)
    else:
        classes = order = np.array([str(row) for row in range(rows)])
    return classes, (classes if len(order) == rows else order)


def to_names(path: Path, names: np.ndarray) -> np.ndarray:
    """A list of names as an array of text.

    Raises:
        InputError: It is no list of text, or a name is empty.
    """
    if names.dtype.kind == "S":
        try:
            names = np.char.decode(names, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"Expected the class names of {path} in UTF-8 but got other bytes "
                f"({error.reason}); save them as np.array(names, dtype=str)"
            ) from error
    if names.ndim != 1 or names.dtype.kind not in "Uiu":
        raise InputError(
            f"Expected the class names of {path} to be a list of text but got {shape_of(names)}; "
            "save them as np.array(names, dtype=str)"
        )
    names = names.astype(str)
    nameless = [row for row, name in enumerate(names.tolist()) if not name.strip()]
    if nameless:
        raise InputError(
            f"Expected a name for every class of {path} but got an empty one in row {nameless[0]}; "
            "fill it in"
        )
    return names


def _to_labels(path: Path, labels: np.ndarray, rows: int) -> np.ndarray:
    if labels.ndim != 1 or len(labels) != rows:
        raise InputError(
            f"Expected {rows} labels in {path}, one for each row of features, but got "
            f"{shape_of(labels)}; save one label a row"
        )
    if labels.dtype.kind == "f" and np.array_equal(labels, np.floor(labels)):
        labels = labels.astype(np.int64)
    if labels.dtype.kind in "SU":
        labels = to_names(path, labels)
        as_numbers = _as_integers(labels)
        return labels if as_numbers is None else as_numbers
    if labels.dtype.kind not in "iu":
        raise InputError(
            f"Expected the labels of {path} to be whole numbers or text but got "
            f"{shape_of(labels)}; save one class number or name a row"
        )
    if labels.min() < 0:
        row = int(np.argmin(labels))
        raise InputError(
            f"Expected the labels of {path} to be 0 or more but got {labels[row]} in row {row}; "
            "remove samples without a class"
        )
    return labels.astype(np.int64)


def _as_integers(texts: np.ndarray) -> np.ndarray | None:
    """Text as integers if every one is written as an integer is printed ("7", not "07")."""
    if not all(text.isascii() and text.isdigit() and str(int(text)) == text for text in texts):
        return None
    return texts.astype(np.int64)


def _order(classes: np.ndarray) -> np.ndarray:
    """The different classes: rising if whole numbers, else by first appearance."""
    different, first = np.unique(classes, return_index=True)
    if classes.dtype.kind in "iu":
        return different
    numbers = _as_integers(different)
    return different[np.argsort(first if numbers is None else numbers)]


def _named_labels(
    path: Path, labels: np.ndarray, names: np.ndarray | None, *, names_by_row: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The class name of every row, and the names in the order of the classes."""
    if names is None:
        return labels.astype(str), _order(labels).astype(str)
    if len(names) == len(labels) and (names_by_row or _is_function(labels, names)):
        return _names_of_rows(path, labels, names, names_by_row=names_by_row)
    _refuse_repeated(path, names)
    if labels.dtype.kind == "U":
        labels = _positions(path, labels, names)
    if labels.max() >= len(names):
        row = int(np.argmax(labels))
        raise InputError(
            f"Expected labels from 0 to {len(names) - 1} for the {len(names)} class names of "
            f"{path} but "
            f"got {labels[row]} in row {row}; count labels from 0, or add the missing names"
        )
    present = np.unique(labels)
    if len(present) < len(names):
        absent = np.setdiff1d(np.arange(len(names)), present)[0]
        warnings.warn(
            f"{len(names) - len(present)} of the {len(names)} classes named in {path} have no "
            f"sample and are left out (first: '{names[absent]}')",
            stacklevel=5,
        )
    return names[labels], names[present]


def _positions(path: Path, labels: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Where each text label stands in the list of class names."""
    position = {name: index for index, name in enumerate(names.tolist())}
    unknown = next((label for label in labels.tolist() if label not in position), None)
    if unknown is not None:
        raise InputError(
            f"Expected the labels of {path} to be among its {len(names)} class names but got "
            f"'{unknown}'; add it to the names, or leave the names out"
        )
    return np.array([position[label] for label in labels.tolist()])


def _is_function(labels: np.ndarray, names: np.ndarray) -> bool:
    """Whether each label always comes with the same name: then names go by row, not by label."""
    return len(set(zip(labels.tolist(), names.tolist(), strict=True))) == len(np.unique(labels))


def _names_of_rows(
    path: Path, labels: np.ndarray, names: np.ndarray, *, names_by_row: bool
) -> tuple[np.ndarray, np.ndarray]:
    pairs = set(zip(labels.tolist(), names.tolist(), strict=True))
    if not len(pairs) == len(np.unique(labels)) == len(np.unique(names)):
        raise InputError(
            f"Expected each label of {path} to go with one class name and each name with one label "
            "but "
            f"got {len(np.unique(labels))} labels, {len(np.unique(names))} names and {len(pairs)} "
            "different pairs; correct them or remove one of the two"
        )
    if len(pairs) == len(labels):  # one row a class
        counted = np.arange(len(labels))
        shuffled = not np.array_equal(labels, counted) and np.array_equal(np.sort(labels), counted)
        if shuffled and not names_by_row:
            raise InputError(
                f"Expected labels 0, 1, 2, ... beside the {len(names)} class names of {path} but "
                "got them "
                f"in another order (first {labels[0]}), so a name could go by row or by label; "
                "sort the rows by label or remove the labels"
            )
        return names, names
    first = np.unique(labels, return_index=True)[1]
    return names, names[first] if labels.dtype.kind == "i" else _order(names)


def _refuse_repeated(path: Path, names: np.ndarray) -> None:
    different, counts = np.unique(names, return_counts=True)
    if len(different) < len(names):
        which = int(np.argmax(counts > 1))
        rows = np.flatnonzero(names == different[which])
        raise InputError(
            f"Expected different class names in {path} but got '{different[which]}' in rows "
            f"{rows[0]} and {rows[1]}; make the names different"
        )


def _refuse_few_repeats(path: Path, title: str, names: np.ndarray) -> None:
    """Names that repeat mean samples, but two classes called "crane" among many are a slip."""
    different = len(np.unique(names))
    if different < len(names) and (2 * different > len(names) or title.lower() in words.CENTROIDS):
        _refuse_repeated(path, names)
