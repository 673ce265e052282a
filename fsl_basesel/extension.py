"""The multilinear extension F of a problem's objective: what `SelectionProblem` knows of it."""

# A mix-in for one class only, so `self` is annotated as that class; mypy calls this misc.
# mypy: disable-error-code="misc"

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from fsl_basesel.errors import InputError
from fsl_basesel.multilinear import (
    PrefixTooShortError,
    SortedRows,
    choose_backend,
    value_and_gradient,
)
from fsl_basesel.multilinear.order import likely_reach
from fsl_basesel.similarity import ArrayLike, as_array

if TYPE_CHECKING:
    from fsl_basesel.problem import SelectionProblem


class MultilinearExtension:
    """F(x) and its gradient; `SelectionProblem` inherits them."""

    @cached_property
    def sorted_rows(self: SelectionProblem) -> SortedRows:
        """Every row in falling order, for the multilinear extension; sorted once a matrix."""
        if self._sorter is not self:
            return self._sorter.sorted_rows
        self.__dict__.pop("_prefix", None)  # no longer of use
        return SortedRows.from_columns(self.columns, self.floor)

    @property
    def _sorter(self: SelectionProblem) -> SelectionProblem:
        """The problem that keeps the sorted rows of all that share its matrix and its floor."""
        return self._owner if self._owner.floor == self.floor else self

    def rows_for(self: SelectionProblem, points: torch.Tensor, beyond: int = 0) -> SortedRows:
        """Sorted rows as far as walks at `points` are expected to go: all, or a prefix.

        A prefix is sorted in about half the time and takes no second copy of the matrix, but is
        given only while no complete rows are there and where it is at most a quarter of them.

        Args:
            points: `[S, |B|]` probabilities.
            beyond: a length that was found to be too short.
        """
        keeper = self._sorter
        lowest = float(points.mean(1).min()) if points.numel() else 0.0
        length = max(2 * beyond, likely_reach(lowest, self.k))
        if "sorted_rows" in keeper.__dict__ or 4 * length > self.n_candidates:
            return self.sorted_rows
        known = keeper.__dict__.get("_prefix")
        if known is None or known.length < length:
            known = SortedRows.from_columns(self.columns, self.floor, prefix=length)
            keeper._store(_prefix=known)
        return known

    def multilinear(
        self: SelectionProblem, x: ArrayLike, backend: str = "auto"
    ) -> float | torch.Tensor:
        """F(x) (Eq. 4): expectation of h when column u is in with probability `x[u]`.

        Args:
            x: `[|B|]`, or a batch `[S, |B|]`; entries of B_s count as 1.
            backend: See `fsl_basesel.multilinear`.

        Returns:
            A float, or a tensor `[S]` for a batch.
        """
        points, batched = probability_points(self, x)
        top, _ = self._mean_top(points, backend)
        values = top - points @ torch.from_numpy(self.modular).to(points)
        return values if batched else float(values[0])

    def gradient(self: SelectionProblem, x: ArrayLike, backend: str = "auto") -> torch.Tensor:
        """dF/dx (Eq. 5, 6), exact, for every column in one forward-backward pass.

        Memory: the first gradient sorts the rows and keeps them, 1.5 times a float32 matrix of up
        to 65536 candidates, so 2.5 copies with the matrix itself; see `SortedRows`. Where x lets
        expect that the heads of the rows are enough, only those; see `rows_for`.

        Args:
            x: `[|B|]`, or a batch `[S, |B|]`; entries of B_s count as 1.
            backend: See `fsl_basesel.multilinear`.

        Returns:
            The shape of `x`; 0 for B_s, whose classes are no variables of F.
        """
        top = self.top_gradient(x, backend)
        gradient = top - torch.from_numpy(self.modular).to(top)
        gradient[..., list(self.selected)] = 0.0
        return gradient

    def top_gradient(self: SelectionProblem, x: ArrayLike, backend: str = "auto") -> torch.Tensor:
        """The part of `gradient` that comes from the top-k means, the same for every lam and m."""
        points, batched = probability_points(self, x)
        _, gradient = self._mean_top(points, backend)
        return gradient if batched else gradient[0]

    def gradient_backend(self: SelectionProblem, x: ArrayLike) -> str:
        """The backend `gradient(x)` would use."""
        points, _ = probability_points(self, x)
        return choose_backend(self.rows_for(points), points, self.k)

    def _mean_top(
        self: SelectionProblem, points: torch.Tensor, backend: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The expected mean top-k similarity and its gradient, over the rows of all processes."""
        rows = self.sorted_rows if backend == "reference" else self.rows_for(points)
        while True:
            try:
                pair = value_and_gradient(rows, points, self.k, backend=backend)
                break
            except PrefixTooShortError:
                rows = self.rows_for(points, beyond=rows.length)
        if self.shards == 1:
            return pair
        share = self.columns.shape[1] / self.n_novel
        value, gradient = (
            self.sum_over_shards(share * part.cpu().double().numpy()) for part in pair
        )
        return torch.from_numpy(value).to(points), torch.from_numpy(gradient).to(points)


def probability_points(problem: SelectionProblem, x: ArrayLike) -> tuple[torch.Tensor, bool]:
    """`x` as a batch `[S, |B|]` of points with B_s at 1, and whether it was a batch."""
    expected = (
        f"Expected `x` of shape [{problem.n_candidates}] or [S, {problem.n_candidates}], one "
        "probability for each candidate,"
    )
    if isinstance(x, torch.Tensor):
        tensor = x
    else:
        array = as_array(x, expected)
        if array.dtype.kind not in "fiub":
            raise InputError(f"{expected} but got dtype {array.dtype}.")
        # torch takes neither negative strides nor foreign byte orders, and warns of read-only.
        tensor = torch.from_numpy(np.array(array, array.dtype.newbyteorder("="), order="C"))
    if not tensor.is_floating_point():
        tensor = tensor.double()
    if tensor.ndim not in (1, 2) or tensor.shape[-1] != problem.n_candidates:
        raise InputError(f"{expected} but got {list(tensor.shape)}.")
    points = tensor.detach().reshape(-1, problem.n_candidates).clone()
    if not bool(((points >= 0) & (points <= 1)).all()):
        raise InputError(
            "Expected `x` to hold probabilities between 0 and 1 but got values from "
            f"{float(points.min())} to {float(points.max())}."
        )
    points[:, list(problem.selected)] = 1.0
    return points, tensor.ndim == 2
