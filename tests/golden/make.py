"""Golden files: what the code of version 0.1.0 chose, drew and wrote.

    python tests/golden/make.py FOLDER      # run on the tree whose answers are to be kept

`tests/test_golden.py` imports this file, runs the same functions on the present tree and compares.
Only public names are used where there is one, so that the comparison survives renames.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fsl_basesel as fb

CASES = 60
METHODS = "auto paper greedy-novel greedy-target random-greedy double-greedy dual random".split()
WITH_SWAPS = "with-swaps"


def attribute(*places: str) -> Any:
    """The first of these `module:name` that exists; a name may move between versions."""
    for place in places:
        module, name = place.split(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise AttributeError(f"Expected one of {', '.join(places)} to exist.")


def digest(value: Any) -> str:
    """A short hash of plain types."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


# (a) selections


def problem(number: int) -> fb.SelectionProblem:
    """Problem `number` of 60: sizes, types, limits, ties and duplicates all vary."""
    rng = np.random.Generator(np.random.PCG64(1000 + number))
    rows = (1, 3, 10, 30, 64, 100)[number % 6]
    candidates = (5, 12, 40, 90, 150)[number % 5]
    matrix = rng.random((rows, candidates))
    if number % 4 == 1:  # ties
        matrix = np.floor(matrix * 8) / 8
    if number % 4 == 2:  # duplicates of candidates and of novel classes
        matrix[:, candidates // 2 :] = matrix[:, : candidates - candidates // 2]
        matrix[rows // 2 :] = matrix[: rows - rows // 2]
    if number % 10 == 7:  # signed similarities
        matrix = 2 * matrix - 1
    if number % 3 == 0:
        matrix = matrix.astype(np.float32)
    order = np.argsort(rng.random(candidates))
    selected = order[: (0, 0, 2)[number % 3]].tolist()
    free = candidates - len(selected)
    settings: dict[str, Any] = {
        "m": min(free, (1, 3, 7, free // 2, 12)[(number // 5) % 5]),
        "k": (1, 2, 3, 5)[(number // 3) % 4],
        "lam": (0.0, 0.0, 0.3, 1.1)[(number // 7) % 4],
        "selected": selected,
    }
    if number % 8 in (3, 6):
        settings |= {"cost": rng.random(candidates), "mu": 0.02}
    return fb.SelectionProblem(matrix, **settings)


def methods_of(number: int) -> Iterator[tuple[str, Any]]:
    """The methods that take a matrix, and swaps on one of three of them."""
    for name in METHODS:
        yield name, name
    inner = (fb.RandomSelection(), fb.GreedyOnNovelClass(), fb.GreedyOnTarget())[number % 3]
    yield WITH_SWAPS, fb.WithSwaps(inner)


def reasons(selection: fb.Selection) -> str:
    """A hash of everything `explain()` says.

    Similarity Ratios of signed similarities are left out: 0.2.0 has none there.
    """
    told = selection.explain()
    signed = selection.hyperparameters["floor"] < 0
    return digest(
        [
            [
                (c.index, c.name, list(c.serves), c.gain.hex(), c.loss.hex(), c.adds_from)
                for c in told.chosen
            ],
            [
                (
                    n.name,
                    [(name, value.hex()) for name, value in n.neighbours],
                    *([None, None] if signed else _ratios(n)),
                )
                for n in told.novel
            ],
        ]
    )


def _ratios(served: Any) -> list[str | None]:
    both = (served.ratio_before, served.ratio_after)
    return [None if ratio is None else f"{ratio:.9g}" for ratio in both]


def answer(selection: fb.Selection) -> list[Any]:
    """Indices, value, bound and a hash of the reasons."""
    bound = selection.upper_bound
    return [
        selection.indices,
        selection.value.hex(),
        None if bound is None else float(bound).hex(),
        reasons(selection),
    ]


def selections() -> dict[str, list[Any]]:
    """Every method on every problem."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(CASES):
            asked = problem(number)
            for name, method in methods_of(number):
                found[f"{number} {name}"] = answer(fb.select(asked, method, seed=number))
    return found


# (b) keys, fingerprints, draws, seeds


def trial_keys() -> dict[str, list[str]]:
    """For each experiment the beginnings of the keys of its trials, in order."""
    from lightning_modules.experiments import plan

    return {
        name: [row.trial.key[:8] for row in plan.load(name, data_root=".").rows()]
        for name in plan.names()
    }


def machine() -> list[str]:
    """What the glyphs are drawn with; other versions may draw other pixels."""
    import matplotlib
    import PIL

    return [unicodedata.unidata_version, PIL.__version__, matplotlib.__version__]


def glyph_pools() -> dict[str, Any]:
    """Fingerprints, names and images of the glyph data."""
    from fsl_basesel.data import glyphs

    found: dict[str, Any] = {}
    for domain in ("plain", "transfer", "fine"):
        for seed in (0, 3):
            pool, task = glyphs(domain=domain, candidates=40, novel=10, seed=seed)
            pictures = pool.preview_set([0, 39]).batch([0, 1, 50])[0].numpy()
            found[f"{domain} {seed}"] = {
                "pool": pool.fingerprint,
                "task": task.source.fingerprint,
                "names": digest([list(pool.names), list(task.names)]),
                "brightness": float(pictures.mean()),
            }
    return found


def draws() -> dict[str, Any]:
    """Episodes, support and test images, orders of epochs, and seeds of steps."""
    from fsl_basesel.data import NovelTask, counter, from_arrays
    from lightning_modules.episodes import EpisodeSampler

    places = ("lightning_modules.data", "lightning_modules.loader")
    step_seed = attribute(*(f"{place}:step_seed" for place in places))
    epoch_batches = attribute(*(f"{place}:epoch_batches" for place in places))
    labels = np.repeat(np.arange(12), 20)
    found: dict[str, Any] = {}
    for ways, shots, seed in ((5, 1, 0), (5, 5, 0), (12, 3, 7)):
        draw = EpisodeSampler(labels, ways, shots, 4, seed=seed).draw(range(50))
        found[f"episodes {ways} {shots} {seed}"] = digest([part.tolist() for part in draw])
    source = from_arrays(np.zeros((240, 1, 4, 4), np.float32), labels)
    for seed, repeat in ((0, 0), (0, 1), (5, 2)):
        task = NovelTask(source, shots=3, queries=4, seed=seed, repeat=repeat)
        sets = [[part.items.tolist(), part.labels.tolist()] for part in _sets(task)]
        found[f"task {seed} {repeat}"] = digest(sets)
    found["orders"] = {
        f"{images} {size} {seed} {epoch} {rank} {world}": digest(
            [batch.tolist() for batch in epoch_batches(images, size, seed, epoch, rank, world)]
        )
        for images, size, seed, epoch, rank, world in (
            (103, 8, 0, 0, 0, 1),
            (103, 8, 0, 3, 0, 1),
            (103, 8, 2, 1, 1, 2),
        )
    }
    found["step seeds"] = [
        step_seed(seed, purpose, *numbers)
        for seed in (0, 1)
        for purpose in ("step", "augment", "workers")
        for numbers in ((0,), (1, 2, 0), (7, 0, 1))
    ]
    found["keys"] = [int(counter.key(0, "split", 3)), int(counter.key(-1, "Ж"))]
    found["order"] = counter.shuffled(counter.key(1, "classes"), range(20)).tolist()
    return found


def _sets(task: Any) -> list[Any]:
    return [task.support_set(), task.test_set()]


def splits(folder: Path) -> dict[str, Any]:
    """Which classes a data module of a folder draws as candidates, task and pre-training."""
    from PIL import Image

    from lightning_modules.sources import ImageFolderDataModule

    for c in range(14):
        for i in range(4):
            path = folder / f"class {c:02d}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8), 17 * c + i, np.uint8)).save(path)
    found = {}
    for seed in (0, 1, 2):
        for count in (None, 5):
            data = ImageFolderDataModule(
                str(folder),
                novel_classes=4,
                candidate_classes=count,
                pretraining=3,
                split_seed=seed,
                size=8,
                channels=1,
                shots=1,
                queries=2,
            )
            assert data.novel is not None
            found[f"{seed} {count}"] = [list(data.pool.names), list(data.novel.names)]
    return found


# (c) files


def write_files(folder: Path) -> None:
    """One small file of every format that the command line and the library write."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = fb.select(problem(28), "auto")
    _blanked(chosen.save(folder / "selection.json"), "seconds", "version")
    study = _study()
    study.save(folder / "study.npz")
    suggested = study.suggest(resamples=100)
    _blanked(suggested.save(folder / "suggestion.json"), "version")
    (folder / "study.json").write_text(json.dumps(study_answer(study)) + "\n")
    command_line(folder)
    _queue(folder)
    _store(folder)


def _study() -> Any:
    from fsl_basesel.study import Study

    rng = np.random.Generator(np.random.PCG64(5))
    similarity = np.round(rng.random((6, 16)), 4)
    sets = [np.argsort(rng.random(16))[:6] for _ in range(24)]
    nearest = np.array([np.sort(similarity[:, u])[:, -2:].mean(axis=1) for u in sets])
    accuracy = np.round(0.2 + 0.5 * nearest + 0.05 * rng.random(nearest.shape), 4)
    return Study(similarity, sets, accuracy)


def study_answer(study: Any) -> dict[str, Any]:
    """What a study says, to be compared to 1e-9."""
    suggested = study.suggest(resamples=100)
    rows = [
        [row.name, row.beta1, row.beta2, row.alpha, row.r2, *row.beta1_interval]
        for row in study.regressions(2)
    ]
    return {"k": suggested.k, "lam": suggested.lam, "r2": suggested.r2, "regressions": rows}


def command_line(folder: Path) -> None:
    """CSV files of `select`, `compare` and `suggest`."""
    from fsl_basesel.cli import main

    features = np.random.Generator(np.random.PCG64(9)).random((26, 8)).round(4)
    names = np.array([f"class {c}" for c in range(26)])
    np.savez(folder / "pool.npz", features=features[:20], names=names[:20])
    np.savez(folder / "task.npz", features=features[20:], names=names[20:])
    problem = [str(folder / "pool.npz"), "--novel", str(folder / "task.npz"), "-m", "4", "-k", "2"]
    for command in (
        ["select", *problem, "--out", str(folder / "chosen.csv")],
        ["compare", *problem, "--out", str(folder / "compared.csv")],
        ["compare", *problem, "--out", str(folder / "compared.json")],
    ):
        code = main(command)
        assert not code, f"{command} gave {code}"


def _queue(folder: Path) -> None:
    """A labelling queue with a class that has arrived and one that waits."""
    content = {
        "waiting": [{"class": "owl", "folder": "labelled/owl", "images": 0, "needed": 2}],
        "arrived": {"cat": ["0.png", "1.png"]},
    }
    (folder / "classes-to-label.json").write_text(json.dumps(content, indent=2) + "\n")


def _store(folder: Path) -> None:
    """The file of a trial, as `reproduce` keeps it."""
    from lightning_modules.experiments import plan
    from lightning_modules.experiments.store import ResultStore

    trial = plan.load("demo").rows()[0].trial
    ResultStore(folder / "store").save(trial, {"value": 0.5, "accuracies": [0.25, 0.75]})
    for part in ("shared", "first-models", "locks"):
        (folder / "store" / part).rmdir()


def _blanked(path: Path, *fields: str) -> None:
    """Time and version differ between runs and do not belong into a golden file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content |= {name: 0.0 if name == "seconds" else "0" for name in fields}
    path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")


# (d) a run in three stages, and its checkpoint after the second epoch


STAGES, EPOCHS = (2, 4, 6), (1, 1, 1)


def train(
    folder: Path,
    *,
    stop_after: int | None = None,
    checkpoint: Path | None = None,
    extra: Sequence[Any] = (),
    every_n_train_steps: int | None = None,
) -> Any:
    """Train a tiny network in three stages on glyphs; return its weights and its classes.

    Args:
        folder: where the files of the run go.
        stop_after: ends the run after so many epochs, with the checkpoint `last.ckpt`.
        checkpoint: the checkpoint to go on from.
        extra: more callbacks.
        every_n_train_steps: of `ModelCheckpoint`; None keeps a checkpoint of every epoch.
    """
    import pytorch_lightning as pl
    import torch
    from pytorch_lightning.callbacks import Callback, ModelCheckpoint

    from fsl_basesel.data import glyphs
    from lightning_modules import (
        BaseClassDataModule,
        BaseClassifier,
        ColdStartSelection,
        NovelEvaluation,
    )

    class Stop(Callback):
        """Ends the run without the hooks of a run that is over, as a kill would."""

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == stop_after:
                raise KeyboardInterrupt

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(3)
    pool, task = glyphs(candidates=10, novel=3, seed=1, per_class=12, preview=4, shots=2, queries=3)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 6, 5, stride=3), torch.nn.ReLU())
    data = BaseClassDataModule(pool, task, batch_size=6, val_per_class=2)
    options: dict[str, Any] = {"dirpath": folder, "verbose": False}
    callbacks: list[Any] = [
        NovelEvaluation(ways=3, shots=1, queries=2, episodes=3, **options),
        ColdStartSelection(STAGES, EPOCHS, k=2, **options),
        ModelCheckpoint(folder, save_last=True, every_n_train_steps=every_n_train_steps),
        Stop(),
        *extra,
    ]
    trainer = pl.Trainer(
        default_root_dir=folder,
        callbacks=callbacks,
        logger=False,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    model = BaseClassifier(network, lr=0.05)
    try:
        trainer.fit(model, data, ckpt_path=checkpoint, weights_only=True)
    except (KeyboardInterrupt, SystemExit):
        if stop_after is None:
            raise
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    return weights, data.classes


def write_run(folder: Path) -> None:
    """A whole run of three stages, and beside it the checkpoint of one that ended in between."""
    weights, classes = train(folder / "run")
    for path in (folder / "run").glob("*.ckpt"):
        path.unlink()
    np.savez_compressed(folder / "weights.npz", **weights)
    (folder / "classes.json").write_text(json.dumps(classes, ensure_ascii=False) + "\n")
    for path in sorted((folder / "run").glob("selection-stage-*.json")):
        _blanked(path, "seconds", "version")
    train(folder / "killed", stop_after=2)
    (folder / "killed" / "last.ckpt").rename(folder / "last.ckpt")
    for path in (folder / "killed").iterdir():
        path.unlink()
    (folder / "killed").rmdir()


def _dump(path: Path, content: Any) -> None:
    if path.stem == "trials":
        content = {name: "".join(keys) for name, keys in content.items()}
    lines = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    path.write_text(lines.replace('],"', '],\n"').replace('},"', '},\n"') + "\n")


def main(folder: Path) -> None:
    """Write all golden files."""
    import tempfile

    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[], Any]] = {
        "selections": selections,
        "trials": trial_keys,
        "draws": draws,
        "glyphs": lambda: {"machine": machine(), "pools": glyph_pools()},
    }
    for name, make in parts.items():
        _dump(folder / f"{name}.json", make())
    with tempfile.TemporaryDirectory() as temporary:
        _dump(folder / "splits.json", splits(Path(temporary)))
    write_files(folder / "files")
    write_run(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
