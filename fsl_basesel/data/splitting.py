"""One source, two parts: candidate classes and novel classes."""

from __future__ import annotations

from collections.abc import Iterable

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
        seed: seed of the draws.
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
    order = counter.shuffled(counter.key(seed, "novel classes"), range(len(source))).tolist()
    if isinstance(novel, int):
        if not 1 <= novel < len(source):
            raise InputError(
                f"Expected `novel` from 1 to {len(source) - 1}, to leave candidates of the "
                f"{len(source)} classes, but got {novel}."
            )
        chosen = order[:novel]
    else:
        chosen = source.positions(novel)
    left = [c for c in range(len(source)) if c not in set(chosen)]
    if candidates is not None:
        if not 1 <= candidates <= len(left):
            raise InputError(
                f"Expected `candidates` from 1 to {len(left)}, the classes that are not novel, but "
                f"got {candidates}."
            )
        pick = counter.shuffled(counter.key(seed, "other classes"), left)[:candidates]
        left = [left[i] for i in pick.tolist()]
    task = NovelTask(source.subset(chosen), shots, queries, seed=seed)
    return ClassPool(source.subset(left), preview), task
