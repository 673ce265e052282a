"""Which R^2 finds the K that made the accuracies, and which slopes find lam: synthetic studies.

    python benchmarks/study_criteria.py [--repeats 100]

Accuracies are made from x1 at a planted K and x2 with lam = 0.3, slopes that differ between novel
classes, noise shared by the classes of a base set, and binomial noise of testing.
"""

from __future__ import annotations

import argparse

import numpy as np

from fsl_basesel.study.least_squares import Moments, Sample, left_out_pooled, mean, top_means

KS = (1, 2, 3, 5, 7, 10, 15, 20)
LAM = 0.3
CRITERIA = ("R2 of classes", "pooled", "pooled, left out")


def make(rng: np.random.Generator, sets: int, k: int, differing: float, novel: int = 100):
    candidates, targets = (np.abs(rng.normal(size=(n, 24))) ** 1.5 for n in (400, novel))
    candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    member = np.zeros((sets, 400), dtype=bool)
    for row in member:
        row[rng.choice(400, 100, replace=False)] = True
    x1, x2 = top_means(targets @ candidates.T, member, KS)
    one = 1 + differing * rng.normal(size=novel)
    two = -LAM * (1 + differing * rng.normal(size=novel))
    level = 0.5 + 0.15 * rng.normal(size=novel)
    level = level + one * (x1[k] - x1[k].mean(axis=0)) + two * (x2 - x2.mean(axis=0))
    level = level + 0.01 * rng.normal(size=(sets, 1)) + 0.05 * rng.normal(size=x2.shape)
    return x1, x2, rng.binomial(30, np.clip(level, 0, 1)) / 30


def measure(sets: int, k: int, differing: float, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    hits, lams = np.zeros(len(CRITERIA)), []
    for seed in range(repeats):
        x1, x2, accuracy = make(np.random.default_rng(seed), sets, k, differing)
        scores = []
        for each in KS:
            sample = Sample.of(x1[each], x2, accuracy)
            moments = Moments.of(sample)
            fit, pooled = moments.fit(), moments.pooled().fit()
            scores.append((mean(fit.r2), float(pooled.r2), left_out_pooled(sample)))
            if each == k:
                single = -mean(fit.beta2) / mean(fit.beta1)
                lams.append((single, -float(pooled.beta2 / pooled.beta1)))
        hits += np.array(KS)[np.argmax(scores, axis=0)] == k
    return hits / repeats, np.sqrt(np.mean((np.array(lams) - LAM) ** 2, axis=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=100)
    repeats = parser.parse_args().repeats
    print(
        "| sets | K | slopes differ | " + " | ".join(CRITERIA) + " | lam, classes | lam, pooled |"
    )
    print("|" + "---|" * 8)
    for sets in (20, 60, 100):
        for k in (2, 7):
            for differing in (0.5, 1.0):
                hits, errors = measure(sets, k, differing, repeats)
                cells = [f"{hit:.0%}" for hit in hits] + [f"{error:.2f}" for error in errors]
                print(f"| {sets} | {k} | {differing} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
