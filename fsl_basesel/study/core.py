"""`Study`: the accuracies of every novel class on many random base sets, and their regressions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fsl_basesel import checks
from fsl_basesel.checks import ArrayLike
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import load_npz, save_npz
from fsl_basesel.study.least_squares import NEEDED_SETS, Moments, Sample, mean, top_means
from fsl_basesel.study.profile import Interval, ProfileRow, profile_rows

if TYPE_CHECKING:
    from fsl_basesel.study.suggestion import Suggestion

FORMAT = "fsl-basesel study 1"


@dataclass(frozen=True)
class ClassRegression:
    """The regression of one novel class: accuracy = beta1 x1 + beta2 x2 + alpha.

    x1 is the mean similarity to the K nearest classes of a base set, x2 to all of them, `sets` the
    number of base sets on which the class was measured, `accuracy` its mean; intervals are of 95 %.
    NaN where the regression cannot be made: too few sets, or x1 and x2 constant or the same. A
    class whose accuracy never changed has slopes of 0 and no R^2.
    """

    name: str
    sets: int
    accuracy: float
    beta1: float
    beta1_interval: Interval
    beta2: float
    beta2_interval: Interval
    alpha: float
    r2: float


class Study:
    """Many random base sets of the same candidates, and what a model trained on each one reached.

    Args:
        similarity: `|N| x |B|`, rows novel classes, columns candidates; the matrix that `select`
            would be given.
        sets: The base sets: for each the columns of its classes, or a bool matrix `S x |B|`.
        accuracy: `S x |N|`, between 0 and 1; NaN where a class was not measured.
        names: Candidate names, unique; by default their column numbers.
        novel_names: Novel class names, unique; by default their row numbers.

    Raises:
        InputError: Shapes that do not fit, accuracies beyond 0 to 1, fewer than 5 sets.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> similarity = rng.random((30, 40))
        >>> sets = [rng.choice(40, 10, replace=False) for _ in range(50)]
        >>> nearest = np.array([np.sort(similarity[:, u])[:, -3:].mean(axis=1) for u in sets])
        >>> whole = np.array([similarity[:, u].mean(axis=1) for u in sets])
        >>> accuracy = 0.3 + 0.4 * nearest - 0.2 * whole + rng.normal(0, 0.02, nearest.shape)
        >>> suggestion = Study(similarity, sets, accuracy).suggest()
        >>> suggestion.k, round(suggestion.lam, 1)
        (3, 0.5)
    """

    def __init__(
        self,
        similarity: ArrayLike,
        sets: ArrayLike | Iterable[Iterable[int]],
        accuracy: ArrayLike,
        names: Sequence[str] | None = None,
        novel_names: Sequence[str] | None = None,
    ) -> None:
        matrix = checks.matrix(similarity, "similarity", "novel classes", "candidates")
        novel, base = matrix.shape
        self.similarity = matrix
        self.member = _membership(sets, base)
        self.sizes = self.member.sum(axis=1)
        self.accuracy = _accuracies(accuracy, len(self.member), novel)
        self.names = checks.class_names(names, base, "names", "candidate")
        self.novel_names = checks.class_names(novel_names, novel, "novel_names", "novel class")

    def regressors(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """x1 and x2, each `S x |N|`: mean similarity to the k nearest and to all of each set.

        With them h(U) of Eq. 3 is the mean of x1 - lam * x2 over the novel classes.
        """
        (k,) = self._checked([k])
        x1, x2 = top_means(self.similarity, self.member, [k])
        return x1[k], x2

    def regressions(self, k: int) -> tuple[ClassRegression, ...]:
        """One regression for every novel class: least squares, intervals by Student's t."""
        x1, x2 = self.regressors(k)
        moments = Moments.of(Sample.of(x1, x2, self.accuracy))
        fit, (widths1, widths2) = moments.fit(), moments.half_widths()
        rows = []
        for column, name in enumerate(self.novel_names):
            seen = np.isfinite(self.accuracy[:, column])
            level, one, two = (mean(values[seen, column]) for values in (self.accuracy, x1, x2))
            beta1, beta2 = float(fit.beta1[column]), float(fit.beta2[column])
            near1, near2 = float(widths1[column]), float(widths2[column])
            rows.append(
                ClassRegression(
                    name=name,
                    sets=int(seen.sum()),
                    accuracy=level,
                    beta1=beta1,
                    beta1_interval=(beta1 - near1, beta1 + near1),
                    beta2=beta2,
                    beta2_interval=(beta2 - near2, beta2 + near2),
                    alpha=level - beta1 * one - beta2 * two,
                    r2=float(fit.r2[column]),
                )
            )
        return tuple(rows)

    def profile(
        self, ks: Sequence[int] | None = None, *, resamples: int = 1000, seed: int = 0
    ) -> tuple[ProfileRow, ...]:
        """How slopes and R^2 change with K, with intervals over base sets drawn again.

        Args:
            ks: Values of K, each below the size of the smallest base set; by default 1, 2, 3, 5,
                7, 10, ... up to half of it, as x1 is hardly more than x2 beyond.
            resamples: Bootstrap resamples of the base sets.
            seed: Seed of the resamples.
        """
        if ks is None:
            half = max(1, int(self.sizes.min()) // 2)
            ks = [k for k in (1, 2, 3, 5, 7, 10, 15, 20, 30, 50) if k <= half]
        chosen = self._checked(ks)
        resamples = checks.integer(resamples, "resamples", 100)
        x1, x2 = top_means(self.similarity, self.member, chosen)
        samples = {k: Sample.of(x1[k], x2, self.accuracy) for k in chosen}
        return profile_rows(samples, resamples=resamples, seed=seed)

    def suggest(
        self, ks: Sequence[int] | None = None, *, resamples: int = 1000, seed: int = 0
    ) -> Suggestion:
        """k and lam for `select`, with their uncertainty; arguments as for `profile`."""
        from fsl_basesel.study.suggestion import suggestion_of

        rows = self.profile(ks, resamples=resamples, seed=seed)
        return suggestion_of(self, rows, resamples=resamples, seed=seed)

    def figures(
        self, folder: str | os.PathLike[str], suggestion: Suggestion | None = None
    ) -> list[Path]:
        """Write Figures 1 to 3 of the paper for this study, each as PNG and SVG; the files."""
        from fsl_basesel.study.plots import write_figures

        return write_figures(self, suggestion or self.suggest(), Path(folder))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write an .npz file, atomically: a crash leaves the old file or the new one, whole."""
        target = Path(path)
        if target.suffix.lower() != ".npz":
            raise InputError(f"Expected a path that ends in .npz but got '{target}'; rename it.")
        names, novel_names = (np.array(some, str) for some in (self.names, self.novel_names))
        arrays = {"similarity": self.similarity, "sets": self.member, "accuracy": self.accuracy}
        named = arrays | {"names": names, "novel_names": novel_names}
        return save_npz(target, FORMAT, compress=True, **named)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Study:
        """Read what `save` wrote."""
        fields = ("similarity", "sets", "accuracy", "names", "novel_names")
        arrays = load_npz(path, FORMAT, fields, what="a study written by `Study.save` (.npz)")
        similarity, sets, accuracy, names, novel_names = (arrays[field] for field in fields)
        return cls(similarity, sets, accuracy, names.tolist(), novel_names.tolist())

    def _checked(self, ks: Iterable[int]) -> list[int]:
        smallest = int(self.sizes.min())
        limit = f"one less than the smallest base set ({smallest} classes; beyond, x1 is x2)"
        found = [checks.integer(k, "k", 1, smallest - 1, limit) for k in ks]
        if not found:
            raise InputError("Expected at least one value of k but got none.")
        return sorted(set(found))


def _membership(sets: ArrayLike | Iterable[Iterable[int]], base: int) -> np.ndarray:
    """The base sets as a bool matrix `[S, |B|]`."""
    rows = list(sets)
    if len(rows) <= NEEDED_SETS:
        raise InputError(
            f"Expected at least {NEEDED_SETS + 1} base sets but got {len(rows)}; a regression on "
            "two variables needs them, and a useful one 30 or more."
        )
    member = np.zeros((len(rows), base), dtype=bool)
    for number, row in enumerate(rows):
        entries = checks.array(row, f"Expected `sets[{number}]` to be column numbers")
        if entries.dtype == bool:
            if entries.shape != (base,):
                raise InputError(
                    f"Expected `sets[{number}]` to say of each of the {base} candidates whether it "
                    f"is in but got shape {entries.shape}."
                )
            member[number] = entries
        else:
            member[number, list(checks.distinct_columns(entries, f"sets[{number}]", base))] = True
        if member[number].sum() < 2:
            raise InputError(
                f"Expected `sets[{number}]` to hold at least 2 classes but got "
                f"{int(member[number].sum())}; with fewer x1 is x2."
            )
    return member


def _accuracies(values: ArrayLike, sets: int, novel: int) -> np.ndarray:
    """Accuracies as float64 `[S, |N|]` between 0 and 1, or NaN."""
    expected = f"Expected `accuracy` to be {sets} x {novel} numbers (base sets x novel classes)"
    array = checks.array(values, expected)
    if array.dtype.kind not in "fiu" or array.shape != (sets, novel):
        raise InputError(f"{expected} but got {array.dtype} of shape {array.shape}.")
    array = array.astype(np.float64)
    beyond = np.argwhere(~((array >= 0) & (array <= 1) | np.isnan(array)))
    if len(beyond):
        row, column = beyond[0]
        raise InputError(
            f"Expected `accuracy` between 0 and 1 but got {array[row, column]} for base set {row} "
            f"and novel class {column}; divide per cents by 100."
        )
    if (np.isfinite(array).sum(axis=0) > NEEDED_SETS).sum() == 0:
        raise InputError(
            f"Expected some novel class to be measured on at least {NEEDED_SETS + 1} base sets but "
            "none was; measure more (NaN counts as not measured)."
        )
    return array
