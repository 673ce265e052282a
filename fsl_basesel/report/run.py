"""A run's folder as the report reads it: selections, centroids, pictures, accuracies, settings."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import reading
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.report import record
from fsl_basesel.report.paired import Estimate, Line, summarise
from fsl_basesel.selection import Selection
from fsl_basesel.similarity import ClassCentroids

QUEUE = "classes-to-label.json"
"""The queue of a run in which people label the chosen classes; see `LabellingQueue`."""

UNKNOWN = ("not known yet",)
"""Novel classes of a random first stage, in which no similarities are known."""


@dataclass(frozen=True)
class Stage:
    """One selection of a run, numbered from 1, with what it was chosen from if that was saved.

    `candidates` and `novel` are the centroids it was made with; `novel` is None in General
    Selection too.
    """

    number: int
    selection: Selection
    candidates: ClassCentroids | None = None
    novel: ClassCentroids | None = None
    problem: SelectionProblem | None = None

    @property
    def informed(self) -> bool:
        """Whether similarities were known; the first classes of a cold start are random."""
        return tuple(row.name for row in self.selection.explanation.novel) != UNKNOWN

    @property
    def general(self) -> bool:
        """Whether the candidates themselves stood for the novel classes."""
        return self.candidates is not None and self.novel is None

    @property
    def groups(self) -> tuple[Sequence[str | None] | None, Sequence[str] | None]:
        """Groups of the candidates and of the novel classes, where they are known."""
        sides = (self.problem, self.candidates, self.novel)
        given, own, novel = (getattr(side, "groups", None) for side in sides)
        return given or own, novel

    @property
    def before(self) -> list[int]:
        """Columns that were base classes already."""
        return list(self.selection.hyperparameters.get("selected", ()))


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of one head after one stage, with its number of base classes."""

    head: str
    stage: int
    base_classes: int
    accuracy: Estimate


@dataclass(frozen=True)
class Protocol:
    """A file `novel_<protocol>.csv`: how episodes are made, and what was measured."""

    ways: int
    shots: int
    episodes: int
    rows: list[Accuracy]

    @property
    def title(self) -> str:
        """The protocol in words."""
        return f"{self.ways}-way {self.shots}-shot"

    @property
    def best(self) -> Accuracy:
        """The best head after the last stage."""
        return max(self.rows, key=lambda row: (row.stage, row.accuracy.mean))


@dataclass(frozen=True)
class Run:
    """The contents of a run's folder; what is absent is empty or None.

    `waiting` has the classes whose images people are to put into a folder, as in the queue:
    `class`, `folder`, `images` that are there and how many are `needed`.
    """

    name: str
    stages: list[Stage]
    pictures: record.Pictures | None = None
    protocols: list[Protocol] = field(default_factory=list)
    methods: list[Line] = field(default_factory=list)
    configuration: tuple[str, str] | None = None
    waiting: list[dict[str, Any]] = field(default_factory=list)

    @property
    def informed(self) -> list[Stage]:
        """All selections made with known similarities."""
        return [stage for stage in self.stages if stage.informed]

    @property
    def last(self) -> Stage | None:
        """The last of them."""
        return self.informed[-1] if self.informed else None


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read a run's folder; one with nothing to report or a damaged file is refused."""
    path = Path(folder)
    if not path.is_dir():
        what = "a file" if path.exists() else "not there"
        raise InputError(f"Expected {str(path)!r} to be the folder of a run but it is {what}.")
    stages = [_stage(path, number, file) for number, file in _selection_files(path)]
    protocols = [one for file in sorted(path.glob("novel_*.csv")) if (one := _protocol(file))]
    protocols.sort(key=lambda protocol: (-protocol.ways, protocol.shots))
    results = path / "results.csv"
    methods = summarise(_rows(results)) if results.is_file() else []
    if not (stages or methods):
        raise InputError(
            f"Expected selections in {str(path)!r} but found no selection-stage-1.json, "
            "selection.json or results.csv; name the folder of a run of `fsl-basesel fit`, or save "
            "one there with `fsl-basesel select ... --out FOLDER/selection.json`."
        )
    pictures = path / record.PICTURES
    return Run(
        name=path.resolve().name or str(path),
        stages=stages,
        pictures=record.load_pictures(pictures) if pictures.is_file() else None,
        protocols=protocols,
        methods=methods,
        configuration=_configuration(path),
        waiting=_waiting(path / QUEUE),
    )


def _waiting(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    keys = ("class", "folder", "images", "needed")
    with reading(file, "a list of classes to label"):
        content = json.loads(file.read_text("utf-8", "replace"))
        return [{key: entry[key] for key in keys} for entry in content["waiting"]]


def _selection_files(path: Path) -> list[tuple[int, Path]]:
    """The selections of the stages, else the only one."""
    numbered = []
    for file in path.glob("selection-stage-*.json"):
        if match := re.fullmatch(r"selection-stage-(\d+)\.json", file.name):
            numbered.append((int(match[1]), file))
    usual = path / "selection.json"
    return sorted(numbered) or ([(1, usual)] if usual.is_file() else [])


def _stage(path: Path, number: int, file: Path) -> Stage:
    selection = Selection.load(file)
    classes = path / record.CLASSES_FILE.format(number)
    problem = path / record.PROBLEM_FILE.format(number)
    candidates, novel = record.load_classes(classes) if classes.is_file() else (None, None)
    known = record.load_problem(problem, selection) if problem.is_file() else None
    return Stage(number, selection, candidates, novel, known)


def _protocol(file: Path) -> Protocol | None:
    """The accuracies in a file of `NovelEvaluation`: the last of each stage and head."""
    latest: dict[tuple[int, str], Accuracy] = {}
    rows = _rows(file)
    if not rows:
        return None
    with reading(file, "written by NovelEvaluation"):
        names = ("ways", "shots", "episodes")
        ways, shots, episodes = (int(rows[0].get(name) or 0) for name in names)
        for row in rows:
            stage, size = int(row["stage"]), int(row["base_classes"])
            found = Estimate(episodes, float(row["accuracy"]), float(row["ci95"]))
            latest[stage, row["head"]] = Accuracy(row["head"], stage, size, found)
    return Protocol(ways, shots, episodes, list(latest.values()))


def _rows(file: Path) -> list[dict[str, Any]]:
    with reading(file, "a CSV file"), open(file, encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def _configuration(path: Path) -> tuple[str, str] | None:
    """Name and text of the settings; those of the last start where there were several."""
    starts = path.glob("metrics/version_*/config.yaml")
    latest = sorted(starts, key=lambda file: file.stat().st_mtime, reverse=True)
    for file in [path / "settings.yaml", path / "config.yaml", *latest]:
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            return str(file.relative_to(path)), text
    return None
