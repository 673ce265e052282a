"""Threads over fixed blocks of work, for numba kernels that release the GIL.

The blocks depend on the problem alone, never on the number of threads, and results come back in
block order, so a sum over blocks has the same bits on one core and on sixty-four.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

Result = TypeVar("Result")

ROWS = 256  # novel classes whose sums are taken together, whatever the number of processes
COLUMN_BLOCK = 1024  # candidates a thread takes at a time

# One pool a process: a forked child (DataLoader worker, DDP rank) cannot use its parent's threads
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def thread_count() -> int:
    """How many threads to use: `NUMBA_NUM_THREADS` if set, else the setting of torch.

    Without torch, `OMP_NUM_THREADS` or else the cores that this process may run on. A DataLoader
    worker has `torch.set_num_threads(1)`, so kernels there stay on one thread too.
    """
    asked = os.environ.get("NUMBA_NUM_THREADS", "")
    if asked.isdigit():
        return max(1, int(asked))
    torch = sys.modules.get("torch")
    if torch is not None:
        return max(1, torch.get_num_threads())
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, int(asked)) if asked.isdigit() else cores()


@cache
def cores() -> int:
    """Cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def blocks(length: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut `range(length)` into `(start, stop)` pieces of at most `size`.

    Example:
        >>> list(blocks(10, 4))
        [(0, 4), (4, 8), (8, 10)]
    """
    return ((start, min(start + size, length)) for start in range(0, length, size))


def map_blocks(work: Callable[[int, int], Result], length: int, size: int) -> list[Result]:
    """Call `work(start, stop)` for every block, side by side, results in block order.

    Example:
        >>> map_blocks(lambda start, stop: stop - start, length=10, size=4)
        [4, 4, 2]
    """
    if 0 < length <= size:  # most calls on small problems, where a microsecond counts
        return [work(0, length)]
    pieces = list(blocks(length, size))
    threads = min(thread_count(), len(pieces))
    if threads <= 1:
        return [work(start, stop) for start, stop in pieces]
    done: dict[int, Result] = {}
    todo = deque(enumerate(pieces))

    def take_turns() -> None:
        while todo:
            try:
                number, piece = todo.popleft()
            except IndexError:  # another thread was faster
                return
            done[number] = work(*piece)

    helpers = [_pool(threads - 1).submit(take_turns) for _ in range(threads - 1)]
    try:
        take_turns()  # the calling thread works too: waking another takes as long as some blocks
    finally:  # in any case, no thread keeps running after the call
        todo.clear()
        started = [helper for helper in helpers if not helper.cancel()]
        wait(started)
    for helper in started:
        helper.result()
    return [done[number] for number in range(len(pieces))]


def _pool(threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), threads)
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="fsl-basesel")
    return _pools[key]
