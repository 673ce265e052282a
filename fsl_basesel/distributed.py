"""Novel classes spread over processes: the one place where processes meet.

Novel classes meet only in sums: gains, values and gradients are means over rows. So every process
holds its own rows and works on them alone, and what crosses the network is one vector of numbers a
step. Sums are taken over fixed blocks of rows (`fsl_basesel.parallel.ROWS`), each of which lies on
one process, and the blocks are added in their order: one process and many get the same bits, so
they choose the same classes.

All processes make the same calls. Each call on a problem first compares what every process is about
to do (`Rows.agree`); a difference is the same error on all of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fsl_basesel.errors import InputError, ProcessError
from fsl_basesel.parallel import ROWS

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

Result = TypeVar("Result")

# How long processes that torchrun started wait for each other. One that ends is noticed at once.
PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class Rows:
    """Which novel classes this process holds, and how sums over all of them are made.

    Attributes:
        count: How many novel classes there are on all processes.
        start: The first one here; a multiple of `ROWS`.
        stop: The one after the last one here.
        rank: Number of this process.
        size: How many processes there are.
        group: Their group; None on one process, or for all processes there are.
        key: Says which problem this is, the same on all processes.
    """

    count: int
    start: int
    stop: int
    rank: int = 0
    size: int = 1
    group: ProcessGroup | None = None
    key: str = ""

    @classmethod
    def here(cls, count: int) -> Rows:
        """All rows on this process alone."""
        return cls(count, 0, count)

    @classmethod
    def spread(cls, count: int, group: ProcessGroup | None, key: str = "") -> Rows:
        """Equal numbers of whole blocks for every process; some have none where rows are few."""
        rank, size = _place(group)
        blocks = -(-count // ROWS)
        start, stop = (min(count, ROWS * (blocks * at // size)) for at in (rank, rank + 1))
        return cls(count, start, stop, rank, size, group, key)

    @property
    def blocks(self) -> list[slice]:
        """The blocks of the rows here, as parts of an array with an entry for each of them."""
        here = self.stop - self.start
        return [slice(at, min(at + ROWS, here)) for at in range(0, here, ROWS)]

    def sum(self, blocks: np.ndarray) -> np.ndarray:
        """The sum over all rows, given those of the blocks here, `[blocks, ...]`.

        Every process adds its blocks to the sum of those before it and hands it on.
        """
        if self.size == 1:
            return _added(None, blocks)
        import torch

        with _reporting(self):
            message = torch.zeros(blocks.shape[1:], dtype=torch.float64, device=self._device())
            if self.rank > 0:
                _dist().recv(message, group=self.group, group_src=self.rank - 1)
            total = _added(message.cpu().numpy() if self.rank else None, blocks)
            message = torch.tensor(total, device=message.device)  # a copy: it is written to
            if self.rank < self.size - 1:
                _dist().send(message, group=self.group, group_dst=self.rank + 1)
            _dist().broadcast(message, group=self.group, group_src=self.size - 1)
            return message.cpu().numpy()

    def sum_of(self, per_row: np.ndarray) -> float:
        """The sum of a number for each row."""
        return float(self.sum(self.block_sums(per_row))[0])

    def block_sums(self, per_row: np.ndarray) -> np.ndarray:
        """`[blocks, 1]`: the sums of a number for each row over the blocks here."""
        return np.array([per_row[block].sum() for block in self.blocks]).reshape(-1, 1)

    def all(self, local: np.ndarray) -> np.ndarray:
        """An array with an entry for each row here, completed by those of other processes."""
        return local if self.size == 1 else np.concatenate(self.gather(local))

    def gather(self, value: Any) -> list[Any]:
        """Every process's `value`, in the order of the processes."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with _reporting(self):
            _dist().all_gather_object(values, value, group=self.group)
        return values

    def agree(self, call: str, **details: object) -> None:
        """Make sure that every process is about to do the same.

        Args:
            call: The call in words a user knows, for the message.
            details: What has to be the same, printable.

        Raises:
            InputError: On all processes, if one of them is about to do something else.
        """
        if self.size == 1:
            return
        import torch

        text = repr((self.key, call, sorted(details.items())))
        digest = hashlib.sha256(text.encode()).digest()
        mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8).to(self._device())
        every = [torch.empty_like(mine) for _ in range(self.size)]
        with _reporting(self):
            _dist().all_gather(every, mine, group=self.group)
        if any(not torch.equal(other, every[0]) for other in every):
            told = self.gather((self.key, call, {k: repr(v) for k, v in details.items()}))
            raise InputError(_difference(told))

    def _device(self) -> torch.device:
        import torch

        on_gpu = _dist().get_backend(self.group) == "nccl"  # which moves device memory only
        return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def _added(total: np.ndarray | None, blocks: np.ndarray) -> np.ndarray:
    for block in blocks:
        total = block if total is None else total + block
    return np.zeros(blocks.shape[1:]) if total is None else total


def _difference(told: list[tuple[str, str, dict[str, str]]]) -> str:
    """What differs between the processes, in words."""
    _, call, details = told[0]
    for rank, (_, other, others) in enumerate(told):
        if other != call:
            return _differs("call", call, other, rank)
        for name in details | others:
            ours, theirs = details.get(name, "none"), others.get(name, "none")
            if ours != theirs:
                return _differs(f"{name} in {call}", ours, theirs, rank)
    return (
        f"Expected {call} of the same problem on every process but they belong to different ones."
    )


def _differs(what: str, ours: str, theirs: str, rank: int) -> str:
    def short(text: str) -> str:
        return f"{text[:60]}..." if len(text) > 60 else text

    return (
        f"Expected the same {what} on every process but got {short(ours)} on rank 0 and "
        f"{short(theirs)} on rank {rank}; make the same calls everywhere."
    )


def launched() -> bool:
    """Whether torchrun started this process together with others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first() -> bool:
    """Whether this is the process that prints and saves."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def together() -> Iterator[None]:
    """Meet the other processes that torchrun started; does nothing on a process of its own."""
    if not launched() or _dist().is_initialized():
        yield
        return
    _dist().init_process_group("gloo", timeout=PATIENCE)
    try:
        yield
    finally:
        _dist().destroy_process_group()


def all_or_none(work: Callable[[], Result]) -> Result:
    """What `work` returns; bad input on one of the processes of torchrun is an error on all."""
    if not launched():
        return work()
    result, fault = None, ""
    try:
        result = work()
    except InputError as error:
        fault = str(error)
    rank, size = _place(None)
    faults = Rows(0, 0, 0, rank, size).gather(fault)
    for at, text in enumerate(faults):
        if text:
            raise InputError(text if all(faults) else f"{text} (rank {at})")
    return result  # type: ignore[return-value]


def _place(group: ProcessGroup | None) -> tuple[int, int]:
    """Number of this process and how many there are."""
    if not (_dist().is_available() and _dist().is_initialized()):
        raise InputError(
            "Expected torch.distributed to be initialised before a problem is spread over "
            "processes; call torch.distributed.init_process_group first, or start with torchrun."
        )
    return _dist().get_rank(group), _dist().get_world_size(group)


def _dist() -> Any:
    import torch.distributed

    return torch.distributed


@contextmanager
def _reporting(rows: Rows) -> Iterator[None]:
    """Say what it means if a process does not answer."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessError(
            f"Expected all {rows.size} processes to go on but one of them ended, or did not answer "
            f"in time (seen by rank {rows.rank}); look for the first error of the others and start "
            f"again. ({str(error).splitlines()[0]})"
        ) from error
