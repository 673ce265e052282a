"""`ShardedProblem`: the novel classes spread over the processes of a group.

Novel classes meet only in sums: gains, values and gradients are means over rows. So every process
holds its own rows, works on them alone, and what crosses the network is one vector of |B| numbers a
step, summed over the group. All processes make the same calls and get the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from fsl_basesel import checks
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.similarity import ArrayLike, as_matrix


class ShardedProblem(SelectionProblem):
    """A `SelectionProblem` whose rows lie on several processes, in the order of their ranks.

    Made by `problem.shard(group)` where every process has the whole problem, or by `from_rows`
    where each has its own rows and nobody could hold them all. Use it like any other problem, the
    same way on every process.
    """

    group: dist.ProcessGroup | None

    @classmethod
    def of(cls, problem: SelectionProblem, group: dist.ProcessGroup | None) -> ShardedProblem:
        """This process's share of a problem that every process of the group has."""
        _require_group()
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        if problem.n_novel < size:
            raise InputError(
                f"Expected at least one novel class for each of the {size} processes but got "
                f"{problem.n_novel}; use a smaller group."
            )
        start, stop = (problem.n_novel * at // size for at in (rank, rank + 1))
        shard = cls.__new__(cls)
        local = np.ascontiguousarray(problem.columns[:, start:stop])
        local.flags.writeable = False
        shard._store(
            columns=local,
            names=problem.names,
            novel_names=problem.novel_names,
            centroids=problem.centroids,
            space=problem.space,
            group=group,
        )
        shard._store(**problem.settings())
        return shard

    @classmethod
    def from_rows(
        cls,
        similarity: ArrayLike,
        m: int = 100,
        k: int = 3,
        lam: float = 0.0,
        selected: Iterable[int] = (),
        cost: ArrayLike | None = None,
        mu: float = 0.0,
        *,
        names: Sequence[str] | None = None,
        novel_names: Sequence[str] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> ShardedProblem:
        """The problem whose rows are those of all processes together.

        Args:
            similarity: This process's rows, `[its novel classes, |B|]`.
            m: As for `SelectionProblem`, and the same on every process, like the rest.
            k: As for `SelectionProblem`.
            lam: As for `SelectionProblem`.
            selected: As for `SelectionProblem`.
            cost: As for `SelectionProblem`.
            mu: As for `SelectionProblem`.
            names: Candidate names.
            novel_names: Names of this process's novel classes; by default numbers over all.
            group: The process group; by default all processes.
        """
        _require_group()
        shard = cls.__new__(cls)
        shard._store(group=group, centroids=None, space=None)
        columns, fault = np.zeros((0, 0)), ""
        try:
            matrix = as_matrix(similarity, "similarity", "novel classes", "candidates")
            columns = np.ascontiguousarray(matrix.T)
            mine = None if novel_names is None else [str(name) for name in novel_names]
        except (InputError, TypeError) as error:  # if the others did not hear, they would wait
            fault = str(error)
        columns.flags.writeable = False
        shard._store(columns=columns)
        selected = _listed(selected)
        settings = {"m": m, "k": k, "lam": lam, "selected": selected, "cost": _listed(cost)}
        shard._require_agreement(fault, settings | {"mu": mu, "names": _listed(names)})
        given = shard.gather((columns.shape[1], mine))
        nameless = [rank for rank, (_, part) in enumerate(given) if part is None]
        if 0 < len(nameless) < len(given):
            raise InputError(
                "Expected `novel_names` on every process or on none but got none on rank(s) "
                f"{nameless}."
            )
        all_names = None if nameless else [name for _, part in given for name in part]
        count = sum(rows for rows, _ in given)
        shard._store(
            names=checks.class_names(names, len(columns), "names", "candidate"),
            novel_names=checks.class_names(all_names, count, "novel_names", "novel class"),
        )
        shard._store_settings(m, k, lam, selected, cost, mu, None)
        return shard

    def _require_agreement(self, fault: str, settings: dict[str, Any]) -> None:
        """Raise on every process what is wrong on one, and refuse settings that differ."""
        kept = {name: repr(value) for name, value in settings.items()}
        told = self.gather((fault, {"candidates": self.columns.shape[0], **kept}))
        faults = [f"{text} (rank {rank})" for rank, (text, _) in enumerate(told) if text]
        if faults:
            raise InputError(faults[0])
        _, first = told[0]
        for rank, (_, other) in enumerate(told):
            for name, value in first.items():
                if other[name] != value:
                    raise InputError(
                        f"Expected the same {name} on every process but got {_short(value)} on "
                        f"rank 0 and {_short(other[name])} on rank {rank}."
                    )

    @property
    def shards(self) -> int:
        """How many processes share the rows."""
        return dist.get_world_size(self.group)

    def sum_over_shards(self, local: np.ndarray) -> np.ndarray:
        """The sum of every process's `local` array, the same bits on all of them."""
        total = torch.from_numpy(np.array(local, np.float64)).to(self._device)
        dist.all_reduce(total, group=self.group)
        return total.cpu().numpy()

    def all_rows(self, local: np.ndarray) -> np.ndarray:
        """Every process's rows of a per-row array, in the order of the novel classes."""
        return np.concatenate(self.gather(local))

    def gather(self, value: Any) -> list[Any]:
        """Every process's `value`, by rank."""
        values: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(values, value, group=self.group)
        return values

    @cached_property
    def extent(self) -> tuple[float, float]:
        """The smallest and the largest similarity on any process."""
        lows, highs = zip(*self.gather((self.columns.min(), self.columns.max())), strict=True)
        return float(min(lows)), float(max(highs))

    @cached_property
    def _device(self) -> torch.device:
        # NCCL moves device memory only.
        on_gpu = dist.get_backend(self.group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def _listed(values: Any) -> Any:
    """An array or sequence as a list, which prints in full; anything else as it is."""
    if isinstance(values, torch.Tensor | np.ndarray):
        return values.tolist()
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else values


def _short(text: Any) -> str:
    return f"{str(text)[:60]}..." if len(str(text)) > 60 else str(text)


def _require_group() -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise InputError(
            "Expected torch.distributed to be initialised before a problem is spread over "
            "processes; call torch.distributed.init_process_group first, or start with torchrun."
        )
