"""Budgets and caps on real class centroids: how close to the bound, and how long?

Writes docs/results/limits.md.

    python benchmarks/limits.py [--data FOLDER] [--skip-large]

400 candidates and 100 novel classes of ImageNet-1k as in `selection_quality.py`; lognormal costs,
budgets of 20 and 60, no cap or at most 3 classes of a WordNet group, K = 1, 3, 5. Then, beside the
plain m = 1000, a budget of 1000 at 1000 x 21,000, once each. FOLDER also holds
imagenet1k_wordnet_ancestors.npz.
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import product
from pathlib import Path

import numpy as np
from rich.progress import track
from selection_quality import centroids

import fsl_basesel as fb

MEMBERS = 8  # classes that a WordNet node has at least to be a group


def wordnet_groups(folder: Path) -> np.ndarray:
    """For each of the 1000 classes the smallest WordNet node over it with at least 8 classes."""
    with np.load(folder / "imagenet1k_wordnet_ancestors.npz") as stored:
        nodes = stored["node_name"]
        over = np.unpackbits(stored["ancestor"], axis=1)[:, : len(nodes)].astype(bool)
    sizes = over.sum(axis=0)
    sizes = np.where(sizes < MEMBERS, len(over) + 1, sizes)
    return nodes[np.where(over, sizes, len(over) + 2).argmin(axis=1)]


def small(folder: Path) -> list[str]:
    """A line of the table for each setting."""
    candidates, novel = centroids(folder)
    rng = np.random.default_rng(0)
    groups = wordnet_groups(folder)[rng.permutation(1000)[:400]]  # those `centroids` draws
    cost = np.random.default_rng(1).lognormal(size=400)
    lines, shares = [], []
    for k, budget, cap in track(list(product((1, 3, 5), (20.0, 60.0), (None, 3))), "settings"):
        limits = {} if cap is None else {"groups": groups, "at_most": cap}
        problem = fb.SelectionProblem.from_centroids(
            candidates, novel, k=k, cost=cost, budget=budget, **limits
        )
        start = time.process_time()
        found = fb.select(problem)
        seconds = time.process_time() - start
        greedy = fb.GreedyOnTarget().select(problem).value / found.upper_bound
        shares.append(found.value / found.upper_bound)
        lines.append(
            f"| {k} | {budget:g} | {cap or '-'} | {len(found.indices)} | {found.spent:.2f} | "
            f"{100 * greedy:.3f} | {100 * shares[-1]:.4f} | {seconds:.2f} |"
        )
    reached = sum(share >= 0.9995 for share in shares)
    proven = sum(share >= 1 - 1e-9 for share in shares)
    return [
        f"Costs are lognormal; a group is the smallest WordNet node with at least {MEMBERS} classes"
        f" ({len(set(groups.tolist()))} groups). Values as shares (%) of the proven bound; `auto`, "
        "processor time.",
        "",
        "| K | budget | at most | classes | spent | greedy | auto | seconds |",
        "|" + "---|" * 8,
        *lines,
        "",
        f"Certified to at least 99.95 % in {reached} of {len(shares)} settings, proven optimal in "
        f"{proven}; the smallest share is {100 * min(shares):.4f} %.",
    ]


def large() -> list[str]:
    """The time of a budget beside that of a plain m."""
    rng = np.random.default_rng(0)
    centres = np.abs(rng.standard_normal((200, 64)))

    def draw(count: int) -> np.ndarray:
        noise = rng.standard_normal((count, 64))
        return np.abs(centres[rng.integers(0, 200, count)] + noise).astype(np.float32)

    plain = fb.SelectionProblem.from_centroids(draw(21_000), draw(1000), m=1000, k=3)
    cost = rng.lognormal(size=21_000)
    lines, seconds = [], []
    for name, problem in (
        ("m = 1000", plain),
        ("budget = 1000", plain.replace(m=None, cost=cost, budget=1000.0)),
    ):
        start = time.process_time()
        found = fb.select(problem)
        seconds.append(time.process_time() - start)
        lines.append(
            f"| {name} | {len(found.indices)} | {100 * found.gap:.4f} | {seconds[-1]:.1f} |"
        )
    return [
        "1000 novel classes x 21,000 candidates (drawn, 64 dimensions), K = 3, `auto`, one run "
        "each, processor time:",
        "",
        "| limit | classes | gap (%) | seconds |",
        "|---|---|---|---|",
        *lines,
        "",
        f"The budget takes {seconds[1] / seconds[0]:.1f} times as long as the plain m.",
    ]


def main() -> None:
    """Run all settings and write the page."""
    here = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("FSL_BASESEL_DATA", here.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--skip-large", action="store_true", help="leave the 21,000 out")
    args = parser.parse_args()
    lines = [
        "# Budgets and caps",
        "",
        "Made by `python benchmarks/limits.py` on 400 random candidates and 100 novel classes of",
        "ImageNet-1k (EfficientNet-Lite0 features, cosine), seed 0.",
        "",
        *small(args.data),
    ]
    if not args.skip_large:
        lines += ["", *large()]
        (here / "docs" / "results" / "limits.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
