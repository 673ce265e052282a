"""Free memory, so that data that cannot fit is refused before it is allocated."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fsl_basesel.errors import InputError


def free_bytes() -> int:
    """Memory that can still be taken, swap not counted; the smaller of machine's and container's.

    Outside Linux, where the system does not report it, all of the machine's memory.
    """
    limits = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        limits.append(1024 * int(line.split()[1]))
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text())
        limits.append(int((group / "memory.max").read_text()) - used)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(0, min(limits)) if limits else 1 << 62


def gigabytes(count: float) -> str:
    """Bytes as text.

    Example:
        >>> gigabytes(12_000_000_000), gigabytes(250_000)
        ('12.0 GB', '0.00025 GB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e9:.2g} GB"


def refuse_oversize(
    what: str, needed: int, advice: str = "use fewer classes or a machine with more memory"
) -> None:
    """Refuse `what`, the beginning of a sentence, if it needs more bytes than there are.

    Each of the processes of torchrun on this machine takes as many.
    """
    free, processes = free_bytes(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if needed * processes > free:
        each = "" if processes == 1 else f" on each of {processes} processes"
        raise InputError(
            f"Expected {what} to fit into memory but it takes {gigabytes(needed)}{each} and "
            f"{gigabytes(free)} are free; {advice}."
        )
