"""Read class centroids, samples with labels, or a similarity matrix from one file.

`docs/cli.md`, "Files of classes", lists the files and keys that are read; `KEYS` has the keys.
Other keys are given after the file name: `pool.npz:KEY` names the features,
`pool.npz:features=KEY,labels=KEY` any of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fsl_basesel import checks
from fsl_basesel.errors import InputError
from fsl_basesel.files.array_files import ENDINGS, TABLES, UNNAMED, describe, read_arrays, shape_of
from fsl_basesel.similarity import ClassCentroids, class_centroids

KEYS = {
    "features": ("features", "feat", "centroids", "emb", UNNAMED),
    "labels": ("labels", "label"),
    "names": ("names", "name", "class_name"),
    "images": ("images", "image_count"),
    "groups": ("groups", "group"),
    "weights": ("weights", "weight"),
}

MADE_BY = ("backbone", "preprocessing")
"""Keys of what made the features, kept for the record."""


@contextmanager
def named_in(path: str | Path) -> Iterator[None]:
    """Put the file before the message of an InputError of the block."""
    try:
        yield
    except InputError as error:
        raise InputError(f"In {path}: {error}") from error


def open_file(text: str | Path) -> tuple[Path, dict[str, np.ndarray], dict[str, str]]:
    """The path of `file`, `file:KEY` or `file:labels=KEY,...`, its arrays, the keys it names."""
    path, named = Path(text), {}
    head, colon, tail = str(text).rpartition(":")
    if not path.exists() and colon and Path(head).suffix.lower() in ENDINGS:
        path = Path(head)
        pairs = (part.rpartition("=") for part in tail.split(","))
        named = {what or "features": key for what, _, key in pairs}
    arrays = read_arrays(path)
    missing = next((key for key in named.values() if key not in arrays), None)
    if missing is not None or set(named) - set(KEYS):
        raise InputError(
            f"Expected '{tail}' to name arrays of {path} as in features=KEY,labels=KEY but it "
            f"holds {describe(arrays)}; name one of these"
        )
    return path, arrays, named


def read_classes(path: str | Path) -> ClassCentroids:
    """Read class centroids, or samples with labels, from `file` or `file:KEY`."""
    file, arrays, named = open_file(path)
    parts: dict[str, np.ndarray] = {}
    for what in KEYS:
        key = named.get(what) or _usual_key(file, arrays, what)
        if key is not None:
            parts[what] = arrays[key]
    with named_in(file):
        if "features" not in parts:
            table = file.suffix.lower() in TABLES
            numbered = [title for title in arrays if table and title[-1].isdigit()]
            if not numbered:
                raise InputError(
                    "Expected features under one of the keys features, feat, centroids, emb (in a "
                    f"table: columns f0, f1, ...) but it holds {describe(arrays)}; say which array "
                    f"it is with {file.name}:KEY"
                )
            parts["features"] = _stacked(arrays, numbered)
        unasked = "labels" in parts and "features" in named and "labels" not in named
        if unasked and len(parts["labels"]) != len(parts["features"]):
            del parts["labels"]  # those of another array
        made_by = {key: str(arrays[key]) for key in MADE_BY if key in arrays}
        return _to_classes(made_by, **parts)


def _usual_key(file: Path, arrays: dict[str, np.ndarray], what: str) -> str | None:
    """The key under which a file has `what`, None if there is none."""
    keys = [key for key in arrays if key.lower() in KEYS[what]]
    if len(keys) > 1:
        raise InputError(
            f"Expected one array of {what} in {file} but got {' and '.join(keys)}; say which "
            f"one with {file.name}:{what}={keys[0]}"
        )
    return keys[0] if keys else None


def _stacked(arrays: dict[str, np.ndarray], titles: list[str]) -> np.ndarray:
    if not titles:
        raise InputError("Expected columns of numbers but got none")
    for title in titles:
        if arrays[title].dtype.kind not in "fiu" or arrays[title].ndim > 1:
            raise InputError(
                f"Expected column '{title}' to hold numbers but got {shape_of(arrays[title])}; "
                "correct it or remove the column"
            )
    return np.stack([arrays[title] for title in titles], 1)


def _to_classes(
    made_by: dict[str, str],
    features: np.ndarray,
    labels: np.ndarray | None = None,
    names: np.ndarray | None = None,
    images: np.ndarray | None = None,
    **others: np.ndarray,
) -> ClassCentroids:
    """The classes of the arrays of a file; `others` are groups and weights."""
    values = checks.matrix(features, "features", "rows", "dimensions")
    listed = None if names is None else to_names(names)
    kept = np.arange(len(values))
    if labels is not None:
        if labels.shape != (len(values),):
            raise InputError(f"Expected {len(values)} labels but got {shape_of(labels)}")
        number, listed = _numbered(labels, listed)
        kept, number = np.unique(number, return_inverse=True)
        values, images = class_centroids(values, number), np.bincount(number)
    elif listed is not None and len(set(listed)) != len(values):
        raise InputError(
            f"Expected {len(values)} different names, one for each row of features, but got "
            f"{len(set(listed))}; if the rows are samples, call their classes `labels`"
        )
    count = len(values) if listed is None else len(listed)
    if len(kept) < count:
        warnings.warn(
            f"{count - len(kept)} of the {count} classes have no sample and are left out",
            stacklevel=4,
        )
    for what, array in others.items():
        if array.shape != (count,):
            raise InputError(f"Expected {count} {what}, one per class, but got {shape_of(array)}")
        others[what] = array[kept]
    return ClassCentroids(
        values,
        None if listed is None else [listed[i] for i in kept],
        to_names(others["groups"]) if "groups" in others else None,
        images,
        others.get("weights"),
        made_by,
    )


def _numbered(labels: np.ndarray, names: list[str] | None) -> tuple[np.ndarray, list[str]]:
    """The class of every row as a number, and the names of the classes by number."""
    if labels.dtype.kind in "US":
        texts = to_names(labels)
        known = names or list(dict.fromkeys(texts))
        if not set(texts) <= set(known):
            raise InputError(f"Expected labels among the names but got {set(texts) - set(known)}")
        position = {name: number for number, name in enumerate(known)}
        return np.array([position[text] for text in texts]), known
    if labels.dtype.kind not in "iu" or labels.min() < 0:
        raise InputError(
            f"Expected labels to be class numbers from 0, or names, but got {shape_of(labels)} "
            f"from {labels.min()}; leave out samples without a class"
        )
    if names is None:
        different, number = np.unique(labels, return_inverse=True)
        return number, [str(label) for label in different]
    if labels.max() >= len(names):
        raise InputError(
            f"Expected labels from 0 to {len(names) - 1} for the {len(names)} names but got "
            f"{labels.max()}; count labels from 0, or add the missing names"
        )
    return labels.astype(np.int64), names


def to_names(names: np.ndarray) -> list[str]:
    """A list of names, none of them empty."""
    listed = names.tolist() if names.ndim == 1 and names.dtype.kind in "USiu" else []
    try:
        texts = [entry.decode() if isinstance(entry, bytes) else str(entry) for entry in listed]
    except UnicodeDecodeError as error:
        raise InputError(f"Expected names in UTF-8 but got other bytes ({error.reason})") from error
    if not texts or not all(text.strip() for text in texts):
        what = shape_of(names) if not texts else "an empty one"
        raise InputError(
            f"Expected a list of names but got {what}; save them as np.array(names, dtype=str)"
        )
    return texts


class SimilarityMatrix(NamedTuple):
    """Similarities of novel classes (rows) to candidates (columns); names default to numbers."""

    values: np.ndarray
    names: tuple[str, ...]
    novel_names: tuple[str, ...]
    weights: np.ndarray | None  # of the novel classes


def read_similarity(path: str | Path) -> SimilarityMatrix:
    """Read |N| x |B| similarities from `file` or `file:KEY`: rows novel, columns candidates."""
    file, arrays, named = open_file(path)
    key = named.get("features", UNNAMED if UNNAMED in arrays else "similarity")
    weighted = named.get("weights") or _usual_key(file, arrays, "weights")
    weights = None if weighted is None else arrays[weighted]
    with named_in(file):
        if next(iter(arrays), None) == "novel" and file.suffix.lower() in TABLES:
            novel = arrays.pop("novel")
            titles = [title for title in arrays if title != weighted]
            values = _stacked(arrays, titles)
            arrays = {"novel_names": novel, "names": np.array(titles), key: values}
        if key not in arrays:
            raise InputError(
                "Expected an array `similarity` (in a table: a first column `novel` and one for "
                f"each candidate) but it holds {describe(arrays)}; say which one it is with "
                f"{file.name}:KEY"
            )
        values = checks.matrix(arrays[key], "similarity", "novel classes", "candidates")
        sides = []
        for side, count in (("names", values.shape[1]), ("novel_names", len(values))):
            sides.append(tuple(to_names(arrays.get(side, np.arange(count)))))
            if len(sides[-1]) != count:
                raise InputError(
                    f"Expected {count} {side} but got {len(sides[-1])}; rows are novel classes, "
                    "columns candidates: transpose the matrix if need be"
                )
    return SimilarityMatrix(values, sides[0], sides[1], weights)
