"""How good is every method on real class centroids? Writes docs/results/selection-quality.md.

    python benchmarks/selection_quality.py [--data FOLDER] [--similarity NAME]

Another similarity than cosine has a file of its own, selection-quality-NAME.md.

400 random candidates and 100 novel classes of ImageNet-1k, EfficientNet-Lite0 features; m in 20,
100, K in 1, 3, 5, 10, lam in 0, .2, .5. FOLDER holds imagenet1k_efflite0_feats.npz; by default
it is FSL_BASESEL_DATA, else ../shared/data.
"""

from __future__ import annotations

import argparse
import os
from itertools import product
from pathlib import Path

import numpy as np
from rich.progress import track

import fsl_basesel as fb
from fsl_basesel.similarity import SIMILARITIES

METHODS = [
    ("random", fb.RandomSelection()),
    ("domsim", fb.DomainSimilarity()),
    ("kmedoids", fb.KMedoids()),
    ("Alg. 1", fb.GreedyOnNovelClass()),
    ("Alg. 2", fb.GreedyOnTarget()),
    ("Alg. 3", fb.RandomGreedy()),
    ("Alg. 4", fb.ContinuousDoubleGreedy()),
    ("Alg. 4 + swaps", fb.WithSwaps(fb.ContinuousDoubleGreedy())),
    ("Alg. 2 + swaps", fb.WithSwaps(fb.GreedyOnTarget())),
    ("dual", fb.LagrangianDual()),
    ("auto", fb.Auto()),
]


def centroids(folder: Path, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Centroids of 400 candidates and 100 novel classes, drawn at random."""
    with np.load(folder / "imagenet1k_efflite0_feats.npz") as stored:
        features, labels = stored["feat"], stored["label"].astype(np.int64)
    means = fb.class_centroids(features, labels)
    order = np.random.default_rng(seed).permutation(len(means))
    return means[order[:400]], means[order[400:500]]


def cases() -> list[dict[str, float]]:
    """The 24 settings."""
    return [
        {"m": m, "k": k, "lam": lam}
        for m, k, lam in product((20, 100), (1, 3, 5, 10), (0.0, 0.2, 0.5))
    ]


def shares(candidates: np.ndarray, novel: np.ndarray, setting: dict) -> tuple[float, list[float]]:
    """The best proven bound of the case, and every method's value as a share of it.

    Values and bound are counted from the floor, which is below 0 where similarities are signed.
    """
    problem = fb.SelectionProblem.from_centroids(candidates, novel, **setting)
    selections = [selector.select(problem, 0) for _, selector in METHODS]
    proven = [s.upper_bound for s in selections if s.upper_bound is not None]
    bound = min([fb.upper_bound(problem), *proven])
    floor = problem.floor
    return bound, [(found.value - floor) / (bound - floor) for found in selections]


def main() -> None:
    """Run all cases and write the page."""
    here = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("FSL_BASESEL_DATA", here.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--similarity", choices=SIMILARITIES, default="cosine")
    args = parser.parse_args()
    candidates, novel = centroids(args.data)
    rows = [
        (case, *shares(candidates, novel, case | {"similarity": args.similarity}))
        for case in track(cases(), "cases")
    ]
    other = "" if args.similarity == "cosine" else f"-{args.similarity}"

    title, option = "# How good is every method?", ""
    if other:
        title = f"# How good is every method with {args.similarity} similarities?"
        option = f" --similarity {args.similarity}"
    lines = [
        title,
        "",
        "Value of each method as a share (%) of the proven upper bound, on real class centroids:",
        "400 random candidates and 100 novel classes of ImageNet-1k (EfficientNet-Lite0 features).",
        f"Made by `python benchmarks/selection_quality.py{option}`; seed 0 throughout.",
        *(
            ["Values and bounds are counted from the floor, the smallest similarity."]
            if other
            else []
        ),
        "",
        "| m | K | lam | bound | " + " | ".join(name for name, _ in METHODS) + " |",
        "|" + "---|" * (4 + len(METHODS)),
    ]
    for case, bound, values in rows:
        setting = f"| {case['m']} | {case['k']} | {case['lam']:g} | {bound:.5f} | "
        lines.append(setting + " | ".join(f"{100 * value:.3f}" for value in values) + " |")
    for name in ("dual", "auto"):
        at = [label for label, _ in METHODS].index(name)
        certified = sum(values[at] >= 0.999 for *_, values in rows)
        worst = 100 * (1 - min(values[at] for *_, values in rows))
        optimal = sum(values[at] >= 1 - 1e-9 for *_, values in rows)
        lines += [
            "",
            f"`{name}` is certified to at least 99.9 % in {certified} of {len(rows)} cases and "
            f"proven optimal in {optimal}; the largest gap is {worst:.3f} %.",
        ]
    path = here / "docs" / "results" / f"selection-quality{other}.md"
    path.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
