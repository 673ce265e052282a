"""`SelectionProblem`: which m candidate classes maximise the paper's objective (Eq. 3)?"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fsl_basesel import checks, extension, topk
from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import SortedRows
from fsl_basesel.parallel import map_blocks
from fsl_basesel.similarity import (
    ArrayLike,
    SimilarityFunction,
    Space,
    as_matrix,
    similarity_columns,
    space_of,
)

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Columns a thread takes at a time; fixed, so results do not depend on the number of threads.
COLUMN_BLOCK = 1024
# Relative to the terms of a float64 sum, what rounding may make of it.
ROUNDING = 1e-12


@dataclass(frozen=True, init=False, eq=False, repr=False)
class SelectionProblem:
    """Choose `m` of the candidate classes for a set of novel classes; validated once, immutable.

    The objective, with `f` the similarities, `B_s` the classes already selected and `U` the choice:

        h(U) = mean_n (1/k) top_k_sum(f[n, B_s + U])
               - lam / (|B_s| + m) * mean_n sum_{u in B_s + U} f[n, u]  -  mu * sum_{u in U} cost[u]

    Where fewer than `k` classes are in, missing entries count as `floor = min(0, min f)`: zero for
    the non-negative similarities of the paper, and low enough to keep `h` submodular for signed
    ones (correction 3 in docs/paper.md). Arithmetic is float64 whatever the storage type.

    Args:
        similarity: `|N| x |B|`, rows novel classes, columns candidates. One candidate-major copy is
            kept; a read-only array that is already candidate-major is taken as it is.
        m: How many classes to add, 0 to `|B_u|`.
        k: How many of its nearest base classes count for a novel class (K in the paper).
        lam: Weight of the diversity term (lambda in the paper), >= 0.
        selected: Columns already in the base set (B_s).
        cost: `[|B|]`, difficulty of obtaining each class (appendix 2.5), weighted by `mu`.
        mu: Weight of `cost`, >= 0.
        names: Candidate names, unique; by default their column numbers.
        novel_names: Novel class names, unique; by default their row numbers.
        floor: What a missing entry counts; at most `min f`.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=2, k=1)
        >>> problem.value([0, 1])
        0.8500000000000001
        >>> problem.gains([2])
        tensor([0.1500, 0.1000,   -inf], dtype=torch.float64)
    """

    columns: np.ndarray
    m: int
    k: int
    lam: float
    selected: tuple[int, ...]
    cost: np.ndarray | None
    mu: float
    names: tuple[str, ...]
    novel_names: tuple[str, ...]
    floor: float
    centroids: tuple[np.ndarray, np.ndarray] | None
    space: Space | None

    def __init__(
        self,
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
        floor: float | None = None,
    ) -> None:
        matrix = as_matrix(similarity, "similarity", "novel classes", "candidates")
        columns = matrix.T
        if _may_change(matrix) or not columns.flags.c_contiguous:
            columns = np.array(columns, order="C")
        columns.flags.writeable = False
        base, novel = columns.shape
        self._store(
            columns=columns,
            names=checks.class_names(names, base, "names", "candidate"),
            novel_names=checks.class_names(novel_names, novel, "novel_names", "novel class"),
            centroids=None,
            space=None,
        )
        self._store_settings(m, k, lam, selected, cost, mu, floor)

    @classmethod
    def from_centroids(
        cls,
        candidates: ArrayLike,
        novel: ArrayLike | None = None,
        m: int = 100,
        k: int = 3,
        lam: float = 0.0,
        selected: Iterable[int] = (),
        cost: ArrayLike | None = None,
        mu: float = 0.0,
        *,
        names: Sequence[str] | None = None,
        novel_names: Sequence[str] | None = None,
        floor: float | None = None,
        similarity: str | SimilarityFunction = "cosine",
        centre: str = "candidates",
        shrinkage: float = 0.5,
    ) -> SelectionProblem:
        """The problem of class centroids.

        Args:
            candidates: `|B| x d` class centroids; kept for methods that need them, like those
                of `novel`, and not copied: do not write to them.
            novel: `|N| x d` class centroids; None is General Selection, where the candidates
                themselves stand for the classes to come.
            similarity: "cosine" (the paper), "centred", "whitened" (see
                `fsl_basesel.similarity.space_of`), or a function of (a block of candidates
                `[b, d]`, novel `[|N|, d]`) to `[|N|, b]`.
            centre: For "centred" and "whitened": "candidates" subtracts their mean from both sides,
                "each" from each side its own, for candidates and novel classes from different
                sources (text and images).
            shrinkage: For "whitened": share of the identity in the covariance, above 0, at most 1.
            m: As for the class, like the remaining arguments.
            k: As for the class.
            lam: As for the class.
            selected: As for the class.
            cost: As for the class.
            mu: As for the class.
            names: As for the class.
            novel_names: As for the class; in General Selection the candidates' names.
            floor: As for the class.

        Example:
            >>> import numpy as np
            >>> problem = SelectionProblem.from_centroids(np.eye(4), np.eye(4)[:2], m=2, k=1)
            >>> problem.value([0, 1]), problem.value([2, 3])
            (1.0, 0.0)
        """
        base = as_matrix(candidates, "candidates", "classes", "dimensions")
        general = novel is None
        target = base if novel is None else as_matrix(novel, "novel", "classes", "dimensions")
        if base.shape[1] != target.shape[1]:
            raise InputError(
                "Expected `candidates` and `novel` to have the same number of dimensions but got "
                f"{base.shape[1]} and {target.shape[1]}; take both from one backbone."
            )
        base_names = checks.class_names(names, len(base), "names", "candidate")
        if general and novel_names is None:
            novel_names = base_names
        target_names = checks.class_names(novel_names, len(target), "novel_names", "novel class")
        space = None
        if not callable(similarity):
            space = space_of(similarity, base, target, centre, shrinkage)
            columns = similarity_columns(base, target, base_names, target_names, space)
        else:
            columns = similarity_columns(base, target, base_names, target_names, similarity)
        columns.flags.writeable = False
        problem = cls.__new__(cls)
        problem._store(
            columns=columns,
            names=base_names,
            novel_names=target_names,
            centroids=(base, target),
            space=space,
        )
        problem._store_settings(m, k, lam, selected, cost, mu, floor)
        return problem

    def replace(self, **settings: Any) -> SelectionProblem:
        """The same matrix with other settings (`m`, `k`, `lam`, `selected`, `cost`, `mu`, `floor`).

        Nothing is copied, so a grid of settings costs one matrix; its means and its sorted rows are
        made once, whichever of the problems needs them first.

        Example:
            >>> problem = SelectionProblem([[0.9, 0.1, 0.5]], m=2, k=1)
            >>> problem.replace(m=1).m
            1
        """
        unknown = set(settings) - set(self.settings())
        if unknown:
            raise InputError(
                f"Expected settings among {', '.join(self.settings())} but got {sorted(unknown)}."
            )
        problem = object.__new__(type(self))
        for kept in ("columns", "names", "novel_names", "centroids", "space", "group"):
            if hasattr(self, kept):
                problem._store(**{kept: getattr(self, kept)})
        problem._store(_first=self._owner)
        problem._store_settings(**(self.settings() | settings))
        return problem

    @property
    def _owner(self) -> SelectionProblem:
        """The problem that others with this matrix were made from; it keeps what they share."""
        return self.__dict__.get("_first", self)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: without what can be computed again."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if name != "_first" and not isinstance(getattr(type(self), name, None), cached_property)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        for array in (state["columns"], state["cost"]):
            if array is not None:
                array.flags.writeable = False
        self.__dict__.update(state)

    def settings(self) -> dict[str, Any]:
        """What `replace` takes, as it is."""
        names = ("m", "k", "lam", "selected", "cost", "mu", "floor")
        return {name: getattr(self, name) for name in names}

    def shard(self, group: ProcessGroup | None = None) -> SelectionProblem:
        """This process's share of the rows; see `fsl_basesel.sharded`.

        Args:
            group: A `torch.distributed` process group; by default all processes.
        """
        from fsl_basesel.sharded import ShardedProblem

        return ShardedProblem.of(self, group)

    def _store(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _store_settings(
        self,
        m: int,
        k: int,
        lam: float,
        selected: Iterable[int],
        cost: ArrayLike | None,
        mu: float,
        floor: float | None,
    ) -> None:
        chosen = checks.distinct_columns(selected, "selected", self.n_candidates)
        free = self.n_candidates - len(chosen)
        lowest, highest = self.extent
        natural = min(0.0, lowest)
        self._store(
            m=checks.integer(m, "m", 0, free, f"{free}, the candidates not yet selected,"),
            k=checks.integer(k, "k", 1, None, ""),
            lam=checks.non_negative(lam, "lam"),
            selected=chosen,
            cost=checks.cost_vector(cost, self.n_candidates),
            mu=checks.non_negative(mu, "mu"),
            floor=natural if floor is None else checks.floor_below(floor, lowest),
        )
        largest = max(abs(self.floor), abs(highest))
        checks.finite_sums(largest, self.n_novel * self.depth, "similarity")
        checks.finite_sums(self.lam * largest, self.n_candidates, "lam * similarity")
        if self.cost is not None:
            priciest = float(np.abs(self.cost).max())
            checks.finite_sums(self.mu * priciest, self.n_candidates, "mu * cost")

    @property
    def n_candidates(self) -> int:
        """|B|, the number of columns, those already selected included."""
        return self.columns.shape[0]

    @property
    def n_novel(self) -> int:
        """|N|, the number of rows, those on other processes included."""
        return len(self.novel_names)

    @property
    def similarity_name(self) -> str:
        """What the similarities are: "cosine", "centred", "whitened", "function" or "matrix"."""
        if self.centroids is None:
            return "matrix"
        return "function" if self.space is None else self.space.name

    @property
    def shards(self) -> int:
        """How many processes share the rows: one, unless the problem is sharded."""
        return 1

    def sum_over_shards(self, local: np.ndarray) -> np.ndarray:
        """The sum of an array over all processes that share the rows."""
        return local

    def all_rows(self, local: np.ndarray) -> np.ndarray:
        """An array with an entry for each row here, completed by those of other processes."""
        return local

    @cached_property
    def extent(self) -> tuple[float, float]:
        """The smallest and the largest entry of the matrix."""
        if self._owner is not self:
            return self._owner.extent
        return float(self.columns.min()), float(self.columns.max())

    @property
    def depth(self) -> int:
        """How many entries of a row can count: k, but no more than there are candidates."""
        return min(self.k, self.n_candidates)

    @property
    def similarity(self) -> torch.Tensor:
        """`|N| x |B|` view of the similarities. Do not write to it."""
        return _shared_tensor(self.columns).T

    @cached_property
    def is_selected(self) -> np.ndarray:
        """`[|B|]` bool: columns of B_s."""
        mask = np.zeros(self.n_candidates, bool)
        mask[list(self.selected)] = True
        return mask

    @cached_property
    def unselected(self) -> np.ndarray:
        """B_u, the columns to choose from, ascending."""
        return np.flatnonzero(~self.is_selected)

    @cached_property
    def column_means(self) -> np.ndarray:
        """`[|B|]` float64: mean similarity of each candidate to the novel classes."""
        if self._owner is not self:
            return self._owner.column_means
        pieces = map_blocks(
            lambda start, stop: self.columns[start:stop].sum(axis=1, dtype=np.float64),
            self.n_candidates,
            COLUMN_BLOCK,
        )
        return self.sum_over_shards(np.concatenate(pieces)) / self.n_novel

    @cached_property
    def sorted_rows(self) -> SortedRows:
        """Every row in falling order, for the multilinear extension; sorted once for a matrix."""
        if self._owner is not self and self._owner.floor == self.floor:
            return self._owner.sorted_rows
        return SortedRows.from_columns(self.columns, self.floor)

    @cached_property
    def modular(self) -> np.ndarray:
        """`[|B|]` float64: what each class costs whatever else is in (lambda and mu terms)."""
        # 1 / (|B_s| + m) as in Eq. 3, not 1 / m as in Eq. 6 (correction 5 in docs/paper.md).
        weight = self.lam / max(1, len(self.selected) + self.m)
        penalty = weight * self.column_means if weight else np.zeros(self.n_candidates)
        if self.cost is not None and self.mu:
            penalty = penalty + np.where(self.is_selected, 0.0, self.mu * self.cost)
        return penalty

    def rounding(self, *sets: Sequence[int] | np.ndarray) -> float:
        """Differences of h between sets up to this are rounding, also where terms cancel.

        Only terms of the sets that are compared count: the price of a class that is in none of
        them says nothing about their difference.

        Args:
            sets: Chosen columns; B_s is in each of them.
        """
        prices = np.abs(self.modular)
        terms = max(float(prices[np.asarray(chosen, np.int64)].sum()) for chosen in sets)
        return ROUNDING * (terms + float(prices[list(self.selected)].sum()) + abs(self.floor))

    def value(self, indices: Iterable[int]) -> float:
        """h(U) for the columns `indices`, Eq. 3 with the cost term."""
        chosen = self._choice(indices)
        return self.value_of(np.array(self.selected + chosen, np.int64))

    def value_of(self, members: np.ndarray) -> float:
        """h for base classes given as an array that includes B_s; nothing is checked."""
        value, _ = topk.state_of(self.columns, members, self.depth, self.floor)
        return self.value_from(value, members)

    def value_from(self, value: np.ndarray, members: np.ndarray) -> float:
        """h from a top-k state of `members` (see `fsl_basesel.topk`), B_s included."""
        top = self.mean_over_rows(value[:, : self.depth].sum(axis=1)) / self.k
        top += self.floor * (self.k - self.depth) / self.k  # entries no set of classes can fill
        return float(top - np.sort(self.modular[members]).sum())

    def mean_over_rows(self, per_row: np.ndarray) -> float:
        """Mean over all novel classes of a number each."""
        return float(self.sum_over_shards(per_row.sum(keepdims=True))[0]) / self.n_novel

    def dot_over_rows(self, left: np.ndarray, right: np.ndarray) -> float:
        """Inner product of two vectors with an entry for each novel class."""
        # Not `@`: a library's order of additions depends on the machine.
        return float(self.sum_over_shards((left * right).sum(keepdims=True))[0])

    def gains(self, indices: Iterable[int]) -> torch.Tensor:
        """h(u | U) for every column u, float64 `[|B|]`; -inf for columns that are already in."""
        members = np.array(self.selected + self._choice(indices), np.int64)
        value, _ = topk.state_of(self.columns, members, self.depth, self.floor)
        gains = self.gains_over(value[:, -1])
        gains[members] = -np.inf
        return torch.from_numpy(gains)

    def gains_over(self, kth: np.ndarray, which: np.ndarray | None = None) -> np.ndarray:
        """Gain of each column (or of those in `which`) given the rows' current k-th values."""
        columns = np.arange(self.n_candidates) if which is None else which
        gains = self.sum_over_shards(self.excess_over(kth, columns))
        return gains / (self.n_novel * self.k) - self.modular[columns]

    def excess_over(self, kth: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Sum of max(f - kth, 0) over the rows of this process, for each column in `which`."""
        sums = np.empty(len(which))
        threshold = np.ascontiguousarray(kth)

        def work(start: int, stop: int) -> None:
            topk.excess_all(self.columns, which[start:stop], threshold, sums[start:stop])

        map_blocks(work, len(which), COLUMN_BLOCK)
        return sums

    def multilinear(self, x: ArrayLike, backend: str = "auto") -> float | np.ndarray | torch.Tensor:
        """F(x), the expectation of h; see `fsl_basesel.extension.multilinear`."""
        return extension.multilinear(self, x, backend)

    def gradient(self, x: ArrayLike, backend: str = "auto") -> Any:
        """dF/dx, exact; see `fsl_basesel.extension.gradient`."""
        return extension.gradient(self, x, backend)

    def similarity_ratio(self, indices: Iterable[int]) -> torch.Tensor:
        """Similarity Ratio (Eq. 1) of every novel class with the base set B_s + U, `[|N|]`.

        Mean similarity to the top-k base classes over the mean to all of them; with fewer than k
        base classes the top-k are those there are, and with none the ratio is NaN.
        """
        members = np.array(self.selected + self._choice(indices), np.int64)
        if not len(members):
            return torch.full((self.n_novel,), torch.nan, dtype=torch.float64)
        depth = min(self.k, len(members))
        value, _ = topk.state_of(self.columns, members, depth, self.floor)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = value.mean(axis=1) / self.columns[members].mean(axis=0, dtype=np.float64)
        return torch.from_numpy(self.all_rows(ratio))

    def _choice(self, indices: Iterable[int]) -> tuple[int, ...]:
        chosen = checks.distinct_columns(indices, "indices", self.n_candidates)
        both = set(chosen) & set(self.selected)
        if both:
            raise InputError(
                f"Expected `indices` outside the classes already selected but got {min(both)} "
                f"({self.names[min(both)]!r}); B_s counts as in without being named."
            )
        return chosen

    def __repr__(self) -> str:
        return (
            f"SelectionProblem({self.n_novel} novel x {self.n_candidates} candidates, m={self.m}, "
            f"k={self.k}, lam={self.lam:g}, selected={len(self.selected)}, mu={self.mu:g})"
        )


def _may_change(array: np.ndarray) -> bool:
    """Whether somebody could write to the memory of `array`, perhaps through what it is a view of.

    pandas hands out read-only views of frames that can be written to.
    """
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return True
        owner = owner.base
    return False


def _shared_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor on the memory of a read-only array, without torch's warning about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
