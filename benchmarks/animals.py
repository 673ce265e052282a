"""Do animals choose animals? Tiny-ImageNet as a task of animals and a pool of everything else.

    python benchmarks/animals.py DATA/tinyimagenet_train100.npz

The 200 classes are 59 animals and 141 other things. Each of ten draws takes 10 animals as the task;
the pool is the other 190 classes, 49 of them animals. The default backbone looks at some images of
each class, and `auto` chooses with k = 3. The table says which share of the chosen classes are
animals in float32 and in bfloat16, in how many of the ten draws both choose the same set, and the
largest share of the value that is lost by choosing in bfloat16.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import fsl_basesel as fb
from fsl_basesel.data import from_dataset
from fsl_basesel.data.packs import JpegPack

LAST_ANIMAL = "n02510455"  # the giant panda; classes are sorted by WordNet number


def problem(means: np.ndarray, animal: np.ndarray, seed: int, **options: Any) -> Any:
    """10 random animals as the task, all other classes as the pool, and which of those are animals.

    Returns:
        The problem and `[|B|]` booleans.
    """
    task = np.random.default_rng(seed).permutation(np.flatnonzero(animal))[:10]
    pool = np.setdiff1d(np.arange(len(means)), task)
    made = fb.SelectionProblem.from_centroids(means[pool], means[task], k=3, **options)
    return made, animal[pool]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pack", help="tinyimagenet_train100.npz")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--per-class", type=int, default=10)
    args = parser.parse_args()
    source = from_dataset(JpegPack(args.pack, size=64))
    animal = np.array([name.split()[0] <= LAST_ANIMAL for name in source.names])
    print(f"{animal.sum()} animals of {len(animal)} classes, {args.per_class} images of each")
    means = {
        precision: fb.embed(
            source, size=args.size, per_class=args.per_class, precision=precision
        ).values
        for precision in ("float32", "bfloat16")
    }
    print(f"{'m':>3} {'similarity':11} {'float32':>8} {'bfloat16':>9} {'same':>5} {'loss':>9}")
    for m in (5, 10, 20):
        for similarity in ("cosine", "centred", "whitened"):
            shares, same, loss = [], 0, 0.0
            for seed in range(10):
                (one, kind), (two, _) = (
                    problem(values, animal, seed, m=m, similarity=similarity)
                    for values in means.values()
                )
                first, second = (fb.select(p).indices for p in (one, two))
                shares.append([kind[first].mean(), kind[second].mean()])
                same += set(first) == set(second)
                loss = max(loss, 1 - one.value(second) / one.value(first))
            exact, half = np.mean(shares, 0)
            print(f"{m:3} {similarity:11} {exact:8.0%} {half:9.0%} {same:5} {loss:9.4%}")


if __name__ == "__main__":
    main()
