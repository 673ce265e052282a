"""Settings as a YAML file has them: read, put over one another, checked, and made into objects."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from fsl_basesel.errors import InputError

Settings = dict[str, Any]
"""Settings by name, as plain types."""

TOP = ("run", "seed_everything", "data", "model", "trainer", "ckpt_path")
_PREFIX = ("class_path", "init_args", "dict_kwargs")
_SELECTING = ("ColdStartSelection", "SelectBaseClasses")
LONGEST = 300


def read(path: str | Path) -> Settings:
    """The settings in a YAML file."""
    try:
        settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Expected {path} to be a YAML file but {error}.") from error
    except yaml.YAMLError as error:
        line = " ".join(str(error).split())
        raise InputError(f"Expected {path} to be YAML but it is not: {line}.") from error
    if not isinstance(settings, dict):
        raise InputError(f"Expected {path} to hold settings by name but got {settings!r}.")
    return settings


def merged(below: Settings, above: Settings) -> Settings:
    """Settings of `above` and, where it is silent, of `below`.

    Callbacks of `below` stay unless `above` has one of the same kind; another class as data or
    model replaces all of it.

    Example:
        >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
        {'a': {'b': 3, 'c': 2}}
    """
    both = dict(below)
    for name, value in above.items():
        old = both.get(name)
        if name == "callbacks" and isinstance(old, list) and isinstance(value, list):
            kinds = {kind_of(entry) for entry in value}
            both[name] = [entry for entry in old if kind_of(entry) not in kinds] + value
        elif isinstance(old, dict) and isinstance(value, dict):
            same = value.get("class_path", old.get("class_path")) == old.get("class_path")
            both[name] = merged(old, value) if same else value
        else:
            both[name] = value
    return both


def kind_of(entry: Any) -> str:
    """The class of a callback by its last name; the two that select are one kind."""
    path = entry.get("class_path", "") if isinstance(entry, dict) else str(entry)
    name = path.rpartition(".")[2]
    return "selection" if name in _SELECTING else name


def callbacks_of(settings: Settings, kind: str | None = None) -> list[Settings]:
    """The callbacks that settings describe, or those of a kind."""
    found = (settings.get("trainer") or {}).get("callbacks") or []
    entries = [entry for entry in found if isinstance(entry, dict)]
    return [entry for entry in entries if kind is None or kind_of(entry) == kind]


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
        home = sys.modules.get(module)
        near = difflib.get_close_matches(name, getattr(home, "__all__", dir(home)), 1)
        hint = f"did you mean {module}.{near[0]}?" if near else "correct its name."
        raise InputError(
            f"Expected `class_path` to name a class but got {path!r} ({error}); {hint}"
        ) from error


def build(spec: Any) -> Any:
    """What `{class_path: ..., init_args: {...}}` describes; anything else stays as it is.

    Example:
        >>> build({"class_path": "datetime.timedelta", "init_args": {"hours": 1}}).seconds
        3600
    """
    if not isinstance(spec, dict) or "class_path" not in spec:
        return spec
    found = class_named(spec["class_path"])
    return found(**{key: build(value) for key, value in spec.get("init_args", {}).items()})


def require_known(settings: Settings, words: Sequence[str] = ()) -> None:
    """Refuse settings that nothing takes, with the nearest right one.

    Args:
        settings: as a YAML file gives them.
        words: options of the command line, such as `--data.batch_size=32`.
    """
    import pytorch_lightning as pl

    _require("", settings, TOP)
    known = {"trainer": arguments(pl.Trainer), "trainer.callbacks": []}
    _require("trainer.", settings.get("trainer") or {}, known["trainer"])
    parts = [(name, settings.get(name) or {}) for name in ("data", "model")]
    for name, entry in (*parts, *(("trainer.callbacks", one) for one in callbacks_of(settings))):
        known.setdefault(name, []).extend(_checked(name, entry))
    for word in words:
        path = word.partition("=")[0].lstrip("-").split(".")
        owner, *keys = [part for part in path if part not in _PREFIX]
        if owner == "trainer" and keys[:1] == ["callbacks"] and len(keys) > 1:
            owner, keys = "trainer.callbacks", keys[1:]
        _require(f"{owner}.", keys[:1], known.get(owner, ()))


def arguments(kind: Any) -> list[str]:
    """Names of the arguments of a class, those of its bases included where it passes them on."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_class_arguments(kind, "it", fail_untyped=False, instantiate=False)
    except (ValueError, TypeError):
        return []
    return sorted({action.dest.split(".")[1] for action in parser._actions if "." in action.dest})


def _checked(name: str, entry: Settings) -> list[str]:
    """The arguments of a class, after what it and the classes inside it are given was checked."""
    if "class_path" not in entry:
        return []
    kind = class_named(entry["class_path"])
    given, known = entry.get("init_args") or {}, arguments(kind)
    _require(f"{name}.", given, known, f" of {kind.__name__}")
    for key, value in given.items():
        if isinstance(value, dict):
            _checked(f"{name}.{key}", value)
    return known


def _require(prefix: str, given: Iterable[str], known: Sequence[str], owner: str = "") -> None:
    for key in given if known else ():  # none are known of a class that does not tell
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known are {', '.join(known)}."
            raise InputError(f"Expected a setting{owner} but got {prefix}{key}; {hint}")


def one_line(error: BaseException) -> str:
    """An error of the parser on one line of bounded length: the key, what it takes, what came."""
    text = str(error)
    keys = re.findall(r'Parser key "([^"]+)"', text)
    kinds = re.findall(r"Expected an? (?:<class '([\w.]+)'>|typing\.Literal\[(.+)\])", text)
    kinds = [name or choices for name, choices in kinds if name != "NoneType"]
    given = re.search(r"(?:Got|Given) value: (?!NestedArg)(.+)", text)
    line = " ".join(text.split())
    if keys and kinds and given:
        expected = " or ".join(dict.fromkeys(kinds))
        line = f"Expected {'.'.join(keys)} to be {expected} but got {given[1]!r}"
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
    return f"{line} (see fsl-basesel fit --help)"
