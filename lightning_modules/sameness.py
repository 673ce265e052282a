"""Is a checkpoint of this very run? If not, say what is different."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsl_basesel.data import NovelTask
from fsl_basesel.errors import InputError


def require_same(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose settings differ from those of the run that is to go on.

    Args:
        saved: settings the checkpoint was written with.
        here: settings of this run.

    Raises:
        InputError: with every setting that differs, its value in the checkpoint and here.

    Example:
        >>> require_same({"seed": 0}, {"seed": 0})
        >>> require_same({"seed": 0}, {"seed": 1})
        Traceback (most recent call last):
        ...
        fsl_basesel.errors.InputError: Expected a checkpoint of this run but it is of another one:
        seed was 0 and is now 1. Resume ...
    """
    names = [*here, *(name for name in saved if name not in here)]
    missing = object()
    differing = [
        f"{name} was {saved.get(name, 'not there')!r} and is now {here.get(name, 'not there')!r}"
        for name in names
        if saved.get(name, missing) != here.get(name, missing)
    ]
    if differing:
        raise InputError(
            f"Expected a checkpoint of this run but it is of another one: {'; '.join(differing)}. "
            "Resume with the settings of the checkpoint, or leave `ckpt_path` out to start anew."
        )


def novel_fingerprint(novel: NovelTask | None) -> str:
    """Tells a novel task from any other; General Selection, which has none, is "none"."""
    return "none" if novel is None else novel.fingerprint
