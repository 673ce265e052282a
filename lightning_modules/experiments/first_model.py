"""The model that selections are made with: trained once a seed, its centroids shared by trials."""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

import torch

import fsl_basesel as fb
from fsl_basesel.data import NovelTask
from fsl_basesel.files.writing import whole_file
from fsl_basesel.report.record import CLASSES_FILE, load_classes, save_classes
from fsl_basesel.similarity import ClassCentroids
from lightning_modules.classifier import BaseClassifier
from lightning_modules.data import BaseClassDataModule
from lightning_modules.experiments.plan import FORMAT, Trial, digest
from lightning_modules.experiments.store import ResultStore
from lightning_modules.experiments.training import data_module, train
from lightning_modules.features import image_centroids


class FirstCentroids(NamedTuple):
    """Centroids of the candidates and of the novel classes under the first model."""

    candidates: ClassCentroids
    novel: ClassCentroids

    def problem(
        self, m: int, k: int, lam: float, general: bool = False, similarity: str = "cosine"
    ) -> fb.SelectionProblem:
        """The selection problem; `general` takes the candidates for the novel classes."""
        return fb.SelectionProblem.from_centroids(
            self.candidates, None if general else self.novel, m, k, lam, similarity=similarity
        )


def selection_support(novel: NovelTask, shots: int) -> NovelTask:
    """The task with only the support images that a selection may see, the first of each class."""
    return NovelTask(novel.source, shots, novel.queries, novel.repeat, novel.seed)


def first_centroids(trial: Trial, data: BaseClassDataModule, store: ResultStore) -> FirstCentroids:
    """Centroids of the candidates of `data` and of its novel classes under the first model.

    The model is trained on the pre-training classes by whoever comes first; others wait for it. If
    `pretraining` names a `backbone`, that one is used instead and nothing is trained.
    """
    settings = {name: asdict(trial)[name] for name in ("data", "model", "pretraining")}
    # Repeats that share their classes share the model too.
    seed = int(trial.data["init_args"]["split_seed"])
    key = digest(settings | {"format": FORMAT, "seed": seed, "shots": max(trial.shots)})
    folder = store.folder / "first-models" / key
    with store.claim(f"first-{key}", wait=True):
        try:
            candidates, novel = load_classes(folder / CLASSES_FILE.format(1))
        except fb.InputError:  # not there yet, or damaged
            embedded = "backbone" in trial.pretraining
            means = _embedded(trial, seed) if embedded else _computed(trial, data, seed, store)
            save_classes(folder, 1, *means)
            # As all others will see it, in single precision.
            candidates, novel = load_classes(folder / CLASSES_FILE.format(1))
    assert novel is not None
    return FirstCentroids(candidates, novel)


def _computed(
    trial: Trial, data: BaseClassDataModule, seed: int, store: ResultStore
) -> FirstCentroids:
    module = _first_model(trial, seed, store)
    novel = data.task
    support = novel.support_set(max(trial.shots))
    candidates = image_centroids(data.pool.preview_set(), len(data.pool), module)
    return FirstCentroids(
        ClassCentroids(candidates, data.pool.names, data.pool.groups),
        ClassCentroids(image_centroids(support, len(novel), module), novel.names, novel.groups),
    )


def _embedded(trial: Trial, seed: int) -> FirstCentroids:
    """Centroids under a backbone that is trained already; see `fsl_basesel.embed`.

    `pretraining` has options of `embed`, and under `init_args` what is different about the data
    module while it is embedded, such as larger pictures.
    """
    options = dict(trial.pretraining)
    arguments = trial.data["init_args"] | options.pop("init_args", {})
    data = data_module(trial.data | {"init_args": arguments}, seed, trial.training, "candidates")
    support = selection_support(data.task, max(trial.shots))
    return FirstCentroids(fb.embed(data.pool, **options), fb.embed(support, **options))


def _first_model(trial: Trial, seed: int, store: ResultStore) -> BaseClassifier:
    """Trained on the pre-training classes; tasks for which these are the same share it."""
    how = trial.pretraining
    data = data_module(trial.data, seed, how, "pretraining")
    same = {"classes": data.pool.fingerprint, "model": trial.model, "pretraining": how}
    key = digest(same | {"format": FORMAT, "seed": seed})
    path = store.folder / "first-models" / f"{key}.pt"
    with store.claim(f"first-{key}", wait=True):
        data.add_classes(range(len(data.pool)))
        if not path.exists():
            module = train(data, trial.model, how, seed, how["epochs"])
            with whole_file(path) as file:
                torch.save(module.backbone.state_dict(), file)
            return module
    module = BaseClassifier(**trial.model, seed=seed)
    module.backbone.load_state_dict(torch.load(path, weights_only=True))
    return module.eval()
