"""What page and figures show, as numbers and words, computed once for both."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from fsl_basesel.controls import Control, controls, random_choices
from fsl_basesel.errors import InputError
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.report.paired import Line
from fsl_basesel.report.projection import class_map
from fsl_basesel.report.record import problem_settings
from fsl_basesel.report.run import Run, Stage
from fsl_basesel.similarity import SIMILARITIES

MAP_POINTS = 1000
"""Points of a map, at most."""
RANDOM_DRAWS = 100
"""Random choices whose value a selection is compared with."""
RATIO_DRAWS = 20
"""Random choices whose figures of novel classes are shown: the first of them."""
_MATRIX = 2 * 10**7

T = TypeVar("T")
KINDS = NOVEL, CHOSEN, BEFORE, REST = "novel", "chosen", "before", "rest"


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


class Reference(NamedTuple):
    """What random choices of as many classes reach, and what there was before.

    `control` has the values of h. The others are `[|N|]`: the mean Similarity Ratio, the mean
    similarity to the nearest base classes, and the latter without a choice (NaN without classes).
    """

    control: Control
    ratios: np.ndarray
    nearest: np.ndarray
    nearest_before: np.ndarray


class Content(NamedTuple):
    """What a run has to show.

    Attributes:
        run: Its files.
        problems: By number of a stage, what was chosen from; None if that cannot be told.
        map: The map of classes, None without centroids.
        references: By number of a stage, what random choices reach; None if that cannot be told.
        served: The novel classes of the last selection, empty without one.
        comparisons: The lines of the table of methods, those to compare together.
    """

    run: Run
    problems: dict[int, SelectionProblem | None]
    map: ClassMap | None
    references: dict[int, Reference | None]
    served: list[Served]
    comparisons: list[list[Line]]


def content_of(run: Run) -> Content:
    """Compute what page and figures show of a run."""
    problems = {stage.number: problem_of(stage) for stage in run.informed}
    references = {
        number: None if problem is None else reference_of(problem)
        for number, problem in problems.items()
    }
    last = run.last
    served = [] if last is None else served_by(last, references[last.number])
    comparisons: dict[str, list[Line]] = {}
    for line in run.methods:
        comparisons.setdefault(json.dumps(line.key), []).append(line)
    return Content(run, problems, map_of(run), references, served, list(comparisons.values()))


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
    rows = [] if novel is None else [(novel, n, NOVEL) for n in range(len(novel))]
    base = [(candidates, u, kind) for u, kind in sorted(kinds.items()) if kind != REST]
    rest = [(candidates, u, REST) for u, kind in sorted(kinds.items()) if kind == REST]
    shown_novel, shown_base = (thinned(some, MAP_POINTS // 3) for some in (rows, base))
    columns = thinned(rest, MAP_POINTS - len(shown_novel) - len(shown_base)) + shown_base
    shown = columns + shown_novel
    when = {name: one.number for one in reversed(run.stages) for name in one.selection.names}
    position = {candidates.names[u]: i for i, (_, u, _) in enumerate(columns)}
    links = {
        row.name: tuple(position[name] for name, _ in row.neighbours if name in position)
        for row in stage.selection.explanation.novel
    }
    points = []
    plane = class_map(np.stack([classes.values[i] for classes, i, _ in shown]))
    for (x, y), (classes, i, kind) in zip(plane.tolist(), shown, strict=True):
        name, group = classes.names[i], classes.groups[i] if classes.groups else ""
        of_base = kind != NOVEL
        chosen, near = (when.get(name, 0), ()) if of_base else (0, links.get(name, ()))
        points.append(Point(x, y, name, group, kind, chosen, near))
    return ClassMap(points, len(candidates) + len(rows), stage)


def problem_of(stage: Stage) -> SelectionProblem | None:
    """What a selection was chosen from; None if its files do not tell.

    They do not if neither the problem nor centroids were saved, if the matrix would be large, or if
    the value of the selection cannot be computed from them.
    """
    candidates, novel, selection = stage.candidates, stage.novel, stage.selection
    similarity = selection.hyperparameters.get("similarity", "cosine")
    if not stage.informed or stage.problem is not None or candidates is None:
        return stage.problem
    task = candidates if novel is None else novel
    if len(task) * len(candidates) > _MATRIX or similarity not in SIMILARITIES:
        return None
    try:
        settings = problem_settings(selection, candidates.names)
        problem = SelectionProblem.from_centroids(
            candidates, novel, similarity=similarity, groups=candidates.groups, **settings
        )
    except (InputError, KeyError):  # limits that need costs, or names of other classes
        return None
    close = math.isclose(problem.value(selection.indices), selection.value, rel_tol=1e-4)
    return problem if close else None


def reference_of(problem: SelectionProblem) -> Reference:
    """What random choices reach."""
    control = controls(problem, draws=RANDOM_DRAWS)[0]
    sets = random_choices(problem, RATIO_DRAWS)  # the first ones of the control
    ratios = np.mean([np.asarray(problem.similarity_ratio(one)) for one in sets], axis=0)
    nearest = [_nearest(problem, [*problem.selected, *one]) for one in sets]
    before = _nearest(problem, list(problem.selected))
    return Reference(control, ratios, np.mean(nearest, axis=0), before)


def _nearest(problem: SelectionProblem, members: list[int]) -> np.ndarray:
    """`[|N|]` mean similarity to the k nearest of these columns, or to all where they are fewer."""
    if not members:
        return np.full(problem.n_novel, np.nan)
    values = problem.by_candidate[members]
    depth = min(problem.k, len(values))
    return np.partition(values, len(values) - depth, axis=0)[-depth:].mean(axis=0)


def served_by(stage: Stage, reference: Reference | None) -> list[Served]:
    """The novel classes in the order of the problem."""
    rows = []
    for n, row in enumerate(stage.selection.explanation.novel):
        ratio = nearest = before = None
        if reference is not None:
            ratio, nearest, before = (
                float(figure[n]) if math.isfinite(figure[n]) else None for figure in reference[1:]
            )
        similarities = [similarity for _, similarity in row.neighbours]
        mean = math.fsum(similarities) / len(similarities) if similarities else None
        changes = Change(row.ratio_before, row.ratio_after, ratio), Change(before, mean, nearest)
        rows.append(Served(row.name, *changes, row.neighbours))
    return rows


def short(name: str, group: str = "") -> str:
    """A name without its family, where it begins with it.

    Example:
        >>> short("Greek: α", "Greek"), short("Greek: α")
        ('α', 'Greek: α')
    """
    prefix = f"{group}: "
    return name[len(prefix) :] if group and name.startswith(prefix) else name


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
    if gap == 0:
        return "proven optimal"
    return f"at most {100 * gap:.2g} % below" if gap < 0.01 else f"at most {100 * gap:.3g} % below"


def spaced(head: str) -> str:
    """Words of a class name.

    Example:
        >>> spaced("NearestCentroid"), spaced("MAML")
        ('Nearest centroid', 'MAML')
    """
    return "".join(
        f" {c.lower()}" if c.isupper() and i and head[i - 1].islower() else c
        for i, c in enumerate(head)
    )


def comparison_title(line: Line) -> str:
    """What the methods of a comparison have in common, in words."""
    key = line.key
    known = [str(key[name]) for name in ("experiment", "domain", "setting") if key.get(name)]
    words = list(dict.fromkeys(known))  # an experiment may be called like its setting
    if key.get("m") is not None:
        words.append(f"m = {key['m']}")
    if key.get("head"):
        words.append(spaced(str(key["head"])))
    if key.get("shots") is not None:
        words.append(f"{key['shots']}-shot")
    return " · ".join(words) or "all rows"


def count(number: int, word: str) -> str:
    """A number of things.

    Example:
        >>> count(1, "class"), count(2000, "class")
        ('1 class', '2 000 classes')
    """
    ending = "" if number == 1 else "es" if word.endswith("s") else "s"
    return f"{number:,} {word}{ending}".replace(",", " ")
