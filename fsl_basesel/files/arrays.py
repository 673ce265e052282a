"""Open .npz, .npy, .pt and .safetensors files as named arrays, without ever running a pickle."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fsl_basesel.errors import InputError

UNNAMED = ""
"""Key of the only array of a file that holds one bare array (.npy, a single saved tensor)."""


@dataclass(frozen=True)
class Arrays:
    """The arrays of one file, read when asked for: a large neighbour nobody wants stays on disk.

    Attributes:
        path: The file, for messages.
        keys: Names of the arrays in the order of the file.
        load: Reads one array by its key.
    """

    path: Path
    keys: tuple[str, ...]
    load: Callable[[str], np.ndarray]

    def find(self, known: frozenset[str]) -> list[str]:
        """Keys that mean one of the `known` lower-case words, in the order of the file."""
        return [key for key in self.keys if key.lower() in known]

    def describe(self) -> str:
        """What the file holds, for messages: `feat float16 [6000, 1280], label int16 [6000]`."""
        parts = []
        for key in self.keys[:8]:
            try:
                parts.append(f"{key or 'one array'} {shape_of(self.load(key))}")
            except InputError:
                parts.append(f"{key} (not a plain array)")
        more = len(self.keys) - len(parts)
        return ", ".join(parts or ["nothing"]) + (f" and {more} more" if more else "")


def shape_of(array: np.ndarray) -> str:
    """Type and shape of an array in words.

    Example:
        >>> shape_of(np.zeros((3, 2), np.float32))
        'float32 [3, 2]'
    """
    kind = "text" if array.dtype.kind in "US" else str(array.dtype)
    return f"{kind} {list(array.shape)}"


def first_line(error: Exception) -> str:
    """The first line of a library's message, short enough to sit in one of ours."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".")[:160]


def broken(path: Path, kind: str, error: Exception) -> InputError:
    """The error for a file that cannot be read as what its ending says."""
    return InputError(
        f"Expected {path} to be a whole {kind} file but it cannot be read ({first_line(error)}); "
        "it may be cut off or of another kind: write or copy it again"
    )


def open_arrays(path: Path) -> Arrays:
    """Open a file of arrays by its ending: .npz, .npy, .pt, .pth or .safetensors.

    Raises:
        InputError: The file is broken, or holds pickled objects.
    """
    readers = {".npz": _open_npz, ".npy": _open_npy, ".safetensors": _open_safetensors}
    return readers.get(path.suffix.lower(), _open_torch)(path)


def _pickled(path: Path, key: str) -> InputError:
    what = f"`{key}` of {path}" if key else str(path)
    return InputError(
        f"Expected {what} to be a plain array but got Python objects (a pickle), which are refused "
        "because loading them can run code; save numbers as numbers and names as "
        "np.array(names, dtype=str)"
    )


def _open_npy(path: Path) -> Arrays:
    try:
        array = np.load(path, allow_pickle=False)
    except Exception as error:
        if "pickle" in str(error) and _is_object_npy(path):
            raise _pickled(path, UNNAMED) from error
        raise broken(path, ".npy", error) from error
    if not isinstance(array, np.ndarray):  # an .npz archive under the ending .npy
        array.close()
        raise InputError(
            f"Expected {path} to be an .npy file but got an .npz archive; rename it to end in .npz"
        )
    return Arrays(path, (UNNAMED,), lambda key: array)


def _is_object_npy(path: Path) -> bool:
    """Whether the file is a real .npy of objects; numpy words a broken file much the same."""
    with path.open("rb") as file:
        return file.read(6) == b"\x93NUMPY"


def _open_npz(path: Path) -> Arrays:
    try:
        archive = np.load(path, allow_pickle=False)
        keys = tuple(archive.files)
    except Exception as error:
        raise broken(path, ".npz", error) from error

    def load(key: str) -> np.ndarray:
        try:
            return archive[key]
        except ValueError as error:
            if "Object arrays" in str(error):
                raise _pickled(path, key) from error
            raise broken(path, ".npz", error) from error
        except Exception as error:  # a member that is cut off or fails its checksum
            raise broken(path, ".npz", error) from error

    return Arrays(path, keys, load)


def _open_torch(path: Path) -> Arrays:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        text = str(error)
        if "Unsupported global" in text or "Unsupported class" in text or "GLOBAL" in text:
            raise InputError(
                f"Expected {path} to hold tensors, numbers and strings but got other Python "
                "objects, which are refused because loading them can run code; save it with "
                'torch.save({"features": tensor, "labels": tensor, "names": list_of_str}, path)'
            ) from error
        raise broken(path, ".pt", error) from error
    if isinstance(saved, torch.Tensor):
        array = _to_numpy(saved)
        return Arrays(path, (UNNAMED,), lambda key: array)
    if not isinstance(saved, dict):
        raise InputError(
            f"Expected {path} to hold a tensor or a dict of tensors but got a "
            f"{type(saved).__name__}; save it with "
            'torch.save({"features": tensor, "labels": tensor, "names": list_of_str}, path)'
        )

    def load(key: str) -> np.ndarray:
        return _plain(path, key, values[key])

    values = {str(key): value for key, value in saved.items()}
    return Arrays(path, tuple(values), load)


def _plain(path: Path, key: str, value: Any) -> np.ndarray:
    """A tensor, or a list of strings or of numbers, as an array."""
    if isinstance(value, torch.Tensor):
        return _to_numpy(value)
    if isinstance(value, list | tuple):
        if value and all(isinstance(entry, str) for entry in value):
            return np.array(value, dtype=str)
        if value and all(isinstance(entry, int | float) for entry in value):
            return np.array(value)
    raise InputError(
        f"Expected `{key}` of {path} to be a tensor, a list of strings or a list of numbers but "
        f"got a {type(value).__name__}; save it as one of these"
    )


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    # numpy has no bfloat16 and no 8-bit floats; float32 holds each of their values exactly.
    if tensor.is_floating_point() and tensor.dtype not in (
        torch.float16,
        torch.float32,
        torch.float64,
    ):
        tensor = tensor.float()
    return tensor.numpy()


def _open_safetensors(path: Path) -> Arrays:
    from safetensors import safe_open
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except Exception as error:
        raise broken(path, ".safetensors", error) from error
    arrays = {key: _to_numpy(tensor) for key, tensor in tensors.items()}
    # The format has no text arrays; class names travel in its header as a JSON list.
    for key, text in metadata.items():
        try:
            listed = json.loads(text)
        except ValueError:
            continue
        if isinstance(listed, list) and listed and all(isinstance(entry, str) for entry in listed):
            arrays.setdefault(key, np.array(listed, dtype=str))
    return Arrays(path, tuple(arrays), arrays.__getitem__)
