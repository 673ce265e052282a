"""What an experiment consists of: its YAML file, and the trials that follow from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fsl_basesel import selectors
from fsl_basesel.controls import DOMAIN, POOL, RANDOM
from fsl_basesel.errors import InputError
from fsl_basesel.similarity import SIMILARITIES
from lightning_modules.settings import Settings, merged, read

_ROOT = Path(__file__).parents[2]
_SHIPPED = _ROOT / "fsl_basesel" / "configs"
FOLDER = (_SHIPPED if _SHIPPED.is_dir() else _ROOT / "configs") / "reproduce"
"""Where experiments are looked up by name: in the installed package, else in the project."""

FORMAT = 2
"""Raised when a change of the code makes earlier results incomparable."""

KINDS = ("table", "study")
SETTINGS = ("pretrained", "general", "cold-start")
MIXED = ("data", "model", "training", "pretraining")
"""What a file that extends another may change in part."""


@dataclass(frozen=True)
class Trial:
    """One trained model: all that its result depends on, and nothing else.

    Attributes:
        data: the data module, as `class_path` and `init_args`.
        model: arguments of `BaseClassifier`.
        training: of the base model: `epochs`, `batch_size`, arguments of the `trainer`, and
            `min_images`, which it sees all in all even where its classes have fewer.
        pretraining: the same of the model that selections are made with.
        setting: "pretrained", "general" or "cold-start".
        method: name of the selection method.
        k: K of the objective; None where the method has none.
        lam: lambda of the objective; None where the method has none.
        m: number of base classes.
        schedule: base classes in each stage of a cold start; else None.
        draw: tells repeated draws of a random method apart.
        seed: seed of everything that is drawn.
        shots: support images of a novel class, one evaluation for each number.
        supports: disjoint support sets to average over.
        heads: few-shot classifiers.
        per_class: keep the accuracy of every novel class.
        similarity: name of the similarity that classes are chosen by.
        control: "domain": random classes of the task's own groups, then others if these are fewer
            than `m`; "pool": all candidates, with about as many images in all as `m` classes have.
            Both with method "random"; see `fsl_basesel.controls`.
    """

    data: Settings
    model: Settings
    training: Settings
    pretraining: Settings
    setting: str
    method: str
    k: int | None
    lam: float | None
    m: int
    schedule: tuple[int, ...] | None
    draw: int
    seed: int
    shots: tuple[int, ...]
    supports: int
    heads: tuple[str, ...]
    per_class: bool = False
    similarity: str = "cosine"
    control: str = ""

    def settings(self) -> Settings:
        """All settings as plain types; newer ones only where they are not the default.

        Results from before there were such settings keep their names that way.
        """
        settings = asdict(self)
        for name, default in (("similarity", "cosine"), ("control", "")):
            if settings[name] == default:
                del settings[name]
        return settings

    @property
    def key(self) -> str:
        """Name of the trial's files."""
        return digest({"format": FORMAT} | self.settings())


@dataclass(frozen=True)
class TableRow:
    """A trial in a table: data set and label are for people."""

    dataset: str
    label: str
    trial: Trial


@dataclass(frozen=True)
class Experiment:
    """An experiment as its YAML file describes it.

    Attributes:
        name: name of the file.
        title: what it shows.
        kind: "table" of methods or preliminary "study".
        setting: how base classes are selected, unless a method says otherwise.
        data: the data module, as `class_path` and `init_args`.
        datasets: by name, what differs: `init_args`, `methods`, `m`, and `paper`, the table of the
            paper to show beside.
        model: arguments of `BaseClassifier`.
        training, pretraining: see `Trial`.
        methods: by label, `method` and its `k`, `lam`, `similarity`, `draw`, `control`, `setting`
            and `schedule`.
        m: numbers of base classes.
        shots, supports, heads: see `Trial`.
        repeats: seeds, each with classes, first model and test images of its own.
        seeds: seeds of the repeats; 0, 1, 2 ... by default.
        share_split: all repeats have the classes and the first model of seed 0.
        sets: random base sets of a study.
        decide: comparisons declared before the first run; see `experiments.decision`.
    """

    name: str
    title: str
    data: Settings
    model: Settings
    training: Settings
    pretraining: Settings
    methods: dict[str, Settings]
    kind: str = "table"
    setting: str = "pretrained"
    datasets: dict[str, Settings] = field(default_factory=dict)
    m: tuple[int, ...] = (100,)
    shots: tuple[int, ...] = (5, 20)
    supports: int = 1
    heads: tuple[str, ...] = ("NearestCentroid", "SoftmaxRegression")
    repeats: int = 10
    share_split: bool = False
    sets: int = 60
    seeds: tuple[int, ...] = ()
    decide: Settings = field(default_factory=dict)

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """One seed for each repeat."""
        return (self.seeds or tuple(range(self.repeats)))[: self.repeats]

    def rows(self) -> list[TableRow]:
        """Every trial of the experiment, repeat after repeat so that tables fill up evenly."""
        seeds, methods = self.all_seeds, self.methods
        if self.kind == "study":
            seeds = (0,)
            methods = {
                f"set {draw}": {"method": "random", "draw": draw} for draw in range(self.sets)
            }
        return [
            self._row(name, change, label, how, m, seed)
            for seed in seeds
            for name, change in self.datasets.items()
            for m in change.get("m", self.m)
            for label, how in (methods | change.get("methods", {})).items()
            if m in how.get("m", [m])
        ]

    def _row(
        self, dataset: str, change: Settings, label: str, how: Settings, m: int, seed: int
    ) -> TableRow:
        method, setting = how["method"], how.get("setting", self.setting)
        blind = is_blind(method)  # so settings share its trials
        arguments = self.data.get("init_args", {}) | change.get("init_args", {})
        arguments["split_seed"] = 0 if self.share_split else seed
        arguments["shots"] = self.supports * max(self.shots)
        staged = setting == "cold-start" and not blind
        schedule = how.get("schedule", [6, 12, 25, 50, 100]) if staged else None
        if schedule is not None and schedule[-1] != m:
            raise InputError(
                f"Expected the schedule of {label!r} in {self.name} to end with m = {m} but got "
                f"{schedule}."
            )
        uses_k = selectors.selector_class(method).uses_k
        trial = Trial(
            data={"class_path": self.data["class_path"], "init_args": arguments},
            model=self.model,
            training=self.training,
            pretraining=self.pretraining,
            setting="pretrained" if blind else setting,
            method=method,
            k=how.get("k", 1) if uses_k else None,
            lam=float(how.get("lam", 0.0)) if uses_k else None,
            m=m,
            schedule=None if schedule is None else tuple(schedule),
            draw=how.get("draw", 0),
            seed=seed,
            shots=tuple(self.shots),
            supports=self.supports,
            heads=tuple(self.heads),
            per_class=self.kind == "study",
            similarity="cosine" if blind else how.get("similarity", "cosine"),
            control=how.get("control", ""),
        )
        return TableRow(dataset, label, trial)


def is_blind(method: str) -> bool:
    """Whether a method draws its classes and looks neither at K and lambda nor at centroids."""
    contract = selectors.selector_class(method)
    return contract.randomized and not (contract.uses_k or contract.needs_centroids)


def digest(settings: Mapping[str, Any]) -> str:
    """A short name for settings: equal for equal ones, whatever their order.

    Example:
        >>> digest({"a": 1, "b": [2.0]}) == digest({"b": [2.0], "a": 1})
        True
    """
    text = json.dumps(settings, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def names() -> list[str]:
    """Experiments there are, by name."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str, data_root: str | None = None, **changes: Any) -> Experiment:
    """The experiment of this name in `configs/reproduce`, or in this YAML file.

    `data_root` stands for `{root}` in the file; `changes` that are not None replace its settings.

    Example:
        >>> experiment = load("pretrained-glyphs", repeats=2)
        >>> experiment.setting, experiment.repeats, len(experiment.datasets)
        ('pretrained', 2, 3)
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise InputError(
            f"Expected an experiment ({', '.join(names())}) or a YAML file but got {name!r}."
        )
    settings = _read(path)
    if "seeds" in settings:
        settings["repeats"] = len(settings["seeds"])
    settings |= {key: value for key, value in changes.items() if value is not None}
    settings = _rooted(settings, data_root, path.stem)
    settings = {
        key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()
    }
    try:
        experiment = Experiment(name=path.stem, **settings)
    except TypeError as error:
        raise InputError(f"Expected {path} to describe an experiment: {error}.") from None
    _check(experiment)
    return experiment


def _check(experiment: Experiment) -> None:
    def expect(holds: bool, what: str, got: object) -> None:
        if not holds:
            raise InputError(f"Expected {what} in experiment {experiment.name} but got {got!r}.")

    expect(experiment.kind in KINDS, f"`kind` to be one of {', '.join(KINDS)}", experiment.kind)
    expect(experiment.repeats >= 1, "`repeats` of at least 1", experiment.repeats)
    seeds = experiment.seeds
    if seeds:
        numbers = all(isinstance(seed, int) and seed >= 0 for seed in seeds)
        different = numbers and len(set(seeds)) == len(seeds)
        expect(different, "`seeds` to be different integers of at least 0", seeds)
        most = f"`repeats` of at most {len(seeds)}, the number of `seeds`,"
        expect(experiment.repeats <= len(seeds), most, experiment.repeats)
    expect(experiment.supports >= 1, "`supports` of at least 1", experiment.supports)
    expect(len(experiment.datasets) > 0, "at least one data set", experiment.datasets)
    for change in experiment.datasets.values():
        for label, how in (experiment.methods | change.get("methods", {})).items():
            known = how.get("method") in selectors.methods()
            expect(known, f"the method of {label!r} to be known", how)
            setting = how.get("setting", experiment.setting)
            expect(setting in SETTINGS, f"`setting` of {', '.join(SETTINGS)}", setting)
            if "control" in how:
                random = how["method"] == RANDOM and how["control"] in (DOMAIN, POOL)
                expect(random, f"`control` {DOMAIN} or {POOL} with method {RANDOM}", how)
            name = how.get("similarity", "cosine")
            expect(name in SIMILARITIES, f"`similarity` of {', '.join(SIMILARITIES)}", name)
    if not experiment.decide:
        return
    declared = experiment.decide
    parts = set(declared) == {"comparisons", "head", "shots"}
    expect(parts, "`decide` with comparisons, head, shots", declared)
    expect(declared["head"] in experiment.heads, "`decide` to name a head", declared["head"])
    expect(declared["shots"] in experiment.shots, "`decide` to name shots", declared["shots"])
    expect(len(declared["comparisons"]) > 0, "at least one comparison", declared["comparisons"])
    for pair in declared["comparisons"]:
        there = (
            set(pair) == {"better", "than", "m"}
            and {pair["better"], pair["than"]} <= set(experiment.methods)
            and pair["m"] in experiment.m
        )
        expect(there, "comparisons with `better` and `than`, two of its methods, and `m`", pair)


def _read(path: Path, above: tuple[Path, ...] = ()) -> Settings:
    """A YAML file on top of the one it `extends`; `above` are the files that extend it."""
    settings = read(path)
    name = settings.pop("extends", None)
    if name is None:
        return settings
    found = next((at for at in (path.parent / name, FOLDER / name) if at.is_file()), None)
    if found is None:
        shared = ", ".join(sorted(file.name for file in FOLDER.glob("*.yml")))
        raise InputError(
            f"Expected `extends` in {path} to name a file beside it or one of {shared} but there "
            f"is no {name}; correct the name."
        )
    chain = (*above, path.resolve())
    if found.resolve() in chain:
        raise InputError(
            f"Expected `extends` to end somewhere but {path} extends {name}, which leads back to "
            "it; take one `extends` out."
        )
    below = _read(found, chain)
    # Methods and data sets are replaced as a whole.
    mixed = {name: settings[name] for name in MIXED if name in settings}
    return below | settings | {name: merged(below, mixed)[name] for name in mixed}


def _rooted(settings: Settings, root: str | None, name: str) -> Settings:
    """Settings with the data folder put in."""
    text = json.dumps(settings)
    if "{root}" not in text:
        return settings
    if root is None:
        raise InputError(
            f"Expected --data-root, the folder with the images, as {name} needs them; "
            f"{name.removesuffix('-glyphs')}-glyphs runs without, where there is one."
        )
    if not Path(root).is_dir():
        raise InputError(f"Expected --data-root to be a folder but got {root!r}.")
    return json.loads(text.replace("{root}", json.dumps(str(root))[1:-1]))


def each_trial(rows: Sequence[TableRow]) -> list[Trial]:
    """Every trial once, in the order of the rows."""
    return list({row.trial.key: row.trial for row in rows}.values())
