"""`kernel`: how every numba function of the project is compiled and cached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` on first use, keep the machine code on disk, run it without the GIL.

    No `fastmath`: sums keep the order they are written in, so every machine gets the same bits, and
    no process-wide floating-point mode is touched. Threads come from `fsl_basesel.parallel`, not
    from numba's own pool, which neither survives a fork nor allows calls from several threads.

    Where neither the package folder nor the user's cache folder can be written (a read-only disk),
    numba refuses `cache=True`; the function is then compiled once per process instead.

    Example:
        >>> @kernel
        ... def double(x):
        ...     return 2 * x
        >>> double(21)
        42
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        return numba.njit(**options)(function)
