"""One source, several parts: candidate, novel and pre-training classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fsl_basesel.data import counter
from fsl_basesel.data.novel import NovelTask
from fsl_basesel.data.pool import ClassPool
from fsl_basesel.data.source import ImageSource
from fsl_basesel.errors import InputError


def split_classes(
    source: ImageSource,
    novel: int | Iterable[int | str],
    candidates: int | None = None,
    seed: int = 0,
    *,
    preview: int | None = None,
    shots: int = 20,
    queries: int = 100,
) -> tuple[ClassPool, NovelTask]:
    """Make some classes of a source the novel task and others the candidate pool.

    Args:
        source: classes and images.
        novel: the novel classes, by number or name, or how many to draw at random.
        candidates: how many of the other classes to draw at random; None takes them all.
        seed: seed of the draws. The data modules of `lightning_modules` draw the same classes.
        preview: see `ClassPool`.
        shots: see `NovelTask`.
        queries: see `NovelTask`.

    Example:
        >>> from fsl_basesel.data import from_features
        >>> import numpy as np
        >>> source = from_features(np.eye(8), [0, 0, 1, 1, 2, 2, 3, 3], ["a", "b", "c", "d"])
        >>> pool, task = split_classes(source, novel=["b"], shots=1)
        >>> pool.names, task.names
        (('a', 'c', 'd'), ('b',))
    """
    asked = novel if isinstance(novel, int) else list(novel)
    if not asked:
        raise InputError(f"Expected at least one class in `novel` but got {novel!r}; name some.")
    pool, target, _ = draw_parts(source, asked, candidates, 0, seed)
    assert target is not None
    return ClassPool(pool, preview), NovelTask(target, shots, queries, seed=seed)


def draw_parts(
    source: ImageSource,
    novel: int | Sequence[int | str] | None,
    candidates: int | None,
    pretraining: int,
    seed: int,
) -> tuple[ImageSource, ImageSource | None, ImageSource | None]:
    """Candidate, novel and pre-training classes of a source, disjoint; None where there are none.

    The pre-training classes are drawn first, so that experiments with different novel tasks can
    share a first model. `novel` says how many classes are novel, or which; without `candidates`
    all that are left are candidates.
    """
    draw = novel if isinstance(novel, int) else 0
    given = [] if novel is None or isinstance(novel, int) else source.positions(novel)
    order = _random_order(source, seed, without=given)
    counts = (pretraining, draw, 1 if candidates is None else candidates)
    if min(counts[:2]) < 0 or counts[2] < 1 or sum(counts) > len(order):
        raise InputError(
            f"Expected pre-training, novel and candidate classes to be at most {len(order)} "
            "together, the classes there are to draw from, and at least 1 candidate but got "
            f"{pretraining}, {draw} and {candidates}."
        )
    first, left = order[:pretraining], order[pretraining + draw :]
    task = given or order[pretraining : pretraining + draw]
    return (
        source.subset(sorted(left) if candidates is None else left[:candidates]),
        source.subset(task) if task else None,
        source.subset(first) if first else None,
    )


def draw_novel(
    source: ImageSource,
    classes: int | Sequence[int | str],
    seed: int,
    among: int | Sequence[int | str] | None = None,
) -> list[int]:
    """Novel classes of a source: the given classes, or the given number at random.

    They are drawn from the classes `among`, or from the first `among` classes; None is all.
    """
    if not isinstance(classes, int):
        return source.positions(classes)
    limit = len(source) if among is None else among
    there = set(range(len(source))[:limit] if isinstance(limit, int) else source.positions(limit))
    if not 1 <= classes <= len(there):
        raise InputError(
            f"Expected `novel_classes` from 1 to {len(there)}, the classes there are to draw from, "
            f"but got {classes}."
        )
    return [number for number in _random_order(source, seed) if number in there][:classes]


def _random_order(source: ImageSource, seed: int, without: Sequence[int] = ()) -> list[int]:
    """The classes but for some, in an order that depends on the seed alone."""
    rest = np.setdiff1d(np.arange(len(source)), without)
    return rest[counter.shuffled(counter.key(seed, "classes"), rest)].tolist()
