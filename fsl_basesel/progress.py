"""Progress of long work: algorithms report it, a listener shows it.

Example:
    >>> with listening(lambda task, done, total: print(task, done, total)):
    ...     report("dual", 3, 10)
    dual 3 10
    >>> report("dual", 4, 10)  # no listener: nothing happens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Listener: TypeAlias = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("progress listener", default=None)


def report(task: str, done: int, total: int) -> None:
    """Say that `done` of `total` steps of `task` are finished."""
    listener = _listener.get()
    if listener is not None:
        listener(task, done, total)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Send reports made inside the block to `listener`; None leaves things as they are."""
    token = _listener.set(_listener.get() if listener is None else listener)
    try:
        yield
    finally:
        _listener.reset(token)
