"""`Suggestion`: the k and lam that a study supports, with their uncertainty and reasons."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import fsl_basesel
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import load_json, reading, write_text
from fsl_basesel.study.profile import Interval, ProfileRow

if TYPE_CHECKING:
    from fsl_basesel.study.core import Study

FORMAT = "fsl-basesel suggestion 1"
T = TypeVar("T")


@dataclass(frozen=True)
class Suggestion:
    """k and lam for `select`; plain data.

    Attributes:
        k: The K whose pooled regression predicts left-out base sets best.
        lam: Weight of the diversity term: `lam_estimate` where its interval lies above 0, else 0.
        lam_estimate: -beta2 / beta1 of the pooled regression, of any sign.
        lam_interval: Its 95 % interval; NaN where that of beta1 reaches 0.
        r2: Pooled R^2 for base sets left out one at a time.
        reason: In one sentence, why `lam` is what it is.
        notes: What to bear in mind.
        sets: Number of base sets, as `novel` is that of novel classes.
        resamples: Bootstrap resamples behind the intervals, drawn with `seed`.
    """

    k: int
    lam: float
    lam_estimate: float
    lam_interval: Interval
    r2: float
    reason: str
    notes: tuple[str, ...]
    sets: int
    novel: int
    profile: tuple[ProfileRow, ...] = dataclasses.field(repr=False)
    resamples: int
    seed: int
    version: str

    @property
    def chosen(self) -> ProfileRow:
        """The row of the suggested k."""
        return next(row for row in self.profile if row.k == self.k)

    def lam_at(self, k: int) -> float:
        """The lam that goes with another k, by the same rule, if the study looked at that one."""
        for row in self.profile:
            if row.k == k:
                return row.usable_lam
        known = ", ".join(str(row.k) for row in self.profile)
        raise InputError(
            f"Expected k to be one of those the study looked at ({known}) but got {k}, and lam "
            "changes with k; give lam as well."
        )

    def to_json(self) -> str:
        """The suggestion as JSON text; NaN is written as null."""
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(self)})
        fields = json.loads(text, parse_constant=lambda _: None)
        return json.dumps(fields, ensure_ascii=False, indent=1, allow_nan=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write JSON to `path`, atomically."""
        return write_text(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Suggestion:
        """Read what `save` wrote."""
        what = "a suggestion written by `fsl-basesel suggest --out`"
        fields = load_json(path, FORMAT, what=what)
        with reading(path, what):
            rows = tuple(_filled(ProfileRow, row) for row in fields["profile"])
            found = _filled(cls, fields | {"profile": rows})
            return dataclasses.replace(found, k=int(found.chosen.k), lam=float(found.lam))


def _filled(kind: type[T], values: dict[str, Any]) -> T:
    """A row or a suggestion from a file: null is NaN, and what older versions had more is left."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: _number(values[name]) for name in names})


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_number(entry) for entry in value)
    return float("nan") if value is None else value


def suggestion_of(
    study: Study, rows: Sequence[ProfileRow], *, resamples: int, seed: int
) -> Suggestion:
    """Choose k by the pooled R^2 of left-out base sets, and lam by the slopes at that k.

    The pooled regression has one pair of slopes for all novel classes, as the objective has one k
    and one lam; regressions of single classes fit 2 |N| slopes and with few sets mostly noise.
    """
    able = [row for row in rows if math.isfinite(row.pooled_r2)]
    if not able:
        raise InputError(
            "Expected accuracies and similarities that change between base sets but got constant "
            "ones, which no regression can explain; use base sets that differ."
        )
    best = max(able, key=lambda row: (row.pooled_r2, -row.k))
    return Suggestion(
        k=best.k,
        lam=best.usable_lam,
        lam_estimate=best.lam,
        lam_interval=best.lam_interval,
        r2=best.pooled_r2,
        reason=_reason(best),
        notes=tuple(_notes(study, best)),
        sets=len(study.member),
        novel=len(study.novel_names),
        profile=tuple(rows),
        resamples=resamples,
        seed=seed,
        version=fsl_basesel.__version__,
    )


def _reason(row: ProfileRow) -> str:
    low, high = row.lam_interval
    if not row.pooled_beta1_interval[0] > 0:
        one, two = row.pooled_beta1_interval
        return (
            "lam = 0 because similarity to the nearest base classes has no sure effect on accuracy "
            f"here (beta1 between {one:.2g} and {two:.2g}), so no ratio to it can be estimated"
        )
    between = f"-beta2/beta1 = {row.lam:.2f}, 95 % interval {low:.2f} to {high:.2f}"
    if low > 0:
        return f"lam = {row.lam:.2f} because {between}"
    if high < 0:
        return (
            f"lam = 0 because similarity to all base classes helps here ({between}) and `select` "
            "takes no negative lam"
        )
    return f"lam = 0 because the study cannot distinguish it from 0 ({between})"


def _notes(study: Study, best: ProfileRow) -> list[str]:
    notes = []
    sets, novel = study.accuracy.shape
    if sets < 20:  # resampling them understates what could have come out
        notes.append(f"{sets} base sets are few: intervals are too narrow, use 30 or more")
    if not best.pooled_r2 > 0:
        notes.append("no K predicts the accuracy of left-out base sets: k is a guess")
    if len(set(study.sizes.tolist())) > 1:
        notes.append("base sets differ in size, which moves accuracy by itself")
    missing = int(np.isnan(study.accuracy).sum())
    if missing:
        notes.append(f"{missing} of {sets * novel} accuracies are missing")
    if best.classes < novel:
        notes.append(
            f"{novel - best.classes} of {novel} novel classes have no regression of their own at "
            f"k = {best.k}: too few sets, or similarities that do not change"
        )
    return notes
