"""Mistyped settings of `fit`: one line with the key and the nearest right one."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
from jsonargparse import ArgumentParser

from fsl_basesel.errors import InputError

TOP = ("run", "seed_everything", "data", "model", "trainer", "ckpt_path")
_PREFIX = ("class_path", "init_args", "dict_kwargs")
LONGEST = 300


def class_named(path: Any) -> Any:
    """The class that a `class_path` names.

    Example:
        >>> class_named("datetime.timedelta")
        <class 'datetime.timedelta'>
    """
    module, _, name = str(path).rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"Expected `class_path` to name a class but got {path!r} ({error})."
        ) from error


def require_known(settings: dict[str, Any], words: Sequence[str] = ()) -> None:
    """Refuse settings that nothing takes.

    Args:
        settings: as a YAML file gives them.
        words: options of the command line, such as `--data.batch_size=32`.
    """
    _require("", settings, TOP)
    trainer = settings.get("trainer") or {}
    _require("trainer.", trainer, arguments(pl.Trainer))
    callbacks = [entry for entry in trainer.get("callbacks") or () if isinstance(entry, dict)]
    classes = {part: settings.get(part) or {} for part in ("data", "model")}
    for name, entry in (*classes.items(), *(("trainer.callbacks", one) for one in callbacks)):
        _require_arguments(name, entry)
    inside = {name: _arguments_of(entry) for name, entry in classes.items()}
    of_callbacks = [name for entry in callbacks for name in _arguments_of(entry)]
    for word in words:
        parts = word.partition("=")[0].lstrip("-").split(".")
        key = [part for part in parts[1:] if part not in _PREFIX]
        if not key:
            continue
        if parts[0] == "trainer":
            staged = key[0] == "callbacks" and len(key) > 1
            known = of_callbacks if staged else arguments(pl.Trainer)
            prefix = "trainer.callbacks." if staged else "trainer."
            _require(prefix, {key[1] if staged else key[0]: None}, known)
        elif parts[0] in inside:
            _require(f"{parts[0]}.", {key[0]: None}, inside[parts[0]])


def arguments(kind: Any) -> list[str]:
    """Names of the arguments of a class, those of its bases included where it passes them on."""
    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_class_arguments(kind, "it", fail_untyped=False, instantiate=False)
    except (ValueError, TypeError):
        return []
    return sorted({action.dest.split(".")[1] for action in parser._actions if "." in action.dest})


def _arguments_of(entry: dict[str, Any]) -> list[str]:
    return arguments(class_named(entry["class_path"])) if "class_path" in entry else []


def _require_arguments(name: str, entry: dict[str, Any]) -> None:
    """Check what a class is given, and the classes inside it."""
    if "class_path" not in entry:
        return
    kind = class_named(entry["class_path"])
    given = entry.get("init_args") or {}
    _require(f"{name}.", given, arguments(kind), f" of {kind.__name__}")
    for key, value in given.items():
        if isinstance(value, dict):
            _require_arguments(f"{name}.{key}", value)


def _require(prefix: str, given: dict[str, Any], known: Sequence[str], owner: str = "") -> None:
    if not known:
        return  # a class that does not tell what it takes
    for key in given:
        if key in known:
            continue
        near = difflib.get_close_matches(str(key), known, 1)
        hint = f"did you mean {prefix}{near[0]}?" if near else f"known are {', '.join(known)}."
        raise InputError(f"Expected a setting{owner} but got {prefix}{key}; {hint}")


def one_line(error: BaseException) -> str:
    """An error of the parser on one line of bounded length."""
    line = " ".join(str(error).split())
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
    return f"{line} (see fsl-basesel fit --help)"
