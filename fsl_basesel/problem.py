"""`SelectionProblem`: which m candidate classes maximise the paper's objective (Eq. 3)?"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fsl_basesel import checks, extension, memory, topk
from fsl_basesel.checks import ArrayLike, is_tensor
from fsl_basesel.distributed import Rows
from fsl_basesel.errors import InputError
from fsl_basesel.limits import Limits, group_labels, group_numbers
from fsl_basesel.multilinear import SortedRows
from fsl_basesel.parallel import COLUMN_BLOCK, map_blocks
from fsl_basesel.similarity import (
    ClassCentroids,
    SimilarityFunction,
    Space,
    default_objective,
    similarity_columns,
    space_of,
)

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

Made = TypeVar("Made")

# Relative to the terms of a float64 sum, what rounding may make of it.
ROUNDING = 1e-12
# What to do about a matrix that is too large.
ADVICE = (
    "spread the novel classes over more machines (torchrun, docs/scaling.md), use float32 "
    "centroids, or fewer classes"
)
# What `replace` takes.
SETTINGS = (
    *("m", "k", "lam", "selected", "cost", "mu", "floor", "weights"),
    *("budget", "exclude", "include", "groups", "at_most", "at_least"),
)


@dataclass(eq=False)
class Matrix:
    """The similarities of one process, and what is computed once for all problems on them."""

    by_candidate: np.ndarray  # [|B|, novel classes here], read-only
    rows: Rows  # which novel classes are here
    names: tuple[str, ...]
    novel_names: tuple[str, ...]  # of all
    centroids: tuple[np.ndarray, np.ndarray] | None = None  # of candidates and novel classes
    space: Space | None = None  # in which a similarity with a name compares them
    tensors: bool = False  # whether they came as tensors, so that answers are tensors too
    made_by: dict[str, str] = field(default_factory=dict)  # backbone and preprocessing
    cache: dict[Hashable, Any] = field(default_factory=dict)  # see `once`

    @classmethod
    def of(
        cls,
        similarity: ArrayLike,
        names: Sequence[str] | None,
        novel_names: Sequence[str] | None,
    ) -> Matrix:
        """A copy of a matrix `|N| x |B|`, checked."""
        matrix = checks.matrix(similarity, "similarity", "novel classes", "candidates")
        by_candidate = np.array(matrix.T, order="C")
        base, novel = by_candidate.shape
        return cls(
            by_candidate,
            Rows(0, novel),
            checks.class_names(names, base, "names", "candidate"),
            checks.class_names(novel_names, novel, "novel_names", "novel class"),
            tensors=is_tensor(similarity),
        )

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` makes, made when `key` is asked for first."""
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    @cached_property
    def extent(self) -> tuple[float, float]:
        """The smallest and the largest similarity on any process."""
        here = self.by_candidate.min(initial=np.inf), self.by_candidate.max(initial=-np.inf)
        lows, highs = zip(*self.rows.gather(here), strict=True)
        return float(min(lows)), float(max(highs))

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: without what can be computed again."""
        return self.__dict__ | {"cache": {}}


class SelectionProblem:
    """Choose `m` of the candidate classes for a set of novel classes; validated once, immutable.

    The objective, with `f` the similarities, `B_s` the classes already selected and `U` the choice:

        h(U) = mean_n (1/k) top_k_sum(f[n, B_s + U])
               - lam / (|B_s| + m) * mean_n sum_{u in B_s + U} f[n, u]  -  mu * sum_{u in U} cost[u]

    Where fewer than `k` classes are in, missing entries count as `floor = min(0, min f)`: zero for
    the non-negative similarities of the paper, and low enough to keep `h` submodular for signed
    ones (correction 3 in docs/paper.md). Arithmetic is float64 whatever the storage type.

    Args:
        similarity: `|N| x |B|`, rows novel classes, columns candidates; a copy is kept. Or the
            `matrix` of another problem, with its names.
        m: How many classes to add, 0 to `|B_u|`; 100 by default. With a budget it is how many at
            most, by default as many as the budget buys.
        k: How many of its nearest base classes count for a novel class (K in the paper).
        lam: Weight of the diversity term (lambda in the paper), >= 0.
        selected: Columns already in the base set (B_s).
        cost: `[|B|]`, difficulty of obtaining each class (appendix 2.5), weighted by `mu` in the
            objective, limited by `budget`, or both; 1 each by default.
        mu: Weight of `cost`, >= 0.
        weights: `[|N|]`, how much each novel class counts in the means, >= 0; all the same by
            default. Only their ratios matter.
        budget: What the chosen classes may cost together; B_s is paid. A sum that exceeds it by
            1e-12 of it fits.
        exclude: Columns that cannot be chosen.
        include: Columns that must be chosen; they count towards m, budget and `at_most`.
        groups: `[|B|]` labels, None for a class without a group.
        at_most: How many classes of a group the base set may have, B_s included: a number for all
            groups, or one for each label. A group of which B_s has more gets no further ones.
        at_least: How many classes of a group the base set must have, B_s included.
        names: Candidate names, unique; by default their column numbers.
        novel_names: Novel class names, unique; by default their row numbers.
        floor: What a missing entry counts; at most `min f`.

    Attributes:
        matrix: The similarities, shared with all problems made by `replace`.
        weights: None, or `[|N|]` with a sum of 1. The other arguments are attributes as given.
        limits: What the algorithms need of budget, include and groups, None without any.
        by_candidate: `[|B|, |N|]`, the similarities of a candidate side by side; the rows of this
            process, which `rows` knows.
        names: Of the candidates, `n_candidates` of them (|B|), those already selected included.
        novel_names: Of the novel classes, `n_novel` of them (|N|), those on other processes
            included.
        centroids: Of candidates and novel classes, None if the problem was not made of them.
        depth: How many entries of a row can count: k, but no more than there are candidates.
        scale: What a sum of top-k sums over the rows is divided by.

    Example:
        >>> problem = SelectionProblem([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], m=2, k=1)
        >>> problem.value([0, 1])
        0.8500000000000001
        >>> problem.gains([2]).round(2)
        array([0.15, 0.1 , -inf])
    """

    def __init__(
        self,
        similarity: ArrayLike | Matrix,
        m: int | None = None,
        k: int = 3,
        lam: float = 0.0,
        selected: Iterable[int] = (),
        cost: ArrayLike | None = None,
        mu: float = 0.0,
        *,
        weights: ArrayLike | None = None,
        budget: float | None = None,
        exclude: Iterable[int] = (),
        include: Iterable[int] = (),
        groups: Sequence[Any] | None = None,
        at_most: int | Mapping[Any, int] | None = None,
        at_least: int | Mapping[Any, int] | None = None,
        names: Sequence[str] | None = None,
        novel_names: Sequence[str] | None = None,
        floor: float | None = None,
    ) -> None:
        matrix = (
            similarity
            if isinstance(similarity, Matrix)
            else Matrix.of(similarity, names, novel_names)
        )
        matrix.by_candidate.flags.writeable = False
        self.matrix, self.by_candidate, self.rows = matrix, matrix.by_candidate, matrix.rows
        self.names, self.novel_names = matrix.names, matrix.novel_names
        self.centroids = matrix.centroids
        self.n_candidates = base = len(self.names)
        self.n_novel = novel = len(self.novel_names)
        lowest, highest = matrix.extent
        self.selected = checks.distinct_columns(selected, "selected", base)
        self.exclude = checks.distinct_columns(exclude, "exclude", base)
        self.include = checks.distinct_columns(include, "include", base)
        self.lam, self.mu = checks.non_negative(lam, "lam"), checks.non_negative(mu, "mu")
        self.budget = None if budget is None else checks.non_negative(budget, "budget")
        free = base - len({*self.selected, *self.exclude})
        if m is None and budget is not None and lam:
            raise InputError(
                "Expected m with lam > 0 and a budget, as the diversity term is divided by it, but "
                "got none; say how many classes there may be at most."
            )
        self._asked_m = 100 if m is None and budget is None else m
        most = free if budget is None else None
        wanted = free if self._asked_m is None else self._asked_m
        self.m = checks.integer(wanted, "m", 0, most, f"{free}, the candidates not yet selected,")
        self.k = checks.integer(k, "k", 1)
        self.depth, self.scale = min(self.k, base), novel * self.k
        self.cost = None if cost is None else checks.numbers(cost, "cost", base, what="candidate")
        self.floor = min(0.0, lowest) if floor is None else checks.floor_below(floor, lowest)
        self.weights = None if weights is None else checks.shares(weights, novel)
        self.groups = group_labels(groups, base)
        self.at_most = group_numbers(at_most, "at_most", groups)
        self.at_least = group_numbers(at_least, "at_least", groups)
        limits, grouped = Limits.of(self), self.at_most is not None or self.at_least is not None
        self.limits = limits if budget is not None or self.include or grouped else None
        largest = max(abs(self.floor), abs(highest))
        checks.finite_sums(largest, novel * self.depth, "similarity")
        checks.finite_sums(self.lam * largest, base, "lam * similarity")
        if self.cost is not None:
            checks.finite_sums(self.mu * float(np.abs(self.cost).max()), base, "mu * cost")

    @classmethod
    def from_centroids(
        cls,
        candidates: ArrayLike | ClassCentroids,
        novel: ArrayLike | ClassCentroids | None = None,
        m: int | None = None,
        k: int | None = None,
        lam: float = 0.0,
        *,
        similarity: str | SimilarityFunction | None = None,
        centre: str = "candidates",
        shrinkage: float = 0.5,
        names: Sequence[str] | None = None,
        novel_names: Sequence[str] | None = None,
        spread: bool | ProcessGroup = False,
        **settings: Any,
    ) -> SelectionProblem:
        """The problem of class centroids.

        Args:
            candidates: `|B| x d` class centroids; kept for methods that need them, like those
                of `novel`, and not copied: do not write to them. `ClassCentroids`, as `embed`
                returns them, bring their names along, those of the task also their weights (in
                General Selection the candidates are the task).
            novel: `|N| x d` class centroids; None is General Selection, where the candidates
                themselves stand for the classes to come.
            m: As for the class.
            k: As for the class; 3 by default, 1 in General Selection.
            lam: As for the class.
            similarity: "cosine" (the paper, the default; but see
                `fsl_basesel.similarity.default_objective`), "centred", "whitened" (see
                `fsl_basesel.similarity.space_of`), or a function of (a block of candidates
                `[b, d]`, novel `[|N|, d]`) to `[|N|, b]`.
            centre: For "centred" and "whitened": "candidates" subtracts their mean from both sides,
                "each" from each side its own, for candidates and novel classes from different
                sources (text and images).
            shrinkage: For "whitened": share of the identity in the covariance, above 0, at most 1.
            names: As for the class.
            novel_names: As for the class; in General Selection the candidates' names.
            spread: Whether to spread the novel classes over all processes of `torch.distributed`,
                or over a group of them: every process passes the same centroids and computes and
                keeps the similarities of its own novel classes.
            settings: The remaining arguments of the class.

        Example:
            >>> import numpy as np
            >>> problem = SelectionProblem.from_centroids(np.eye(4), np.eye(4)[:2], m=2, k=1)
            >>> problem.value([0, 1]), problem.value([2, 3])
            (1.0, 0.0)
        """
        k, similarity = default_objective(novel is None, k, similarity)
        made_by: dict[str, str] = {}
        if isinstance(candidates, ClassCentroids):
            names = candidates.names if names is None else names
            made_by = candidates.made_by
            if novel is None:
                settings = {"weights": candidates.weights} | settings
            candidates = candidates.values
        if isinstance(novel, ClassCentroids):
            novel_names = novel.names if novel_names is None else novel_names
            settings = {"weights": novel.weights} | settings
            by = made_by.get("backbone"), novel.made_by.get("backbone")
            if None not in by and by[0] != by[1]:
                raise InputError(
                    f"Expected candidates and novel classes from one backbone but got {by[0]} and "
                    f"{by[1]}; embed both with the same one."
                )
            novel = novel.values
        tensors = is_tensor(candidates) or is_tensor(novel)
        base = checks.matrix(candidates, "candidates", "classes", "dimensions")
        base_names = checks.class_names(names, len(base), "names", "candidate")
        if novel is None:
            target, novel_names = base, base_names if novel_names is None else novel_names
        else:
            target = checks.matrix(novel, "novel", "classes", "dimensions")
        if base.shape[1] != target.shape[1]:
            raise InputError(
                "Expected `candidates` and `novel` to have the same number of dimensions but got "
                f"{base.shape[1]} and {target.shape[1]}; take both from one backbone."
            )
        target_names = checks.class_names(novel_names, len(target), "novel_names", "novel class")
        rows = Rows(0, len(target))
        if spread is not False:
            group = None if spread is True else spread
            rows = Rows.spread(
                len(target), group, _digest((base_names, target_names), base, target)
            )
            name = "a function" if callable(similarity) else similarity
            sizes = {"candidates": base.shape, "novel": target.shape}
            compared = (name, centre, shrinkage)
            rows.agree("SelectionProblem.from_centroids", **sizes, similarity=compared)
        here = slice(rows.start, rows.stop)
        needed = len(base) * len(target[here]) * np.result_type(base, target).itemsize
        rows.all_or_none(lambda: memory.refuse_oversize("the similarities", needed, ADVICE))
        how = space_of(similarity, base, target, centre, shrinkage)
        named = base_names, target_names[here]
        columns = rows.all_or_none(
            lambda: similarity_columns(base, target[here], *named, how, rows.start)
        )
        matrix = Matrix(columns, rows, base_names, target_names, tensors=tensors, made_by=made_by)
        matrix.centroids = base, target
        matrix.space = how if isinstance(how, Space) else None
        return cls(matrix, m, k, lam, **settings)

    def shard(self, group: ProcessGroup | None = None) -> SelectionProblem:
        """This process's share of the rows of a problem that every process of `group` has.

        Use it like any other problem, the same way on every process (`fsl_basesel.distributed`).
        """
        key = _digest((self.names, self.novel_names), self.by_candidate)
        rows = Rows.spread(self.n_novel, group, key)
        sizes = {"novel": self.n_novel, "candidates": self.n_candidates}
        rows.agree("problem.shard", **sizes, **self._printable())
        here = np.ascontiguousarray(self.by_candidate[:, rows.start : rows.stop])
        part = dataclasses.replace(self.matrix, by_candidate=here, rows=rows, cache={})
        return type(self)(part, **self.settings())

    def replace(self, **settings: Any) -> SelectionProblem:
        """The same matrix with other settings (`m`, `k`, `lam`, `selected`, `cost`, `mu`, ...).

        Nothing is copied, so a grid of settings costs one matrix; its means and its sorted rows are
        made once, whichever of the problems needs them first.

        Example:
            >>> problem = SelectionProblem([[0.9, 0.1, 0.5]], m=2, k=1)
            >>> problem.replace(m=1).m
            1
        """
        unknown = set(settings) - set(SETTINGS)
        if unknown:
            raise InputError(
                f"Expected settings among {', '.join(SETTINGS)} but got {sorted(unknown)}."
            )
        return type(self)(self.matrix, **(self.settings() | settings))

    def settings(self) -> dict[str, Any]:
        """What `replace` takes, as it is."""
        return {name: getattr(self, name) for name in SETTINGS} | {"m": self._asked_m}

    def __setattr__(self, name: str, value: object) -> None:
        if "limits" in self.__dict__:  # what is set last
            raise AttributeError(f"A problem cannot change; make another by replace({name}=...).")
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy: without what can be computed again."""
        return partial(type(self), **self.settings()), (self.matrix,)

    @property
    def similarity_name(self) -> str:
        """What the similarities are: "cosine", "centred", "whitened", "function" or "matrix"."""
        if self.centroids is None:
            return "matrix"
        return "function" if self.matrix.space is None else self.matrix.space.name

    @property
    def similarity(self) -> np.ndarray | torch.Tensor:
        """`|N| x |B|` view of the similarities. Do not write to it."""
        return self.answer(self.by_candidate.T)

    def answer(self, array: np.ndarray, *asked: object) -> Any:
        """`array`, as a tensor if the similarities, or one of `asked`, came as tensors."""
        if is_tensor(array) or not (self.matrix.tensors or any(is_tensor(one) for one in asked)):
            return array
        import warnings

        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of memory that cannot be written to
            return torch.from_numpy(array)

    @cached_property
    def is_selected(self) -> np.ndarray:
        """`[|B|]` bool: columns of B_s."""
        mask = np.zeros(self.n_candidates, bool)
        mask[list(self.selected)] = True
        return mask

    @cached_property
    def unselected(self) -> np.ndarray:
        """B_u, the columns to choose from, ascending; excluded ones are not among them."""
        free = ~self.is_selected
        free[list(self.exclude)] = False
        return np.flatnonzero(free)

    @cached_property
    def row_weights(self) -> np.ndarray:
        """What each novel class here counts, 1 in the mean over all."""
        if self.weights is None:
            return np.ones(self.by_candidate.shape[1])
        return self.weights[self.rows.start : self.rows.stop] * self.n_novel

    @property
    def column_means(self) -> np.ndarray:
        """`[|B|]` float64: mean similarity of each candidate to the novel classes."""

        def work(start: int, stop: int) -> np.ndarray:
            part = self.by_candidate[start:stop]
            if self.weights is not None:
                part = part * self.row_weights
            sums = [part[:, block].sum(axis=1, dtype=np.float64) for block in self.rows.blocks]
            return np.array(sums).reshape(-1, stop - start)

        def means() -> np.ndarray:
            pieces = map_blocks(work, self.n_candidates, COLUMN_BLOCK)
            return self.rows.sum(np.concatenate(pieces, axis=1)) / self.n_novel

        weighting = None if self.weights is None else self.weights.tobytes()
        return self.matrix.once(("means", weighting), means)

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
        """
        prices = np.abs(self.modular)
        terms = max(float(prices[np.asarray(chosen, np.int64)].sum()) for chosen in sets)
        return ROUNDING * (terms + float(prices[list(self.selected)].sum()) + abs(self.floor))

    def value(self, indices: Iterable[int]) -> float:
        """h(U) for the columns `indices`, Eq. 3 with the cost term."""
        return self.value_of(self._members("value", indices))

    def value_of(self, members: np.ndarray) -> float:
        """h for base classes given as an array that includes B_s; nothing is checked."""
        return self.value_from(self.state_of(members)[0], members)

    def value_from(self, value: np.ndarray, members: np.ndarray) -> float:
        """h from a top-k state of `members` (see `fsl_basesel.topk`), B_s included."""
        per_row = self.row_weights * value[:, : self.depth].sum(axis=1)
        top = self.rows.sum_of(per_row) / self.n_novel / self.k
        top += self.floor * (self.k - self.depth) / self.k  # entries no set of classes can fill
        return float(top - np.sort(self.modular[members]).sum())

    def state_of(self, members: np.ndarray, more: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The top-k state (see `fsl_basesel.topk`) of `members`, by `more` entries deeper."""
        return topk.state_of(self.by_candidate, members, self.depth + more, self.floor)

    def with_selected(self, chosen: Sequence[int] | np.ndarray) -> np.ndarray:
        """B_s and the columns `chosen`."""
        return np.concatenate([np.array(self.selected, np.int64), np.asarray(chosen, np.int64)])

    def losses(self, value: np.ndarray, index: np.ndarray) -> np.ndarray:
        """`[|B|]`: what all top-k sums lose without each column, from a state of k + 1."""
        return self.rows.sum(topk.losses(value, index, self.row_weights, self.n_candidates))

    def gains(self, indices: Iterable[int]) -> Any:
        """h(u | U) for every column u, float64 `[|B|]`; -inf for columns that are already in."""
        members = self._members("gains", indices)
        gains = self.gains_over(self.state_of(members)[0][:, -1])
        gains[members] = -np.inf
        return self.answer(gains, indices)

    def gains_over(self, kth: np.ndarray, which: np.ndarray | None = None) -> np.ndarray:
        """Gain of each column (or of those in `which`) given the rows' current k-th values."""
        columns = np.arange(self.n_candidates) if which is None else which
        return self.rows.sum(self.excess(kth, columns)) / self.scale - self.modular[columns]

    def gains_and_mean(self, kth: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, float]:
        """`gains_over` and the mean of the k-th values, by one sum over all processes."""
        mean = self.rows.block_sums(self.row_weights * kth)
        total = self.rows.sum(np.concatenate([self.excess(kth, which), mean], axis=1))
        return total[:-1] / self.scale - self.modular[which], float(total[-1]) / self.n_novel

    def excess(self, kth: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Weighted sums of max(f - kth, 0) over the blocks of rows here, for columns `which`."""
        sums = np.empty((len(self.rows.blocks), len(which)))
        data = self.by_candidate, which
        against = np.ascontiguousarray(kth), self.row_weights, sums

        def work(start: int, stop: int) -> None:
            topk.excess(*data, start, stop, *against, np.empty(topk.LANES))

        map_blocks(work, len(which), COLUMN_BLOCK)
        return sums

    def similarity_ratio(self, indices: Iterable[int]) -> Any:
        """Similarity Ratio (Eq. 1) of every novel class with the base set B_s + U, `[|N|]`.

        Mean similarity to the top-k base classes over the mean to all of them; with fewer than k
        base classes the top-k are those there are, and with none the ratio is NaN. It is NaN for
        signed similarities too: a mean that may be close to zero says nothing as a divisor.
        """
        members = self._members("similarity_ratio", indices)
        return self.answer(self.ratio_of(members), indices)

    def ratio_of(self, members: np.ndarray) -> np.ndarray:
        """`similarity_ratio` of base classes given as an array that includes B_s."""
        if not len(members) or self.matrix.extent[0] < 0:
            return np.full(self.n_novel, np.nan)
        depth = min(self.k, len(members))
        value, _ = topk.state_of(self.by_candidate, members, depth, self.floor)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = value.mean(axis=1) / self.by_candidate[members].mean(axis=0, dtype=np.float64)
        return self.rows.all(ratio)

    @property
    def sorted_rows(self) -> SortedRows:
        """Every row in falling order; sorted once for all problems with this matrix and floor.

        Rows with weights are sorted as weight * (f - floor), with a floor of 0.
        """
        weights = None if self.weights is None else self.weights.tobytes()

        def sort() -> SortedRows:
            if weights is None:
                return SortedRows.from_columns(self.by_candidate, self.floor)
            above = (self.by_candidate - np.float64(self.floor)) * self.row_weights
            return SortedRows.from_columns(above, 0.0)

        return self.matrix.once(("sorted rows", self.floor, weights), sort)

    def multilinear(self, x: ArrayLike, backend: str = "auto") -> Any:
        """F(x), the expectation of h; see `fsl_basesel.extension.multilinear`."""
        return extension.multilinear(self, x, backend)

    def gradient(self, x: ArrayLike, backend: str = "auto") -> Any:
        """dF/dx, exact; see `fsl_basesel.extension.gradient`."""
        return extension.gradient(self, x, backend)

    def _members(self, call: str, indices: Iterable[int]) -> np.ndarray:
        """B_s and `indices`, checked and the same on every process."""
        chosen = checks.distinct_columns(indices, "indices", self.n_candidates)
        both = set(chosen) & set(self.selected)
        if both:
            raise InputError(
                f"Expected `indices` outside the classes already selected but got {min(both)} "
                f"({self.names[min(both)]!r}); B_s counts as in without being named."
            )
        self.agree(f"problem.{call}", indices=chosen)
        return self.with_selected(chosen)

    def require_allowed(self, indices: Sequence[int]) -> None:
        """Refuse a choice that the number of classes or the limits do not allow."""
        fault = None if len(indices) == self.m else ""
        if self.limits is not None:
            fault = self.limits.fault(indices)
        if fault is None and set(indices) & set(self.exclude):
            fault = " with excluded ones"
        if fault is not None:
            most = "at most " if self.budget is not None else ""
            raise InputError(
                f"Expected `indices` to be {most}m = {self.m} columns that keep to all limits but "
                f"got {len(indices)}{fault}."
            )

    def agree(self, call: str, **details: object) -> None:
        """Make sure that every process is about to do the same with the same settings."""
        if self.rows.size > 1:
            self.rows.agree(call, **self._printable(), **details)

    def _printable(self) -> dict[str, Any]:
        """The settings; arrays as lists, which print in full."""
        settings = self.settings().items()
        return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in settings}

    def __repr__(self) -> str:
        return (
            f"SelectionProblem({self.n_novel} novel x {self.n_candidates} candidates, m={self.m}, "
            f"k={self.k}, lam={self.lam:g}, selected={len(self.selected)}, mu={self.mu:g})"
        )


def _digest(names: object, *arrays: np.ndarray) -> str:
    """A short text that differs where the names or the arrays differ."""
    found = hashlib.sha256(repr(names).encode())
    for array in arrays:
        found.update(np.ascontiguousarray(array).data.cast("B"))
    return found.hexdigest()[:16]
