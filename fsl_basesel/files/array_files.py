"""Read files of named arrays: .npz, .npy, .pt, .pth, .safetensors, and tables: .csv, .parquet.

No pickle is ever run, torch is imported only for files of tensors, and a file that does not fit
into memory is refused before it is read.
"""

from __future__ import annotations

import csv
import json
import math
import re
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.memory import refuse_oversize

TABLES = (".csv", ".parquet")
ENDINGS = (".npz", ".npy", ".pt", ".pth", ".safetensors", *TABLES)
UNNAMED = ""
"""Key of the only array of a file that holds one bare array (.npy, a single saved tensor)."""
MOST_COLUMNS = 65_536
TEXTS = re.compile("(class_)?names?|labels?|groups?|novel", re.I)
"""Columns of a .csv whose cells are text exactly as written: "007" is not 7, "nan" is a bread."""


def shape_of(array: Any) -> str:
    """Type and shape of an array in words, as in `float32 [3, 2]`."""
    kind = "text" if array.dtype.kind in "US" else array.dtype
    return f"{kind} {list(array.shape)}"


def describe(arrays: dict[str, np.ndarray]) -> str:
    """What a file holds, for messages: `feat float16 [6000, 1280], label int16 [6000]`."""
    parts = [f"{key or 'one array'} {shape_of(array)}" for key, array in arrays.items()]
    return ", ".join(parts[:8] or ["nothing"]) + (f" and {len(parts) - 8} more" * (len(parts) > 8))


def broken(path: Path, error: Exception) -> InputError:
    """The error for a file that cannot be read as what its ending says."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return InputError(
        f"Expected {path} to be a whole {path.suffix.lower()} file but it cannot be read "
        f"({reason[:160]}); it may be cut off or of another kind: write or copy it again"
    )


def check_file(path: Path, endings: tuple[str, ...]) -> Path:
    """The path again, if it is a file that is not empty and has one of the endings."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "something else" if path.exists() else "nothing"
        raise InputError(f"Expected a file at {path} but there is {what}; check the path")
    if path.suffix.lower() not in endings:
        raise InputError(
            f"Expected {path} to end in one of {', '.join(endings)} but got "
            f"'{path.suffix or 'no ending'}'; convert or rename it"
        )
    if not path.stat().st_size:
        raise InputError(f"Expected {path} to hold data but got an empty file; write it again")
    return path


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file by key, or the columns of a table by title."""
    ending = check_file(path, ENDINGS).suffix.lower()
    readers = {".npz": _npz, ".npy": _npy, ".safetensors": _safetensors}
    try:
        if ending in TABLES:
            data = _csv(path) if ending == ".csv" else _parquet(path)
            if not data.num_rows:
                raise InputError(f"Expected {path} to hold at least one row but got none")
            return {title: _column(data.column(title)) for title in data.column_names}
        refuse_oversize(f"the file {path}", path.stat().st_size)
        return readers.get(ending, _torch)(path)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # damaged files raise all sorts of errors
        raise broken(path, error) from error


def _npy(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as file:
        return {UNNAMED: _array(file, UNNAMED, path, path.stat().st_size)}


def _npz(path: Path) -> dict[str, np.ndarray]:
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            key = info.filename.removesuffix(".npy")
            with archive.open(info) as file:
                arrays[key] = _array(file, key, path, info.file_size)
    return arrays


def _array(file: IO[bytes], key: str, path: Path, size: int) -> np.ndarray:
    """An array in numpy's format, if what its header declares is there and fits into memory."""
    old = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    needed = math.prod(shape) * dtype.itemsize
    what = f"{key} of {path}" if key else str(path)
    refuse_oversize(f"{what} ({dtype} {list(shape)})", needed)
    if key and dtype.hasobject:
        return np.empty(0, object)  # one that is not used does no harm
    if not dtype.hasobject and needed > size:
        raise ValueError(f"{key} declares {needed} bytes but {size} are there")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)  # loading a pickle could run code


def _torch(path: Path) -> dict[str, np.ndarray]:
    import torch

    saved = torch.load(path, map_location="cpu", weights_only=True)
    arrays = {}
    for key, value in (saved if isinstance(saved, dict) else {UNNAMED: saved}).items():
        if isinstance(value, torch.Tensor):
            refuse_oversize(f"{key} of {path}", value.numel() * value.element_size())
            arrays[str(key)] = _of_tensor(value.detach())
        elif isinstance(value, list) and value and isinstance(value[0], str):
            arrays[str(key)] = np.array(value, str)
    return arrays


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        # The format has no text; class names travel in its header as a JSON list.
        about = (file.metadata() or {}).items()
        arrays = {key: np.array(json.loads(text)) for key, text in about if text[:1] == "["}
        return arrays | {key: _of_tensor(file.get_tensor(key)) for key in file.keys()}  # noqa: SIM118


def _of_tensor(tensor: Any) -> np.ndarray:
    """Numpy has no bfloat16 and no 8-bit floats; float32 holds their values exactly."""
    kept = not tensor.is_floating_point() or str(tensor.dtype) in ("torch.float16", "torch.float64")
    return (tensor if kept else tensor.float()).numpy()


def _check_titles(path: Path, titles: list[str]) -> None:
    if len(titles) > MOST_COLUMNS:
        raise InputError(
            f"Expected at most {MOST_COLUMNS} columns in {path} but got {len(titles)}; save wide "
            "features as .npz or .npy"
        )
    unnamed = re.compile(r"[-+.eE\d]*\d|.*[;\t].*|")
    wrong = next((title for title in titles if unnamed.fullmatch(title)), None)
    if wrong is not None or len(set(titles)) < len(titles):
        raise InputError(
            f"Expected the first line of {path} to name the columns, separated by commas, but got "
            f"{'one name twice' if wrong is None else repr(wrong)}; write it as in name,f0,f1,f2"
        )


def _csv(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.csv

    with path.open("rb") as file:
        line = file.readline(1 << 25).decode("utf-8-sig")
    titles = [title.strip() for title in next(csv.reader([line]), []) or [""]]
    _check_titles(path, titles)
    size = path.stat().st_size
    refuse_oversize(f"the table {path}", size)
    texts = {title: pa.string() for title in titles if TEXTS.fullmatch(title)}
    # One block: pyarrow would infer the type of a column from its first megabyte only.
    block = min(max(size + 1, 1 << 20), (1 << 31) - 1)
    return pa.csv.read_csv(
        path,
        pa.csv.ReadOptions(column_names=titles, skip_rows=1, block_size=block),
        convert_options=pa.csv.ConvertOptions(column_types=texts),
    )


def _parquet(path: Path) -> Any:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        about = file.metadata
        parts = (about.row_group(part).total_byte_size for part in range(about.num_row_groups))
        refuse_oversize(f"the table {path}", sum(parts))
        _check_titles(path, list(file.schema_arrow.names))
        data = file.read()
    data.validate(full=True)  # damaged text shows here, not in the middle of the work
    return data


def _column(column: Any) -> np.ndarray:
    """A column as an array, or one of lists as a matrix; missing numbers are NaN."""
    import pyarrow.compute

    if not pyarrow.types.is_nested(column.type):
        array = column.to_numpy()
        return array.astype(str) if array.dtype.kind == "O" else array
    lengths = set(pyarrow.compute.list_value_length(column).to_pylist())
    if len(lengths) != 1 or None in lengths:
        raise ValueError(f"a column holds lists of different lengths: {sorted(map(str, lengths))}")
    return pyarrow.compute.list_flatten(column).to_numpy().reshape(len(column), -1)
