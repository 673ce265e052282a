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
from fsl_basesel.study import inputs
from fsl_basesel.study.least_squares import Moments, Sample, left_out_by_class, mean, top_means
from fsl_basesel.study.profile import Interval, ProfileRow, default_ks, profile_rows

if TYPE_CHECKING:
    from fsl_basesel.study.suggestion import Suggestion

FORMAT = "fsl-basesel study 1"


@dataclass(frozen=True)
class ClassRegression:
    """The regression of one novel class: accuracy = beta1 x1 + beta2 x2 + alpha.

    NaN where it cannot be made: too few sets, or x1 and x2 constant or the same. A class whose
    accuracy never changed has slopes of 0 and no R^2.

    Attributes:
        name: The novel class.
        sets: Base sets on which it was measured.
        accuracy: Its mean accuracy.
        beta1: Slope of x1, the mean similarity to the K nearest classes.
        beta1_interval: Its 95 % interval.
        beta2: Slope of x2, the mean similarity to all classes of the set.
        beta2_interval: Its 95 % interval.
        alpha: Intercept.
        r2: Share of the variance explained.
        r2_left_out: The same for sets left out of the regression one at a time.
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
    r2_left_out: float


class Study:
    """Many random base sets of the same candidates, and what a model trained on each one reached.

    Args:
        similarity: `|N| x |B|`, rows novel classes, columns candidates; the matrix that `select`
            would be given.
        sets: The base sets: for each the columns of its classes, or a bool matrix `S x |B|`.
        accuracy: `S x |N|`, between 0 and 1; NaN where a class was not measured.
        names: Candidate names, unique; by default their column numbers.
        novel_names: Novel class names, unique; by default their row numbers.
        tests_per_class: Test images behind each accuracy, one number or one a novel class; tells
            how much of the spread of accuracies is no noise of testing.

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
        tests_per_class: int | ArrayLike | None = None,
    ) -> None:
        matrix = checks.matrix(similarity, "similarity", "novel classes", "candidates")
        novel, base = matrix.shape
        self.similarity = matrix
        self.member = inputs.membership(sets, base)
        self.accuracy = inputs.accuracies(accuracy, len(self.member), novel)
        self.names = checks.class_names(names, base, "names", "candidate")
        self.novel_names = checks.class_names(novel_names, novel, "novel_names", "novel class")
        self.tests_per_class = inputs.tests(tests_per_class, novel)

    @property
    def sizes(self) -> np.ndarray:
        """Number of classes of each base set, `[S]`."""
        return self.member.sum(axis=1)

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
        sample = Sample.of(x1, x2, self.accuracy)
        moments = Moments.of(sample)
        fit = moments.fit()
        left_out = left_out_by_class(sample)
        able, constant = np.isfinite(fit.beta1), ~np.isfinite(fit.r2)
        # A class whose accuracy never changed has slopes of 0, not of rounding.
        betas = [np.where(able & constant, 0.0, beta) for beta in (fit.beta1, fit.beta2)]
        widths = [np.where(able & constant, 0.0, width) for width in moments.half_widths()]
        rows = []
        for column, name in enumerate(self.novel_names):
            seen = np.isfinite(self.accuracy[:, column])
            level, one, two = (mean(values[seen, column]) for values in (self.accuracy, x1, x2))
            beta1, beta2 = (float(beta[column]) for beta in betas)
            near1, near2 = (float(width[column]) for width in widths)
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
                    r2_left_out=float(left_out[column]),
                )
            )
        return tuple(rows)

    def profile(
        self,
        ks: Sequence[int] | None = None,
        *,
        resamples: int = 1000,
        permutations: int = 200,
        seed: int = 0,
    ) -> tuple[ProfileRow, ...]:
        """How slopes and R^2 change with K, with intervals over base sets drawn again.

        Args:
            ks: Values of K, each below the size of the smallest base set; by default 1, 2, 3, 5,
                7, 10, ... up to half of it.
            resamples: Bootstrap resamples of the base sets.
            permutations: Permutations of the base sets, for the R^2 of chance.
            seed: Seed of both.
        """
        chosen = self._checked(default_ks(int(self.sizes.min())) if ks is None else ks)
        resamples = checks.integer(resamples, "resamples", 100, None, "")
        permutations = checks.integer(permutations, "permutations", 20, None, "")
        x1, x2 = top_means(self.similarity, self.member, chosen)
        samples = {k: Sample.of(x1[k], x2, self.accuracy) for k in chosen}
        return profile_rows(samples, resamples=resamples, permutations=permutations, seed=seed)

    def signal_share(self) -> float | None:
        """Share of the variance of accuracy, within classes, that is no noise of testing.

        With T independent test images the noise has variance p (1 - p) / T, estimated by
        p (1 - p) / (T - 1). Where all base sets are tested on the same images it is less than
        that, so the share is a lower limit. None without `tests_per_class`, or without a spread.
        """
        if self.tests_per_class is None:
            return None
        seen = np.isfinite(self.accuracy)
        count = seen.sum(axis=0)
        used = count > 1
        filled = np.where(seen, self.accuracy, 0.0)[:, used]
        noise = (filled * (1 - filled)).sum(axis=0) / count[used] / (self.tests_per_class[used] - 1)
        variance = np.nanvar(self.accuracy[:, used], axis=0, ddof=1)
        total = float(variance.sum())
        return max(0.0, 1 - float(noise.sum()) / total) if total > 0 else None

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
        """Figures 1 to 3 of the paper for this study, each as PNG and SVG.

        Args:
            folder: Where to write them; made if it is not there.
            suggestion: What `suggest` returned; computed where it is not given.

        Returns:
            The files.
        """
        from fsl_basesel.study.plots import write_figures

        return write_figures(self, suggestion or self.suggest(), Path(folder))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write an .npz file, atomically: a crash leaves the old file or the new one, whole."""
        target = Path(path)
        if target.suffix.lower() != ".npz":
            raise InputError(f"Expected a path that ends in .npz but got '{target}'; rename it.")
        arrays = {
            "similarity": self.similarity,
            "sets": self.member,
            "accuracy": self.accuracy,
            "names": np.array(self.names, dtype=str),
            "novel_names": np.array(self.novel_names, dtype=str),
        }
        if self.tests_per_class is not None:
            arrays["tests_per_class"] = self.tests_per_class
        return save_npz(target, FORMAT, compress=True, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Study:
        """Read what `save` wrote.

        Raises:
            InputError: If the file is no study, or a damaged one.
        """
        fields = ("similarity", "sets", "accuracy", "names", "novel_names")
        arrays = load_npz(path, FORMAT, fields, what="a study written by `Study.save` (.npz)")
        similarity, sets, accuracy, names, novel_names = (arrays[field] for field in fields)
        tests = arrays.get("tests_per_class")
        return cls(similarity, sets, accuracy, names.tolist(), novel_names.tolist(), tests)

    def _checked(self, ks: Iterable[int]) -> list[int]:
        smallest = int(self.sizes.min())
        limit = f"one less than the smallest base set ({smallest} classes; beyond, x1 is x2)"
        found = [checks.integer(k, "k", 1, smallest - 1, limit) for k in ks]
        if not found:
            raise InputError("Expected at least one value of k but got none.")
        return sorted(set(found))
