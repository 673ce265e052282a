"""The cache folder for files that are costly to make, and fingerprints of their inputs."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path


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
    """A short name for `parts`, 32 hexadecimal digits: another one for "a", "b" than for "ab"."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]
