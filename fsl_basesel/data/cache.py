"""Files that are costly to make, kept in the user's cache folder and never half written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

_ABANDONED_SECONDS = 3600.0


def cache_folder() -> Path:
    """`FSL_BASESEL_CACHE` if set, else `fsl-basesel` in the platform's cache folder."""
    asked = os.environ.get("FSL_BASESEL_CACHE")
    if asked:
        return Path(asked)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "fsl-basesel"


def fingerprint(parts: Iterable[str | bytes]) -> str:
    """A short name for the content of `parts`: 32 hexadecimal digits.

    Example:
        >>> fingerprint(["a", "b"]) == fingerprint(["ab"])
        False
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


def store(name: str, write: Callable[[BinaryIO], object]) -> bool:
    """Write a cache file whole or not at all; False where the disk cannot be written.

    The content goes to a file of its own in the same folder and is then renamed over the name, so
    a reader, a second process or a kill at any point meets the old file, the new one or none.
    """
    folder = cache_folder()
    temporary = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".part-", dir=folder)
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.replace(temporary, folder / name)
    except OSError:
        return False
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    _remove_abandoned(folder)
    return True


def _remove_abandoned(folder: Path) -> None:
    """Delete what killed processes left behind."""
    with contextlib.suppress(OSError):
        for part in folder.glob(".part-*"):
            with contextlib.suppress(OSError):
                if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                    part.unlink()
