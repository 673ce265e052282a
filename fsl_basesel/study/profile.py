"""How the regressions change with K: means over the novel classes, pooled slopes, uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fsl_basesel.study.least_squares import (
    Fit,
    Moments,
    Sample,
    left_out_by_class,
    left_out_pooled,
    mean,
    permuted_r2,
)

Interval = tuple[float, float]
NOWHERE: Interval = (float("nan"), float("nan"))


@dataclass(frozen=True)
class ProfileRow:
    """What the regressions with one K say; NaN where nothing can be said.

    Intervals are 95 % intervals over base sets drawn again (bootstrap). *Pooled* means one pair of
    slopes for all novel classes, each with an intercept of its own, as the objective of `select`
    has it; the other figures are means over regressions of single classes, as in the paper.

    Attributes:
        k: K of x1.
        classes: Novel classes whose regression could be made.
        beta1: Mean slope of x1.
        beta1_interval: Its interval.
        beta2: Mean slope of x2.
        beta2_interval: Its interval.
        ratio: beta2 / beta1 (Figure 1).
        ratio_interval: Its interval; NaN where that of beta1 reaches 0.
        positive: Share of the classes with a slope of x1 above 0.
        r2: Mean R^2 of the classes (Figure 3).
        r2_chance: The R^2 that accuracies of the wrong base sets would have on average.
        r2_chance_high: What 95 % of permutations of the base sets stay below.
        r2_left_out: Mean R^2 for base sets left out of the regression one at a time.
        pooled_beta1: Pooled slope of x1.
        pooled_beta1_interval: Its interval.
        pooled_beta2: Pooled slope of x2.
        pooled_beta2_interval: Its interval.
        pooled_r2: Pooled R^2 (within classes) for base sets left out one at a time.
        lam: -pooled_beta2 / pooled_beta1.
        lam_interval: Its interval; NaN where that of `pooled_beta1` reaches 0.
        chosen: Share of the resamples in which this K has the largest pooled R^2.
    """

    k: int
    classes: int
    beta1: float
    beta1_interval: Interval
    beta2: float
    beta2_interval: Interval
    ratio: float
    ratio_interval: Interval
    positive: float
    r2: float
    r2_chance: float
    r2_chance_high: float
    r2_left_out: float
    pooled_beta1: float
    pooled_beta1_interval: Interval
    pooled_beta2: float
    pooled_beta2_interval: Interval
    pooled_r2: float
    lam: float
    lam_interval: Interval
    chosen: float


def profile_rows(
    samples: Mapping[int, Sample], *, resamples: int, permutations: int, seed: int
) -> tuple[ProfileRow, ...]:
    """One row for every K; arguments as for `Study.profile`."""
    rng = np.random.default_rng(seed)
    sets = len(next(iter(samples.values())).y)
    weights = rng.multinomial(sets, np.full(sets, 1 / sets), size=resamples).astype(np.float64)
    chance = permuted_r2(list(samples.values()), rng, permutations)
    draws = [_Draws.of(sample, weights) for sample in samples.values()]
    best = _best(np.stack([draw.pooled.r2 for draw in draws], axis=1))
    return tuple(
        _row(k, sample, draw, chance[:, position], float(np.mean(best == position)))
        for position, ((k, sample), draw) in enumerate(zip(samples.items(), draws, strict=True))
    )


class _Draws(NamedTuple):
    """Mean and pooled slopes of every resample, `[R]`."""

    beta1: np.ndarray
    beta2: np.ndarray
    pooled: Fit

    @classmethod
    def of(cls, sample: Sample, weights: np.ndarray) -> _Draws:
        moments = Moments.resampled(sample, weights)
        fit = moments.fit()
        able = np.isfinite(fit.beta1)
        some = np.maximum(able.sum(axis=1), 1)
        beta1, beta2 = (
            np.where(able.any(axis=1), np.where(able, beta, 0.0).sum(axis=1) / some, np.nan)
            for beta in (fit.beta1, fit.beta2)
        )
        return cls(beta1, beta2, moments.pooled().fit())


def _best(r2: np.ndarray) -> np.ndarray:
    """Where each row of `[R, K]` is largest; -1 where it is nowhere defined."""
    filled = np.where(np.isfinite(r2), r2, -np.inf)
    return np.where(np.isfinite(r2).any(axis=1), filled.argmax(axis=1), -1)


def _row(k: int, sample: Sample, draw: _Draws, chance: np.ndarray, chosen: float) -> ProfileRow:
    moments = Moments.of(sample)
    fit, pooled = moments.fit(), moments.pooled().fit()
    able = np.isfinite(fit.beta1)
    beta1, beta2 = mean(fit.beta1), mean(fit.beta2)
    judged = able & np.isfinite(fit.r2)
    return ProfileRow(
        k=k,
        classes=int(able.sum()),
        beta1=beta1,
        beta1_interval=_interval(draw.beta1),
        beta2=beta2,
        beta2_interval=_interval(draw.beta2),
        ratio=_ratio(beta2, beta1),
        ratio_interval=_ratio_interval(draw.beta2, draw.beta1),
        positive=float(np.mean(fit.beta1[able] > 0)) if able.any() else float("nan"),
        r2=mean(fit.r2),
        r2_chance=mean(2 / (moments.count[judged] - 1)),
        r2_chance_high=float(np.quantile(chance, 0.95)) if judged.any() else float("nan"),
        r2_left_out=mean(left_out_by_class(sample)),
        pooled_beta1=float(pooled.beta1),
        pooled_beta1_interval=_interval(draw.pooled.beta1),
        pooled_beta2=float(pooled.beta2),
        pooled_beta2_interval=_interval(draw.pooled.beta2),
        pooled_r2=left_out_pooled(sample),
        lam=_ratio(-float(pooled.beta2), float(pooled.beta1)),
        lam_interval=_ratio_interval(-draw.pooled.beta2, draw.pooled.beta1),
        chosen=chosen,
    )


def _interval(draws: np.ndarray) -> Interval:
    kept = draws[np.isfinite(draws)]
    if len(kept) < 2:
        return NOWHERE
    low, high = np.quantile(kept, (0.025, 0.975))
    return float(low), float(high)


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else float("nan")


def _ratio_interval(numerators: np.ndarray, denominators: np.ndarray) -> Interval:
    """The interval of a ratio, which has none where its denominator may be 0."""
    low, high = _interval(denominators)
    if not (low > 0 or high < 0):
        return NOWHERE
    with np.errstate(divide="ignore"):
        return _interval(numerators / denominators)


def default_ks(smallest: int) -> Sequence[int]:
    """Values of K up to half the smallest base set, beyond which x1 is hardly more than x2.

    Example:
        >>> default_ks(20)
        (1, 2, 3, 5, 7, 10)
    """
    return tuple(k for k in (1, 2, 3, 5, 7, 10, 15, 20, 30, 50) if k == 1 or 2 * k <= smallest)
