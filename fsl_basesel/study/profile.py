"""How the regressions change with K: means over the novel classes, pooled slopes, uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fsl_basesel.study.least_squares import Fit, Moments, Sample, left_out_pooled, mean

Interval = tuple[float, float]
NOWHERE: Interval = (float("nan"), float("nan"))


@dataclass(frozen=True)
class ProfileRow:
    """What the regressions with one K say; NaN where nothing can be said.

    Intervals are 95 % intervals over base sets drawn again (bootstrap). *Pooled* means one pair of
    slopes for all novel classes, each with an intercept of its own, as the objective of `select`
    has it; the other figures are means over regressions of single classes, as in the paper. The
    interval of a ratio is NaN where that of its denominator reaches 0.

    Attributes:
        classes: Novel classes whose regression could be made.
        ratio: beta2 / beta1 (Figure 1).
        positive: Share of the classes with a slope of x1 above 0.
        r2: Mean R^2 of the classes (Figure 3).
        r2_chance: The R^2 that accuracies of the wrong base sets would have on average.
        pooled_r2: Pooled R^2 (within classes) for base sets left out one at a time.
        lam: -pooled_beta2 / pooled_beta1.
        chosen: Share of the resamples in which this K has the largest pooled R^2.
    """

    k: int
    classes: int
    beta1: float
    beta2: float
    ratio: float
    ratio_interval: Interval
    positive: float
    r2: float
    r2_chance: float
    pooled_beta1: float
    pooled_beta1_interval: Interval
    pooled_beta2: float
    pooled_r2: float
    lam: float
    lam_interval: Interval
    chosen: float

    @property
    def usable_lam(self) -> float:
        """The estimate where x1 surely helps and the interval lies above 0, else 0."""
        sure = self.pooled_beta1_interval[0] > 0 and self.lam_interval[0] > 0
        return self.lam if sure else 0.0


def profile_rows(
    samples: Mapping[int, Sample], *, resamples: int, seed: int
) -> tuple[ProfileRow, ...]:
    """One row for every K; arguments as for `Study.profile`."""
    rng = np.random.default_rng(seed)
    sets = len(next(iter(samples.values())).y)
    weights = rng.multinomial(sets, np.full(sets, 1 / sets), size=resamples).astype(np.float64)
    drawn = {k: _resampled(sample, weights) for k, sample in samples.items()}
    r2 = np.stack([pooled.r2 for _, _, pooled in drawn.values()], axis=1)
    best = np.where(np.isfinite(r2), r2, -np.inf).argmax(axis=1)
    best[~np.isfinite(r2).any(axis=1)] = -1
    rows = []
    for position, (k, sample) in enumerate(samples.items()):
        draws1, draws2, pooled_draws = drawn[k]
        moments = Moments.of(sample)
        fit, pooled = moments.fit(), moments.pooled().fit()
        able = np.isfinite(fit.beta1)
        beta1, beta2 = mean(fit.beta1), mean(fit.beta2)
        rows.append(
            ProfileRow(
                k=k,
                classes=int(able.sum()),
                beta1=beta1,
                beta2=beta2,
                ratio=_ratio(beta2, beta1),
                ratio_interval=_ratio_interval(draws2, draws1),
                positive=mean(np.where(able, fit.beta1 > 0, np.nan)),
                r2=mean(fit.r2),
                # Two regressors explain 2 / (S - 1) of what has nothing to do with them.
                r2_chance=mean(2 / (moments.count[np.isfinite(fit.r2)] - 1)),
                pooled_beta1=float(pooled.beta1),
                pooled_beta1_interval=_interval(pooled_draws.beta1),
                pooled_beta2=float(pooled.beta2),
                pooled_r2=left_out_pooled(sample),
                lam=_ratio(-float(pooled.beta2), float(pooled.beta1)),
                lam_interval=_ratio_interval(-pooled_draws.beta2, pooled_draws.beta1),
                chosen=float(np.mean(best == position)),
            )
        )
    return tuple(rows)


def _resampled(sample: Sample, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, Fit]:
    """Mean slopes of x1 and x2 and the pooled regression of every resample, `[R]`."""
    moments = Moments.resampled(sample, weights)
    fit = moments.fit()
    able = np.isfinite(fit.beta1)
    with np.errstate(invalid="ignore"):
        beta1, beta2 = (
            np.where(able, beta, 0.0).sum(axis=1) / able.sum(axis=1)
            for beta in (fit.beta1, fit.beta2)
        )
    return beta1, beta2, moments.pooled().fit()


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
