"""Settings of a YAML file: read, merged, checked, and made into objects."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from fsl_basesel.errors import InputError

Settings = dict[str, Any]
"""Settings by name, as plain types."""

TOP = ("run", "seed_everything", "data", "model", "trainer", "ckpt_path")
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


def callbacks_of(settings: Settings, kind: str) -> list[Settings]:
    """The callbacks of a kind that settings describe."""
    found = (settings.get("trainer") or {}).get("callbacks") or []
    return [entry for entry in found if isinstance(entry, dict) and kind_of(entry) == kind]


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


def arguments(kind: Any) -> list[str]:
    """Names of the arguments of a class, those of its bases included where it passes them on."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_class_arguments(kind, "it", fail_untyped=False, instantiate=False)
    except (ValueError, TypeError):
        return []
    return sorted({action.dest.split(".")[1] for action in parser._actions if "." in action.dest})


def one_line(error: BaseException) -> str:
    """An error of the parser as one short line: the key, what it takes, what was given."""
    text = str(error)
    owners = re.findall(r"(?:Parser key|Group) [\"']([^\"']+)", text)
    paths = re.findall(r"class_path[^\w]+([\w.]+)", text)
    unknown = re.search(
        r"(?:Option|accept option) '(\w+)'|unrecognized arguments: --([\w.]+)", text
    )
    types = re.findall(r"Expected an? (?:<class '([\w.]+)'>|typing\.Literal\[(.+)\])", text)
    types = [name or choices for name, choices in types if name != "NoneType"]
    given = re.search(r"(?:Got|Given) value: (?!NestedArg)(.+)", text)
    line = " ".join(text.split())
    kinds = [class_named(path) for path in paths if "." in path]
    if unknown:
        line = _not_known(".".join([*owners, unknown[1] or unknown[2]]), kinds)
    elif owners and types and given:
        expected = " or ".join(dict.fromkeys(types))
        line = f"Expected {'.'.join(owners)} to be {expected} but got {given[1]!r}"
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
    return f"{line} (see fsl-basesel fit --help)"


def _not_known(name: str, kinds: Sequence[Any]) -> str:
    """What to say of a setting that none of these classes takes, with the nearest right one."""
    import pytorch_lightning as pl

    prefix, dot, key = name.rpartition(".")
    for kind in kinds or [pl.Trainer]:
        near = difflib.get_close_matches(key, arguments(kind) if prefix else TOP, 1)
        if near:
            owner = f" of {kind.__name__}" if prefix else ""
            return f"Expected a setting{owner} but got {name}; did you mean {prefix}{dot}{near[0]}?"
    return f"Expected a known setting but got {name}"
