"""What page and figures show, as numbers and words, computed once for both."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

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

NOVEL, CHOSEN, BEFORE, REST = "novel", "chosen", "before", "rest"


@dataclass(frozen=True)
class Point:
    """A class on the map.

    Attributes:
        x: Across, -1 to 1.
        y: Up, -1 to 1.
        name: Its name.
        group: Its family, empty where not known.
        kind: "novel", "chosen" (in this selection), "before" (in an earlier one) or "rest".
        stage: Stage in which it was chosen, 0 for never: not chosen, or there from the start.
        links: For a novel class the positions, on this map, of its nearest base classes.
    """

    x: float
    y: float
    name: str
    group: str
    kind: str
    stage: int
    links: tuple[int, ...]


@dataclass(frozen=True)
class ClassMap:
    """Points in drawing order, and how many classes there are in all."""

    points: list[Point]
    total: int
    stage: Stage


@dataclass(frozen=True)
class Change:
    """A figure of a novel class; None where it is undefined or cannot be told.

    Attributes:
        before: With the base classes there were before.
        after: With those chosen too.
        random: With random ones instead, the mean over some choices of as many classes.
    """

    before: float | None
    after: float | None
    random: float | None


@dataclass(frozen=True)
class Served:
    """A novel class: what it got.

    Attributes:
        name: Its name.
        ratio: Similarity Ratio.
        nearest: Mean similarity to its nearest base classes.
        neighbours: Its nearest base classes and their similarities.
    """

    name: str
    ratio: Change
    nearest: Change
    neighbours: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Reference:
    """What random choices of as many classes come to, and what there was before.

    Attributes:
        control: Values of h.
        ratios: `[|N|]` mean Similarity Ratio.
        nearest: `[|N|]` mean similarity to the nearest base classes.
        nearest_before: The same with the base classes there were before; NaN where none.
    """

    control: Control
    ratios: np.ndarray
    nearest: np.ndarray
    nearest_before: np.ndarray


@dataclass(frozen=True)
class Content:
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

    @property
    def last(self) -> Stage | None:
        """The last selection made with known similarities."""
        return self.run.last

    @property
    def informed(self) -> list[Stage]:
        """All selections made with known similarities."""
        return [stage for stage in self.run.stages if stage.informed]


def content_of(run: Run) -> Content:
    """Compute what page and figures show of a run."""
    problems = {stage.number: problem_of(stage) for stage in run.stages if stage.informed}
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


def thinned(count: int, limit: int) -> list[int]:
    """Positions of at most `limit` of `count` things, evenly spaced, both ends among them.

    Example:
        >>> thinned(3, 5), thinned(100, 4)
        ([0, 1, 2], [0, 33, 66, 99])
    """
    if count <= limit:
        return list(range(count))
    return [round(i * (count - 1) / (limit - 1)) for i in range(limit)] if limit > 1 else [0]


def stage_of_choice(run: Run) -> dict[str, int]:
    """By name, the stage in which each base class was chosen."""
    return {name: stage.number for stage in reversed(run.stages) for name in stage.selection.names}


def map_of(run: Run) -> ClassMap | None:
    """The map of the last selection whose centroids were kept; None if there is none."""
    stage = next((one for one in reversed(run.stages) if one.candidates is not None), None)
    if stage is None or stage.candidates is None:
        return None
    candidates, novel = stage.candidates, stage.novel
    chosen, before = set(stage.selection.indices), set(stage.before)
    kinds = [
        CHOSEN if u in chosen else BEFORE if u in before else REST for u in range(len(candidates))
    ]
    base = [u for u, kind in enumerate(kinds) if kind != REST]
    rest = [u for u, kind in enumerate(kinds) if kind == REST]
    count = 0 if novel is None else len(novel)
    shown_novel = thinned(count, MAP_POINTS // 3)
    shown_base = [base[i] for i in thinned(len(base), MAP_POINTS // 3)]
    room = MAP_POINTS - len(shown_novel) - len(shown_base)
    shown_rest = [rest[i] for i in thinned(len(rest), room)]
    columns = shown_rest + shown_base
    parts = [candidates.values[columns]]
    if novel is not None:
        parts.append(novel.values[shown_novel])
    plane = class_map(np.concatenate(parts))
    when = stage_of_choice(run)
    position = {candidates.names[u]: i for i, u in enumerate(columns)}
    links = {
        row.name: tuple(position[name] for name, _ in row.neighbours if name in position)
        for row in stage.selection.explanation.novel
    }
    points = []
    for (x, y), u in zip(plane, columns, strict=False):
        name, group = candidates.names[u], candidates.groups[u] if candidates.groups else ""
        points.append(Point(float(x), float(y), name, group, kinds[u], when.get(name, 0), ()))
    for (x, y), n in zip(plane[len(columns) :], shown_novel, strict=True):
        assert novel is not None
        name, group = novel.names[n], novel.groups[n] if novel.groups else ""
        points.append(Point(float(x), float(y), name, group, NOVEL, 0, links.get(name, ())))
    return ClassMap(points, len(candidates) + count, stage)


def problem_of(stage: Stage) -> SelectionProblem | None:
    """What a selection was chosen from; None if its files do not tell.

    They do not if neither the problem nor centroids were saved, if the matrix would be large, or if
    the value of the selection cannot be computed from them.
    """
    candidates, novel, selection = stage.candidates, stage.novel, stage.selection
    if not stage.informed or stage.problem is not None:
        return stage.problem
    if candidates is None:
        return None
    if len(candidates if novel is None else novel) * len(candidates) > _MATRIX:
        return None
    similarity = selection.hyperparameters.get("similarity", "cosine")
    if similarity not in SIMILARITIES:
        return None
    try:
        problem = SelectionProblem.from_centroids(
            candidates.values,
            None if novel is None else novel.values,
            names=candidates.names,
            novel_names=None if novel is None else novel.names,
            similarity=similarity,
            groups=candidates.groups,
            **problem_settings(selection, candidates.names),
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
        drawn: list[float | None] = [None, None, None]
        if reference is not None:
            figures = (reference.ratios, reference.nearest, reference.nearest_before)
            drawn = [_finite(figure[n]) for figure in figures]
        similarities = [similarity for _, similarity in row.neighbours]
        mean = math.fsum(similarities) / len(similarities) if similarities else None
        ratio = Change(row.ratio_before, row.ratio_after, drawn[0])
        rows.append(Served(row.name, ratio, Change(drawn[2], mean, drawn[1]), row.neighbours))
    return rows


def short(name: str, group: str = "") -> str:
    """A name without its family, where it begins with it.

    Example:
        >>> short("Greek: α", "Greek"), short("Greek: α")
        ('α', 'Greek: α')
    """
    prefix = f"{group}: "
    return name[len(prefix) :] if group and name.startswith(prefix) else name


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


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
