"""What the page needs to choose again: the similarities, the limits, and the choice so far."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from fsl_basesel.controls import Control
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.report.atlas import Atlas
from fsl_basesel.report.content import short
from fsl_basesel.report.run import Stage
from fsl_basesel.similarity import ClassCentroids

LARGEST, MOST = 5000 * 500, 10_000
"""Similarities and candidates of a page that can choose; larger problems are only shown."""


def deciding(
    stage: Stage, problem: SelectionProblem | None, control: Control | None, atlas: Atlas
) -> dict[str, Any]:
    """What `decide.js` reads.

    Args:
        stage: The selection to decide on.
        problem: What it was chosen from; None if that is not known.
        control: What random sets reach, if known.
        atlas: The thumbnails.
    """
    selection = stage.selection
    facts: dict[str, Any] = {
        "value": selection.value,
        "bound": selection.upper_bound,
        "gap": selection.gap,
        "random": None,
        "groups": None,
        "cost": None,
        "similarity": None,
    }
    if control is not None:
        values = {"mean": control.mean, "best": control.best, "draws": len(control.values)}
        facts["random"] = values
    if problem is not None and fits(problem):
        facts |= _whole(stage, problem)
    else:
        novel = [row.name for row in selection.explanation.novel]
        number = {name: n for n, name in enumerate(novel)}
        chosen = selection.explanation.chosen
        facts |= {
            "names": selection.names,
            "novel": novel,
            "chosen": list(range(len(selection.names))),
            "gains": [row.gain for row in chosen],
            "serves": [[number[name] for name in row.serves] for row in chosen],
        }
    pictures = [atlas.where(name, False) for name in facts["names"]]
    return facts | {"pictures": pictures, "pictured": any(pictures)}


def fits(problem: SelectionProblem) -> bool:
    """Whether a page can hold the problem and choose again quickly."""
    size = problem.n_candidates * problem.n_novel
    return size <= LARGEST and problem.n_candidates <= MOST


def _short(classes: ClassCentroids | None) -> list[str] | None:
    """Names without their groups, where there are groups."""
    if classes is None or classes.groups is None:
        return None
    return [short(name, group) for name, group in zip(classes.names, classes.groups, strict=True)]


def _whole(stage: Stage, problem: SelectionProblem) -> dict[str, Any]:
    """The problem itself, its similarities in single precision."""
    matrix = np.ascontiguousarray(np.asarray(problem.similarity).T, "<f4")
    single = SelectionProblem(matrix.T, m=problem.m, k=problem.k, weights=problem.weights)
    groups = stage.candidates.groups if stage.candidates is not None else None
    return {
        "names": problem.names,
        "novel": problem.novel_names,
        "shown": _short(stage.candidates),
        "novel_shown": _short(stage.novel),
        "similarity": base64.b64encode(matrix.tobytes()).decode("ascii"),
        "means": single.column_means.tolist() if problem.lam else None,
        "weights": None if problem.weights is None else problem.row_weights.tolist(),
        "cost": None if problem.cost is None else problem.cost.tolist(),
        "selected": problem.selected,
        "k": problem.k,
        "lam": problem.lam,
        "mu": problem.mu,
        "floor": problem.floor,
        "m": problem.m,
        "budget": problem.budget,
        "exclude": problem.exclude,
        "include": problem.include,
        "groups": problem.groups or groups,
        "at_most": problem.at_most,
        "at_least": problem.at_least,
        "chosen": stage.selection.indices,
    }
