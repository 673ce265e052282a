"""Files that a selection leaves for its report; `save_stage` writes them.

`selection-stage-i.json` is the selection, `classes-stage-i.npz` has the centroids it was made with,
`problem-stage-i.npz` the problem if these do not tell it, `pictures.npz` a thumbnail of each class.
Files are whole or not there: they are written beside their place and renamed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from fsl_basesel.files.writing import load_npz, save_npz
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.selection import Selection
from fsl_basesel.similarity import ClassCentroids

if TYPE_CHECKING:
    import torch

    from fsl_basesel.data import ClassPool, ImageSet, NovelTask

PICTURES = "pictures.npz"
SELECTION_FILE, CLASSES_FILE = "selection-stage-{}.json", "classes-stage-{}.npz"
PROBLEM_FILE = "problem-stage-{}.npz"
"""Names of the files of a stage; stages count from 1."""
PROBLEM = "fsl-basesel problem 1"
LARGEST, MOST = 5000 * 500, 10_000
"""Similarities and candidates of a page that can choose; larger problems are only shown."""
SIDE = 64
"""Pixels of a thumbnail's side, at most."""
BUDGET = 48 * 2**20
"""Bytes of all thumbnails together, at most: those of very many classes are smaller."""
_CHUNK = 64
KINDS = (("candidate", "candidates"), ("novel", "novel"))
"""How the arrays of both sides are called: `candidate_names` beside `candidates`."""


def save_stage(
    folder: str | os.PathLike[str],
    stage: int,
    selection: Selection,
    classes: tuple[ClassCentroids, ClassCentroids | None] | None = None,
    problem: SelectionProblem | None = None,
    images: tuple[ClassPool, NovelTask | ClassPool | None] | None = None,
    file: str = SELECTION_FILE,
) -> None:
    """Write what a selection leaves for its report, in place of what another left.

    `stage` counts from 1. `classes` are the centroids it was made with, `problem` is what it was
    chosen from, if the centroids do not tell and a page can choose again from it; `images` are what
    thumbnails are made of.
    """
    root = Path(folder)
    for old in (CLASSES_FILE, PROBLEM_FILE):  # else they would be taken for those of this one
        (root / old.format(stage)).unlink(missing_ok=True)
    selection.save(root / file.format(stage))
    if classes is not None:
        save_classes(root, stage, *classes)
    if problem is not None and fits(problem):
        save_problem(root, stage, problem)
    if images is not None:
        save_pictures(root, *images)


def fits(problem: SelectionProblem) -> bool:
    """Whether a page can hold the problem and choose again quickly."""
    size = problem.n_candidates * problem.n_novel
    return size <= LARGEST and problem.n_candidates <= MOST


def save_problem(folder: str | os.PathLike[str], stage: int, problem: SelectionProblem) -> Path:
    """Write similarities, costs, weights and groups, so that the report can choose again.

    Needed if they cannot be computed from the centroids of `save_classes`: for a matrix of
    similarities, costs, weights or groups. Settings and limits are in the selection.
    """
    groups = problem.groups
    arrays = {
        "similarity": np.asarray(problem.similarity),
        "names": np.array(problem.names, np.str_),
        "novel_names": np.array(problem.novel_names, np.str_),
        "cost": problem.cost,
        "weights": problem.weights,
        "groups": None if groups is None else np.array([one or "" for one in groups], np.str_),
    }
    known = {name: array for name, array in arrays.items() if array is not None}
    return save_npz(Path(folder) / PROBLEM_FILE.format(stage), PROBLEM, **known)


def load_problem(path: str | os.PathLike[str], selection: Selection) -> SelectionProblem:
    """Read what `save_problem` wrote, with the settings and limits of the selection."""
    what = "a file written by `save_problem`"
    arrays = load_npz(path, PROBLEM, ("similarity", "names", "novel_names"), what=what)
    names = arrays["names"].tolist()
    settings = problem_settings(selection, names)
    groups = [one or None for one in arrays["groups"].tolist()] if "groups" in arrays else None
    return SelectionProblem(
        arrays["similarity"],
        names=names,
        novel_names=arrays["novel_names"].tolist(),
        cost=arrays.get("cost") if settings["mu"] or settings["budget"] is not None else None,
        weights=arrays.get("weights"),
        groups=groups,
        floor=selection.hyperparameters.get("floor"),
        **settings,
    )


def problem_settings(selection: Selection, names: Sequence[str]) -> dict[str, Any]:
    """Settings and limits of the problem of a selection, as `SelectionProblem` takes them."""
    known, limits = selection.hyperparameters, selection.limits or {}
    number = {name: u for u, name in enumerate(names)}
    settings = {name: known[name] for name in ("m", "k", "lam", "selected")}
    settings["mu"] = known.get("mu", 0.0)
    for name in ("exclude", "include"):
        settings[name] = [number[one] for one in limits.get(name, ())]
    return settings | {name: limits.get(name) for name in ("budget", "at_most", "at_least")}


def save_classes(
    folder: str | os.PathLike[str],
    stage: int,
    candidates: ClassCentroids,
    novel: ClassCentroids | None = None,
) -> Path:
    """Write the centroids that a selection was made with, in single precision.

    Args:
        folder: The run's folder.
        stage: Number of the selection, from 1, as in `selection-stage-1.json`.
        candidates: Centroids of the candidates.
        novel: Centroids of the novel classes; None in General Selection.
    """
    content: dict[str, np.ndarray] = {}
    for (kind, key), classes in zip(KINDS, (candidates, novel), strict=True):
        if classes is None:
            continue
        with np.errstate(over="ignore"):
            single = classes.values.astype(np.float32)
        content[key] = single if np.isfinite(single).all() else classes.values
        content[f"{kind}_names"] = np.array(classes.names, np.str_)
        if classes.groups is not None:
            content[f"{kind}_groups"] = np.array(classes.groups, np.str_)
    return save_npz(Path(folder) / CLASSES_FILE.format(stage), None, **content)


def load_classes(path: str | os.PathLike[str]) -> tuple[ClassCentroids, ClassCentroids | None]:
    """Read what `save_classes` wrote: the candidates, and the novel classes if there are any."""
    what = "a file written by `save_classes`"
    content = load_npz(path, None, ("candidates", "candidate_names"), what=what)

    def part(kind: str, key: str) -> ClassCentroids:
        names, groups = content[f"{kind}_names"].tolist(), content.get(f"{kind}_groups")
        return ClassCentroids(content[key], names, None if groups is None else groups.tolist())

    return part(*KINDS[0]), part(*KINDS[1]) if "novel" in content else None


class Pictures(NamedTuple):
    """Thumbnails by name of the class: `[side, side]` or `[side, side, 3]` uint8."""

    candidates: dict[str, np.ndarray]
    novel: dict[str, np.ndarray]


def save_pictures(
    folder: str | os.PathLike[str], pool: ClassPool, novel: NovelTask | ClassPool | None = None
) -> Path | None:
    """Write a thumbnail of each class: its first preview or support image.

    Nothing else is decoded. Images that are there already are not read again, images that cannot
    be read are left out, and the state of random generators is the same afterwards.

    Args:
        folder: The run's folder.
        pool: The candidates.
        novel: The novel task, or a pool of its classes; None in General Selection.

    Returns:
        The file, or None for classes that have no images, such as those of `from_features`.

    Example:
        >>> import tempfile
        >>> from fsl_basesel.data import glyphs
        >>> pool, novel = glyphs(candidates=5, novel=2)
        >>> path = save_pictures(tempfile.mkdtemp(), pool, novel)
        >>> path.name, load_pictures(path).novel[novel.names[0]].shape
        ('pictures.npz', (28, 28))
    """
    from fsl_basesel.data.datasets import fixed_random

    path = Path(folder) / PICTURES
    identity = "|".join(one.fingerprint for one in (pool, novel) if one is not None)
    if _identity(path) == identity:
        return path
    with fixed_random():  # images may be made with random transforms
        content = _thumbnails([_first_images(one) for one in (pool, novel) if one is not None])
    if content is None:
        return None
    return save_npz(path, None, compress=True, identity=np.array(identity), **content)


def load_pictures(path: str | os.PathLike[str]) -> Pictures:
    """Read what `save_pictures` wrote."""
    what = "a file written by `save_pictures`"
    content = load_npz(path, None, ("candidates", "candidate_names"), what=what)
    sides: list[dict[str, np.ndarray]] = [{}, {}]
    for side, (kind, key) in zip(sides, KINDS, strict=True):
        if key in content:
            side |= zip(content[f"{kind}_names"].tolist(), content[key], strict=True)
    return Pictures(*sides)


def _first_images(classes: NovelTask | ClassPool) -> ImageSet:
    from fsl_basesel.data import ImageSet, NovelTask

    if isinstance(classes, NovelTask):
        return classes.support_set(1)
    numbers = np.arange(len(classes))
    classes.source.prepare(numbers.tolist(), 1)
    return ImageSet(classes.source, numbers, np.zeros_like(numbers), numbers)


def _identity(path: Path) -> str | None:
    """Which classes the file at `path` shows; None if it is absent or damaged."""
    try:
        with np.load(path, allow_pickle=False) as content:
            return str(content["identity"])
    except Exception:  # whatever a damaged archive makes its reader raise: it is written anew
        return None


def _thumbnails(shown: list[ImageSet]) -> dict[str, np.ndarray] | None:
    """Arrays of `pictures.npz`; None where the first class of a set has no image to show."""
    side = 0
    affordable = max(8, int((BUDGET / (3 * max(1, sum(map(len, shown))))) ** 0.5))  # in colour
    content: dict[str, np.ndarray] = {}
    for (kind, key), images in zip(KINDS, shown, strict=False):
        names, pictures = [], []
        for start in range(0, len(images), _CHUNK):
            for number, picture in _read(images, range(start, min(start + _CHUNK, len(images)))):
                if picture.dim() != 3 or min(picture.shape) < 1:
                    return None  # feature vectors
                side = side or min(*picture.shape[1:], SIDE, affordable)
                names.append(images.source.names[images.classes[number]])
                pictures.append(_thumbnail(picture, side))
        mode = "L" if all(one.mode == "L" for one in pictures) else "RGB"
        same = [np.asarray(one.convert(mode)) for one in pictures]
        content[key] = np.stack(same) if same else np.zeros((0, 1, 1), np.uint8)
        content[f"{kind}_names"] = np.array(names, np.str_)
    return content


def _read(images: ImageSet, numbers: range) -> list[tuple[int, torch.Tensor]]:
    """These images; where they make no batch, one by one without those that cannot be read."""
    try:
        return list(zip(numbers, images.batch(numbers)[0], strict=True))
    except Exception:  # a report without a thumbnail is better than a run that ends
        halves = (numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :])
        return [one for half in halves for one in _read(images, half)] if len(numbers) > 1 else []


def _thumbnail(picture: torch.Tensor, side: int) -> Image.Image:
    """A `[C, H, W]` image in grey or colour, its middle square brought to `side`."""
    array = picture.numpy()
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 1:  # normalised for a network, or counted in bytes
        array = (array - low) / max(high - low, 1e-12)
    levels = np.rint(array * 255).astype(np.uint8)
    levels = levels[0] if len(levels) < 3 else np.ascontiguousarray(levels[:3].transpose(1, 2, 0))
    # Pillow, not torch: its threads would take longer to start than one picture takes.
    return ImageOps.fit(Image.fromarray(levels), (side, side), Image.Resampling.BILINEAR)
