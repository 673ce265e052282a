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


def selections(candidates: np.ndarray, novel: np.ndarray, setting: dict) -> list[fb.Selection]:
    """The selection of every method, with its own certificate if it has one."""
    problem = fb.SelectionProblem.from_centroids(candidates, novel, **setting)
    return [selector.select(problem, 0) for _, selector in METHODS]


def shares(found: list[fb.Selection]) -> list[float | None]:
    """Every method's value as a share of the bound that `auto`, the last one, proves.

    Both are counted from the floor, which is below 0 where similarities are signed.
    """
    bound = found[-1].upper_bound
    assert bound is not None
    return [one.certified(bound).share_of_bound for one in found]


def certificate(name: str, gaps: list[float]) -> str:
    """What a method itself proves about its selections, by their `gap`s."""
    certified, optimal = (sum(gap <= most for gap in gaps) for most in (0.001, 0.0))
    return (
        f"`{name}` certifies its own selection to at least 99.9 % in {certified} of {len(gaps)} "
        f"cases and proves it optimal (gap 0) in {optimal}; its largest gap is "
        f"{100 * max(gaps):.3f} %."
    )


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
        (case, selections(candidates, novel, case | {"similarity": args.similarity}))
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
        "Value of each method as a share (%) of the upper bound that `auto` proves, on real class",
        "centroids: 400 random candidates and 100 novel classes of ImageNet-1k (EfficientNet-Lite0",
        f"features, {args.similarity}).",
        f"Made by `python benchmarks/selection_quality.py{option}`; seed 0 throughout.",
        *(
            ["Shares are counted from the floor, the smallest similarity; `bound` is h itself."]
            if other
            else []
        ),
        "",
        "| m | K | lam | bound | " + " | ".join(name for name, _ in METHODS) + " |",
        "|" + "---|" * (4 + len(METHODS)),
    ]
    for case, found in rows:
        setting = f"| {case['m']} | {case['k']} | {case['lam']:g} | {found[-1].upper_bound:.5f} | "
        lines.append(setting + " | ".join(f"{100 * value:.3f}" for value in shares(found)) + " |")
    for at in (-2, -1):  # the methods with a bound of their own
        gaps = [found[at].gap for _, found in rows]
        lines += ["", certificate(METHODS[at][0], gaps)]
    path = here / "docs" / "results" / f"selection-quality{other}.md"
    path.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
