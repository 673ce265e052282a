"""Novel classes spread over processes: the only module in which processes communicate.

Novel classes interact only through sums: gains, values and gradients are means over rows. So every
process holds its own rows and works on them alone, and only one vector of numbers is sent per
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
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fsl_basesel.errors import InputError, ProcessError
from fsl_basesel.parallel import ROWS, blocks

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

Result = TypeVar("Result")

# How long processes that torchrun started wait for each other. One that ends is noticed at once.
PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class Rows:
    """Which novel classes this process holds, and how sums over all of them are made.

    They are those from `start`, a multiple of `ROWS`, to `stop`. `key` says which problem this is,
    the same on all processes; a `group` of None is all processes there are.
    """

    start: int
    stop: int
    rank: int = 0
    size: int = 1
    group: ProcessGroup | None = None
    key: str = ""

    @classmethod
    def spread(cls, count: int, group: ProcessGroup | None, key: str = "") -> Rows:
        """Equal numbers of whole blocks for every process; some have none where rows are few."""
        if not (_dist().is_available() and _dist().is_initialized()):
            raise InputError(
                "Expected torch.distributed to be initialised before a problem is spread over "
                "processes; call torch.distributed.init_process_group first, or start with "
                "torchrun."
            )
        rank, size = _dist().get_rank(group), _dist().get_world_size(group)
        whole = -(-count // ROWS)
        start, stop = (min(count, ROWS * (whole * at // size)) for at in (rank, rank + 1))
        return cls(start, stop, rank, size, group, key)

    @property
    def blocks(self) -> list[slice]:
        """The blocks of the rows here, as parts of an array with an entry for each of them."""
        return [slice(*block) for block in blocks(self.stop - self.start, ROWS)]

    def sum(self, blocks: np.ndarray) -> np.ndarray:
        """The sum over all rows, given those of the blocks here, `[blocks, ...]`."""
        total = np.zeros(blocks.shape[1:])
        if self.size == 1:
            return reduce(np.add, blocks, total)
        import torch

        with _reporting(self):  # each process adds its blocks to the sum of those before it
            message = torch.from_numpy(total).to(self._device())
            if self.rank > 0:
                _dist().recv(message, group=self.group, group_src=self.rank - 1)
            total = reduce(np.add, blocks, message.cpu().numpy())
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

    def all_or_none(self, work: Callable[[], Result]) -> Result:
        """What `work` returns; bad input on one of the processes is an error on all of them."""
        if self.size == 1:
            return work()
        result, fault = None, ""
        try:
            result = work()
        except InputError as error:
            fault = str(error)
        faults = self.gather(fault)
        for at, text in enumerate(faults):
            if text:
                raise InputError(text if all(faults) else f"{text} (rank {at})")
        return result  # type: ignore[return-value]

    def agree(self, call: str, **details: object) -> None:
        """Refuse, on all processes, if one of them is about to do something else than `call`."""
        if self.size == 1:
            return
        shown = {name: repr(value) for name, value in details.items()}
        digest = hashlib.sha256(repr((self.key, call, shown)).encode()).hexdigest()
        if len(set(self.gather(digest))) > 1:
            raise InputError(_difference(self.gather((call, shown))))

    def _device(self) -> torch.device:
        import torch

        on_gpu = _dist().get_backend(self.group) == "nccl"  # which moves device memory only
        return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def _difference(told: list[tuple[str, dict[str, str]]]) -> str:
    """What differs between the processes, in words."""
    call, details = told[0]
    for rank, (other, others) in enumerate(told):
        pairs = {"call": (call, other)}
        if other == call:
            pairs = {f"{name} in {call}": (details[name], others[name]) for name in details}
        for what, (ours, theirs) in pairs.items():
            if ours != theirs:
                return (
                    f"Expected the same {what} on every process but got {ours:.60} on rank 0 and "
                    f"{theirs:.60} on rank {rank}; make the same calls everywhere."
                )
    return (
        f"Expected {call} of the same problem on every process but they belong to different ones."
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
    """`Rows.all_or_none` among the processes that torchrun started."""
    return Rows.spread(0, None).all_or_none(work) if launched() else work()


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
