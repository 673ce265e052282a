"""Run one trial: choose classes, train on them, judge the network on the novel classes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

import fsl_basesel as fb
from fsl_basesel import controls
from fsl_basesel.data import NovelTask
from fsl_basesel.errors import InputError
from fsl_basesel.report.record import SELECTION_FILE
from fsl_basesel.selectors.base import seeded
from lightning_modules.callbacks import ColdStartSelection, NovelEvaluation
from lightning_modules.classifier import BaseClassifier
from lightning_modules.data import BaseClassDataModule, step_seed
from lightning_modules.experiments.first_model import (
    FirstCentroids,
    first_centroids,
    selection_support,
)
from lightning_modules.experiments.plan import FORMAT, Trial, digest
from lightning_modules.experiments.store import ResultStore
from lightning_modules.experiments.training import class_accuracies, data_module, train

SHARES = (1, 3)
"""Values of K at which every selection is compared with the proven bound."""

NOT_OF_THE_NETWORK = (
    "pretraining", "setting", "method", "k", "lam", "m", "schedule", "draw", "similarity",
    "control",
)  # fmt: skip
"""Settings of a trial that only say how its classes are chosen."""


def run_trial(trial: Trial, store: ResultStore) -> dict[str, Any]:
    """The result of a trial, as plain types.

    Returns:
        `accuracy`: by head and shots, one for each support set. `per_class`: the same for each
        novel class, where asked for. `classes`: numbers of the base classes in order of choice.
        `value`, `upper_bound`, `gap`: of the (last) selection; None for methods without K.
        `shares`: h of the base classes at lam = 0 as a share of its proven bound, both counted from
        the floor, by K, with the paper's similarity whatever the trial's.
        `selection_seconds`, `seconds`.
    """
    start = time.perf_counter()
    data = data_module(trial.data, trial.seed, trial.training, "candidates")
    novel = data.task
    means = first_centroids(trial, data, store)
    if trial.schedule is None:
        selection = _control(trial, means) if trial.control else _selection(trial, means)
        if trial.control == controls.POOL:
            data.max_images = _images_of(data, trial.m)
        chosen = selection.indices
        judged = _judged_once(trial, data, chosen, store)
    else:
        with tempfile.TemporaryDirectory() as name:
            _, module = _cold_start(trial, data, Path(name))
            last = SELECTION_FILE.format(len(trial.schedule))
            selection = fb.Selection.load(Path(name) / last)
        chosen = list(data.class_numbers)
        judged = _judged(trial, module, novel)
    certified = trial.k is not None
    return judged | {
        "classes": chosen,
        "value": selection.value if certified else None,
        "upper_bound": selection.upper_bound if certified else None,
        "gap": selection.gap if certified else None,
        "shares": _shares(trial, means, chosen),
        "selection_seconds": selection.seconds,
        "seconds": time.perf_counter() - start,
    }


def _judged_once(
    trial: Trial, data: BaseClassDataModule, chosen: list[int], store: ResultStore
) -> dict[str, Any]:
    """Accuracies of a network trained on these classes; methods that agree share it.

    Labels go by the order of the pool, so that the order of choice has no part in the network.
    """
    settings = {
        name: value for name, value in trial.settings().items() if name not in NOT_OF_THE_NETWORK
    }
    if data.max_images is not None:
        settings["max_images"] = data.max_images
    key = digest(settings | {"format": FORMAT, "classes": sorted(chosen)})

    def judged() -> dict[str, Any]:
        data.add_classes(sorted(chosen))
        epochs = trial.training["epochs"]
        module = train(data, trial.model, trial.training, trial.seed, epochs)
        return _judged(trial, module, data.task)

    return store.shared(f"network-{key}", judged)


def _judged(trial: Trial, module: BaseClassifier, novel: NovelTask) -> dict[str, Any]:
    """Accuracies on the novel classes, by head and shots."""
    right = class_accuracies(module, novel, trial.heads, trial.shots, trial.supports)

    def by_shots(axis: int) -> dict[str, Any]:
        return {
            head: {str(shots): found.mean(axis).tolist() for shots, found in results.items()}
            for head, results in right.items()
        }

    judged = {"accuracy": by_shots(1)}
    return judged | {"per_class": by_shots(0)} if trial.per_class else judged


def _selection(trial: Trial, means: FirstCentroids) -> fb.Selection:
    # Methods without K are chosen by something else; the problem still tells them m.
    problem = means.problem(
        trial.m, trial.k or 1, trial.lam or 0.0, trial.setting == "general", trial.similarity
    )
    seed = step_seed(trial.seed, "draw", trial.draw)
    return fb.select(problem, trial.method, seed=seed, certify=trial.k is not None)


def _control(trial: Trial, means: FirstCentroids) -> fb.Selection:
    """Classes that are drawn without looking at similarities; see `fsl_basesel.controls`."""
    problem = means.problem(trial.m, 1, 0.0)
    if trial.control == controls.POOL:
        everything = list(range(problem.n_candidates))
        return fb.Selection.of(problem.replace(m=len(everything)), everything, method="random")
    inside = controls.task_domain(problem, means.candidates.groups, means.novel.groups)
    if inside is None:
        raise InputError(
            "Expected some candidates, but not all, to share a group with the novel classes for "
            "control 'domain' but got none or all; leave it out for this data set."
        )
    generator = seeded(step_seed(trial.seed, "draw", trial.draw))
    drawn = controls.random_set(problem, generator, inside)
    return fb.Selection.of(problem, drawn, method="random")


def _images_of(data: BaseClassDataModule, m: int) -> int:
    """Training images that `m` classes of the pool have, in the mean."""
    pool = data.pool
    pool.expand(range(len(pool)))
    return round(m * (len(pool.training_set()) / len(pool) - data.val_per_class))


def _shares(trial: Trial, means: FirstCentroids, chosen: list[int]) -> dict[str, float]:
    shares = {}
    for k in SHARES:
        problem = means.problem(trial.m, k, 0.0)
        bound = fb.select(problem, "auto", seed=0).upper_bound
        assert bound is not None
        shares[str(k)] = (problem.value(chosen) - problem.floor) / (bound - problem.floor)
    return shares


def _cold_start(
    trial: Trial, data: BaseClassDataModule, folder: Path, others: Sequence[pl.Callback] = ()
) -> tuple[ColdStartSelection, BaseClassifier]:
    """All stages in one fit; of the novel task `data` then has what a selection may see alone."""
    assert trial.schedule is not None
    data.novel = selection_support(data.task, max(trial.shots))
    callback = ColdStartSelection(
        trial.schedule,
        trial.training["epochs"],
        trial.k or 1,
        trial.lam or 0.0,
        trial.method,
        similarity=trial.similarity,
        certify=trial.k is not None,
        seed=trial.seed,
        dirpath=folder,
        verbose=False,
    )
    module = train(data, trial.model, trial.training, trial.seed, None, [*others, callback])
    return callback, module


def cold_start_run(trial: Trial, folder: Path) -> tuple[ColdStartSelection, NovelEvaluation]:
    """Train in the stages of a trial, each evaluated on five draws, with all files in `folder`.

    The callbacks that are returned know what was chosen and measured.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = data_module(trial.data, trial.seed, trial.training, "candidates")
    evaluation = NovelEvaluation(shots=trial.shots[0], episodes=5, dirpath=folder, verbose=False)
    selection, _ = _cold_start(trial, data, folder, [evaluation])
    return selection, evaluation
