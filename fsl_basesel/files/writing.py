"""Files written whole or not at all: text, CSV, and npz and JSON files that name their format."""

from __future__ import annotations

import contextlib
import csv
import glob
import io
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fsl_basesel.errors import InputError

if TYPE_CHECKING:
    import numpy as np

_ABANDONED_SECONDS = 3600.0


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write bytes so that a crash at any point leaves the old file or the new one, whole.

    What is written goes to a temporary file in the same folder, which is flushed to the disk and
    renamed when the block ends, and deleted if the block raises. The folder is made if needed.
    Temporary files that a kill left beside this file are deleted after an hour.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    stem = f".{target.name[:100]}."
    part = target.with_name(f"{stem}{secrets.token_hex(6)}.part")
    try:
        # `open` leaves the umask to the system. Reading it would change it for all threads.
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):
        for left in target.parent.glob(f"{glob.escape(stem)}*.part"):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                left.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write text in UTF-8, whole or not at all, and return the path."""
    with whole_file(path) as file:
        file.write(text.encode("utf-8"))
    return Path(path)


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Rows as CSV text with a header; None is an empty cell and numbers read back exactly.

    The columns are by default those of the first row.
    """
    lines = list(rows)
    header = list(lines[0] if columns is None and lines else columns or ())
    text = io.StringIO()
    writer = csv.DictWriter(text, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def save_npz(
    path: str | os.PathLike[str], format: str | None, /, *, compress: Any = False, **arrays: Any
) -> Path:
    """Write arrays to an .npz file, whole or not at all, and return the path.

    `format` is the kind and version of the file, kept under the key "format"; None leaves it out.
    """
    import numpy as np

    named = {} if format is None else {"format": np.array(format)}
    write: Any = np.savez_compressed if compress else np.savez
    with whole_file(path) as file:
        write(file, **named, **arrays)
    return Path(path)


def load_npz(
    path: str | os.PathLike[str], format: str | None, needed: Sequence[str] = (), *, what: str
) -> dict[str, np.ndarray]:
    """All arrays that `save_npz` wrote, by key, without "format"; those of `needed` must be there.

    `what` describes in an error what was expected: "a study written by `Study.save`".
    """
    from fsl_basesel.files.array_files import read_arrays

    with reading(path, what):
        arrays = read_arrays(Path(path))
        found = arrays.pop("format", None)
        if format is not None and (found is None or str(found) != format):
            raise ValueError(f"its format is {found} where {format!r} is expected")
        if any(array.dtype.hasobject for array in arrays.values()):
            raise ValueError("it holds Python objects")
        missing = [name for name in needed if name not in arrays]
        if missing:
            raise ValueError(f"it lacks the array {missing[0]!r}")
        return arrays


def load_json(path: str | os.PathLike[str], format: str, *, what: str) -> dict[str, Any]:
    """Read a JSON object whose "format" is `format`; the fields without that one are returned."""
    with reading(path, what):
        text = Path(path).read_text(encoding="utf-8")
        fields = json.loads(text, parse_constant=_no_constant)
        found = fields.pop("format", None) if isinstance(fields, dict) else None
        if found != format:
            raise ValueError(f"its format is {found!r} where {format!r} is expected")
        return fields


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number of JSON")


@contextmanager
def reading(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn whatever a missing, damaged or wrong file raises into an InputError that names it."""
    try:
        yield
    except Exception as error:  # damaged archives raise all sorts of errors
        raise InputError(
            f"Expected {str(path)!r} to be {what} but it could not be read "
            f"({type(error).__name__}: {error}); write it again or name another file."
        ) from error
