"""What page and figures show, as numbers and words, computed once for both."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np

from fsl_basesel.controls import Control, controls, random_set
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.report.paired import Line
from fsl_basesel.report.projection import class_map
from fsl_basesel.report.record import problem_settings
from fsl_basesel.report.run import Run, Stage
from fsl_basesel.selectors.base import seeded
from fsl_basesel.similarity import SIMILARITIES

MAP_POINTS = 1000
"""Points of a map, at most."""
RATIO_DRAWS = 20
"""Random choices whose figures of novel classes are shown: the first of the control."""
_MATRIX = 2 * 10**7

T = TypeVar("T")
NOVEL, CHOSEN, BEFORE, REST = "novel", "chosen", "before", "rest"


class Point(NamedTuple):
    """A class on the map, between -1 and 1 across and up.

    `kind` is "novel", "chosen" (in this selection), "before" (in an earlier one) or "rest". `stage`
    is the one in which it was chosen; 0 if it was not, or was there from the start. `links` of a
    novel class are the positions, on this map, of its nearest base classes.
    """

    x: float
    y: float
    name: str
    group: str
    kind: str
    stage: int
    links: tuple[int, ...]


class ClassMap(NamedTuple):
    """Points in drawing order, how many classes there are in all, and whose map it is."""

    points: list[Point]
    total: int
    stage: Stage


class Change(NamedTuple):
    """A figure of a novel class before and after the choice, and the mean over random choices.

    None where it is undefined or cannot be told.
    """

    before: float | None
    after: float | None
    random: float | None


class Served(NamedTuple):
    """What a novel class got: its nearest base classes, its mean similarity to them, its ratio."""

    name: str
    ratio: Change
    nearest: Change
    neighbours: tuple[tuple[str, float], ...]


class Content(NamedTuple):
    """What a run has to show.

    `problems` and `controls` are by number of a stage: None and empty if the files do not tell.
    `map` is None without centroids. `served` has the novel classes of the last selection.
    `comparisons` has the lines of the table of methods, those to compare together.
    """

    run: Run
    problems: dict[int, SelectionProblem | None]
    map: ClassMap | None
    controls: dict[int, list[Control]]
    served: list[Served]
    comparisons: list[list[Line]]


def content_of(run: Run) -> Content:
    """Compute what page and figures show of a run."""
    problems = {stage.number: problem_of(stage) for stage in run.informed}
    drawn = {}
    for stage in run.informed:
        problem = problems[stage.number]
        drawn[stage.number] = [] if problem is None else controls(problem, *stage.groups)
    served = [] if run.last is None else served_by(run.last, problems[run.last.number])
    comparisons = [list(lines) for _, lines in groupby(run.methods, key=lambda line: line.key)]
    return Content(run, problems, map_of(run), drawn, served, comparisons)


def thinned(items: Sequence[T], limit: int) -> list[T]:
    """At most `limit` of the items, evenly spaced, both ends among them.

    Example:
        >>> thinned("abc", 5), thinned(range(100), 4)
        (['a', 'b', 'c'], [0, 33, 66, 99])
    """
    if len(items) <= limit:
        return list(items)
    last = max(limit - 1, 1)
    return [items[round(i * (len(items) - 1) / last)] for i in range(limit)]


def map_of(run: Run) -> ClassMap | None:
    """The map of the last selection whose centroids were kept; None if there is none."""
    stage = next((one for one in reversed(run.stages) if one.candidates is not None), None)
    if stage is None or stage.candidates is None:
        return None
    candidates, novel = stage.candidates, stage.novel
    kinds = dict.fromkeys(range(len(candidates)), REST)
    kinds |= dict.fromkeys(stage.before, BEFORE) | dict.fromkeys(stage.selection.indices, CHOSEN)
    base = thinned([u for u, kind in kinds.items() if kind != REST], MAP_POINTS // 3)
    task = [] if novel is None else thinned(range(len(novel)), MAP_POINTS // 3)
    rest = [u for u, kind in kinds.items() if kind == REST]
    columns = thinned(rest, MAP_POINTS - len(base) - len(task)) + base
    when = {name: one.number for one in reversed(run.stages) for name in one.selection.names}
    shown = [(candidates, u, kinds[u]) for u in columns]
    if novel is not None:
        shown += [(novel, n, NOVEL) for n in task]
    position = {candidates.names[u]: i for i, u in enumerate(columns)}
    neighbours = {row.name: row.neighbours for row in stage.selection.explanation.novel}
    points = []
    plane = class_map(np.stack([classes.values[i] for classes, i, _ in shown]))
    for (x, y), (classes, i, kind) in zip(plane.tolist(), shown, strict=True):
        name, group = classes.names[i], classes.groups[i] if classes.groups else ""
        chosen, near = (0, neighbours.get(name, ())) if kind == NOVEL else (when.get(name, 0), ())
        links = tuple(position[one] for one, _ in near if one in position)
        points.append(Point(x, y, name, group, kind, chosen, links))
    return ClassMap(points, len(candidates) + (0 if novel is None else len(novel)), stage)


def problem_of(stage: Stage) -> SelectionProblem | None:
    """What a selection was chosen from; None if its files do not tell.

    They do not if neither the problem nor centroids were saved, if the matrix would be large, or if
    the value of the selection cannot be computed from them.
    """
    candidates, novel, selection = stage.candidates, stage.novel, stage.selection
    known = {"similarity": "cosine"} | selection.hyperparameters
    if not stage.informed or stage.problem is not None or candidates is None:
        return stage.problem
    task = candidates if novel is None else novel
    if len(task) * len(candidates) > _MATRIX or known["similarity"] not in SIMILARITIES:
        return None
    if selection.spent not in (None, len(selection.indices)):  # costs are with the problem alone
        return None
    try:
        settings = problem_settings(selection, candidates.names)
        for name in {"similarity", "centre", "shrinkage"} & set(known):
            settings[name] = known[name]
        problem = SelectionProblem.from_centroids(
            candidates, novel, groups=candidates.groups, **settings
        )
    except (InputError, KeyError):  # limits that cannot be kept, or names of other classes
        return None
    size = max(abs(selection.value), abs(selection.value - problem.floor))
    error = abs(problem.value(selection.indices) - selection.value)
    return problem if error <= 1e-4 * size else None


def _nearest(problem: SelectionProblem, members: Sequence[int]) -> np.ndarray:
    """`[|N|]` mean similarity to the k nearest of these columns, or to all where they are fewer."""
    if not members:
        return np.full(problem.n_novel, np.nan)
    value, _ = problem.state_of(np.array(members, np.int64))
    return value[:, : len(members)].mean(axis=1)


def served_by(stage: Stage, problem: SelectionProblem | None) -> list[Served]:
    """The novel classes of a selection, in the order of its problem."""
    novel, indices = stage.selection.explanation.novel, stage.selection.indices
    similarities = [[similarity for _, similarity in row.neighbours] for row in novel]
    after = np.array([np.mean(some) if some else np.nan for some in similarities])
    before, at_random, ratios = np.full((3, len(novel)), np.nan)
    if problem is not None:
        selected = list(problem.selected)
        generator = seeded(0)  # so that these are the first sets of the control
        sets = [random_set(problem, generator) for _ in range(RATIO_DRAWS)]
        before, after = _nearest(problem, selected), _nearest(problem, selected + indices)
        at_random = np.mean([_nearest(problem, selected + one) for one in sets], axis=0)
        ratios = np.mean([np.asarray(problem.similarity_ratio(one)) for one in sets], axis=0)
    rows = []
    for n, row in enumerate(novel):
        near = (float(figure[n]) for figure in (before, after, at_random, ratios))
        known = [figure if math.isfinite(figure) else None for figure in near]
        ratio = Change(row.ratio_before, row.ratio_after, known.pop())
        rows.append(Served(row.name, ratio, Change(*known), row.neighbours))
    return rows


_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def printable(text: object) -> str:
    """Any text without the characters that no page may hold."""
    return _UNPRINTABLE.sub("\ufffd", str(text))


def gap_in_words(gap: float | None) -> str:
    """How far from the best a selection may be.

    Example:
        >>> gap_in_words(0.0), gap_in_words(0.0123), gap_in_words(None)
        ('proven optimal', 'at most 1.23 % below', 'not certified')
    """
    if gap is None:
        return "not certified"
    return f"at most {100 * gap:.3g} % below" if gap else "proven optimal"


def comparison_title(line: Line) -> str:
    """What the methods of a comparison have in common, in words."""
    key = line.key
    words = [str(key[name]) for name in ("experiment", "domain", "setting") if key.get(name)]
    words += [f"{name} = {key[name]}" for name in ("m", "head", "shots") if key.get(name)]
    return " · ".join(dict.fromkeys(words)) or "all rows"  # an experiment may be called a setting


def count(number: int, word: str) -> str:
    """A number of things.

    Example:
        >>> count(1, "class"), count(2000, "class")
        ('1 class', '2 000 classes')
    """
    ending = "" if number == 1 else "es" if word.endswith("s") else "s"
    return f"{number:,} {word}{ending}".replace(",", " ")
