"""The preliminary study (section 3.2 of the paper): k and lam from random base sets.

Base models are trained on random base sets, and the accuracy of every novel class is regressed on
its mean similarity to the K nearest classes of the set (x1) and to all of them (x2). `Study` holds
the measurements, `Study.suggest` returns a `Suggestion` for `fsl-basesel select`.
"""

from fsl_basesel.study.core import ClassRegression, Study
from fsl_basesel.study.profile import ProfileRow
from fsl_basesel.study.suggestion import Suggestion

__all__ = ["ClassRegression", "ProfileRow", "Study", "Suggestion"]
