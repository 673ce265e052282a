"""`kernel`: how every numba function of the project is compiled and cached."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

PACKAGE = Path(__file__).parent


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
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        return numba.njit(**options)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of kernels, compiled as if it were written where it is called.

    Numba compiles an ordinary kernel once by itself and once more in each kernel that calls it.
    """
    return numba.njit(inline="always", error_model="numpy")(function)


def forget_stale_code(package: Path) -> bool:
    """Drop the machine code of `package` if any file with kernels has changed since it was made.

    numba compares a kernel with its own file alone; one that calls a kernel of another file would
    go on with the old one. That happens where files change one by one, as after a `git pull`, and
    there the code lies in `__pycache__` beside them. An installed package gets new files at once.

    Returns:
        Whether anything was dropped.
    """
    texts = (path.read_bytes() for path in sorted(package.rglob("*.py")))
    marks = (b"@kernel", b"@inlined", b"@intrinsic")
    digest = hashlib.sha256(b"".join(text for text in texts if any(m in text for m in marks)))
    stamp = package / "__pycache__" / f"kernels-{digest.hexdigest()[:16]}.stamp"
    if stamp.exists():
        return False
    with contextlib.suppress(OSError):  # a read-only folder holds no code of ours
        for folder in package.rglob("__pycache__"):
            for old in [*folder.glob("*.nbi"), *folder.glob("kernels-*.stamp")]:
                old.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.touch()
        return True
    return False


forget_stale_code(PACKAGE)
