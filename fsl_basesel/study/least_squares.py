"""Least squares of accuracy on x1 and x2: of every novel class at once, and of all jointly.

Arrays are `[S, |N|]`: a row for each base set, a column for each novel class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

NEEDED_SETS = 4
"""Three coefficients and a residual: with fewer sets a line through the points says nothing."""

# A column whose spread is below this share of its size is constant up to rounding.
CONSTANT = 1e-10
# 1 - r^2 of x1 and x2 below this: they are the same regressor up to rounding.
COLLINEAR = 1e-10


def top_means(
    similarity: np.ndarray, member: np.ndarray, ks: Sequence[int]
) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """x1 for every K, and x2: mean of the K largest and of all similarities to each base set.

    `member`, bool `[S, |B|]`, says which candidates each base set holds; none is smaller than a K.

    Example:
        >>> x1, x2 = top_means(np.array([[0.9, 0.1, 0.5]]), np.array([[True, True, False]]), [1])
        >>> x1[1], x2
        (array([[0.9]]), array([[0.5]]))
    """
    shape = len(member), len(similarity)
    x1 = {k: np.empty(shape) for k in ks}
    x2 = np.empty(shape)
    for row, inside in enumerate(member):
        values = similarity[:, inside].astype(np.float64)
        x2[row] = values.mean(axis=1)
        sums = np.cumsum(np.sort(values, axis=1)[:, ::-1], axis=1)
        for k in ks:
            x1[k][row] = sums[:, k - 1] / k
    return x1, x2


class Sample(NamedTuple):
    """What is regressed for one K, centred class by class; 0 where nothing was measured.

    `x1` is the mean of the K largest similarities, `x2` of all, `y` the accuracy; `seen` is 1.0
    where it was measured.
    """

    x1: np.ndarray
    x2: np.ndarray
    y: np.ndarray
    seen: np.ndarray

    @classmethod
    def of(cls, x1: np.ndarray, x2: np.ndarray, accuracy: np.ndarray) -> Sample:
        """Centre over the sets in which a class was measured (NaN: it was not)."""
        seen = np.isfinite(accuracy)
        one, two, y = (_centred(values, seen) for values in (x1, x2, accuracy))
        return cls(one, two, y, seen.astype(np.float64))

    def products(self) -> np.ndarray:
        """Squares and products in the order of `Moments.sums`, `[6, S, |N|]`."""
        x1, x2, y = self.x1, self.x2, self.y
        return np.stack([x1 * x1, x1 * x2, x2 * x2, x1 * y, x2 * y, y * y])


def _centred(values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    filled = np.where(seen, values, 0.0)
    count = np.maximum(seen.sum(axis=0), 1)
    centred = np.where(seen, filled - filled.sum(axis=0) / count, 0.0)
    spread, size = np.abs(centred).max(axis=0), np.abs(filled).max(axis=0)
    return np.where(spread > CONSTANT * size, centred, 0.0)


class Fit(NamedTuple):
    """Slopes and R^2 of one regression or of many at once.

    NaN where x1 and x2 are constant or the same up to rounding, or where sets are too few; R^2
    alone is NaN where the accuracy never changed.
    """

    beta1: np.ndarray
    beta2: np.ndarray
    r2: np.ndarray


@dataclass(frozen=True)
class Moments:
    """Number of sets and centred sums s11, s12, s22, s1y, s2y, syy (first); the classes last."""

    count: np.ndarray
    sums: np.ndarray

    @classmethod
    def of(cls, sample: Sample) -> Moments:
        """The moments of every class, `[|N|]`."""
        return cls(sample.seen.sum(axis=0), sample.products().sum(axis=1))

    @classmethod
    def resampled(cls, sample: Sample, weights: np.ndarray) -> Moments:
        """The moments when set s counts `weights[r, s]` times in resample r, `[R, |N|]`."""
        total = Sample(*(weights @ values for values in sample))
        sums = np.stack([weights @ product for product in sample.products()])
        return cls(total.seen, sums - total.products() / np.maximum(total.seen, 1.0))

    def pooled(self) -> Moments:
        """The moments of one regression for all classes, each with an intercept of its own."""
        return Moments(self.count.sum(axis=-1), self.sums.sum(axis=-1))

    @property
    def det(self) -> np.ndarray:
        """Determinant of the normal equations."""
        return self.sums[0] * self.sums[2] - self.sums[1] ** 2

    def fit(self) -> Fit:
        """Slopes by the normal equations of two centred regressors."""
        s11, s12, s22, s1y, s2y, syy = self.sums
        with np.errstate(divide="ignore", invalid="ignore"):
            able = (self.count >= NEEDED_SETS) & (self.det > COLLINEAR * s11 * s22)
            beta1 = np.where(able, (s22 * s1y - s12 * s2y) / self.det, np.nan)
            beta2 = np.where(able, (s11 * s2y - s12 * s1y) / self.det, np.nan)
            r2 = np.where(syy > 0, (beta1 * s1y + beta2 * s2y) / syy, np.nan)
        return Fit(beta1, beta2, r2)

    def half_widths(self) -> tuple[np.ndarray, np.ndarray]:
        """Half the widths of the 95 % intervals of both slopes, by Student's t."""
        from scipy import stats

        s11, _, s22, s1y, s2y, syy = self.sums
        fit, left = self.fit(), self.count - 3  # three coefficients
        with np.errstate(divide="ignore", invalid="ignore"):
            residual = np.maximum(syy - fit.beta1 * s1y - fit.beta2 * s2y, 0.0)
            variance = residual / left / self.det
            quantile = stats.t.ppf(0.975, left)
            return quantile * np.sqrt(variance * s22), quantile * np.sqrt(variance * s11)


def left_out_pooled(sample: Sample) -> float:
    """R^2 of the pooled regression for base sets left out one at a time.

    Leaving a set out moves a class's mean: its deviations grow by n / (n - 1), and n / (n - 1)
    times their products leave the sums.
    """
    count = sample.seen.sum(axis=0)
    grown = np.where(count > 1, count / np.maximum(count - 1, 1.0), 0.0)
    total = Moments.of(sample).pooled()
    left = (grown * sample.products()).sum(axis=2)
    fit = Moments(total.count - sample.seen.sum(axis=1), total.sums[:, None] - left).fit()
    predicted = fit.beta1[:, None] * sample.x1 + fit.beta2[:, None] * sample.x2
    error = ((grown * (sample.y - predicted)) ** 2).sum()
    spread = ((grown * sample.y) ** 2).sum()
    return float(1 - error / spread) if spread > 0 else float("nan")


def mean(values: np.ndarray) -> float:
    """Mean of what is not NaN; NaN if nothing is."""
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if len(kept) else float("nan")
