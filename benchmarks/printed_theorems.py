"""How often do the guarantees fail, as printed and as corrected, on small random instances?

    python benchmarks/printed_theorems.py

Every optimum by enumeration; Algorithm 3's expectation exactly, over its tree of decisions, where
at most three classes are added or dropped.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the helpers of the tests

import fsl_basesel as fb
from fsl_basesel import bounds
from tests.fsl_basesel.enumeration import optimum
from tests.fsl_basesel.selectors.test_random_greedy import expected_value


def instance(seed: int, lam: float) -> fb.SelectionProblem:
    """A matrix of one of four kinds: uniform, 0/1, skewed, few levels."""
    rng = np.random.default_rng(seed)
    n_candidates, n_novel = int(rng.integers(4, 10)), int(rng.integers(1, 7))
    k, shape = int(rng.integers(1, 3)), (n_novel, n_candidates)
    similarity = [
        lambda: rng.random(shape),
        lambda: (rng.random(shape) < 0.4).astype(float),
        lambda: rng.random(shape) ** 4,
        lambda: rng.integers(0, 3, shape) / 2,
    ][seed % 4]()
    return fb.SelectionProblem(similarity, m=int(rng.integers(1, n_candidates)), k=k, lam=lam)


def theorem_2_as_printed(problem: fb.SelectionProblem) -> fb.Guarantee:
    """h(U) >= (1 - 1/e) h(OPT) + Q/e, as the paper has it; not true of every instance."""
    return fb.Guarantee(1 - 1 / math.e, bounds.average_similarity(problem) / math.e)


def theorem_4_random_greedy_as_printed(problem: fb.SelectionProblem) -> fb.Guarantee:
    """E h(U) >= (1 - m/(e r))/e h(OPT) + C1 Q, r = |B_u|, as the paper has it.

    C1 = 1/e + (1 - 1/e)(m/r - lam), positive for lam < 1/(e - 1) (correction 9 in docs/paper.md).
    Not true of every instance: limits K -> 0 and m -> infinity are taken on the way.
    """
    share = problem.m / len(problem.unselected)
    c1 = 1 / math.e + (1 - 1 / math.e) * (share - problem.lam)
    ratio = (1 - share / math.e) / math.e
    return fb.Guarantee(ratio, c1 * bounds.average_similarity(problem), expected=True)


def theorem_4_double_greedy_as_printed(problem: fb.SelectionProblem) -> fb.Guarantee:
    """h(U) >= (1 + r/(2 sqrt((r-m) m)))^-1 h(OPT) + C2 Q, r = |B_u|, as the paper has it.

    C2 = (1 - lam) r / (2 sqrt((r-m) m) + r). Not true of every instance.
    """
    r, m = len(problem.unselected), problem.m
    root = 2 * math.sqrt((r - m) * m)
    c2 = (1 - problem.lam) * r / (root + r)
    return fb.Guarantee(root / (root + r), c2 * bounds.average_similarity(problem))


def main() -> None:
    """Count and print."""
    tried, failed = Counter[str](), Counter[str]()

    def check(name: str, value: float, guarantee: bounds.Guarantee, best: float) -> None:
        tried[name] += 1
        failed[name] += value < guarantee.lower_bound(best) - 1e-9

    for seed in track(range(600), "instances"):
        for lam in (0.0, 0.2, 0.5):
            problem = instance(seed, lam)
            best = optimum(problem)
            greedy = fb.GreedyOnTarget().select(problem).value
            check("Theorem 2, corrected", greedy, bounds.theorem_2(problem), best)
            if lam == 0.0:
                check("Theorem 2, printed", greedy, theorem_2_as_printed(problem), best)
                continue
            value = fb.ContinuousDoubleGreedy().select(problem).value
            corrected = bounds.theorem_4_double_greedy(problem)
            check("Theorem 4, Alg. 4, corrected", value, corrected, best)
            printed = theorem_4_double_greedy_as_printed(problem)
            check("Theorem 4, Alg. 4, printed", value, printed, best)
            if min(problem.m, problem.n_candidates - problem.m) <= 3:
                value = expected_value(problem)
                corrected = bounds.theorem_4_random_greedy(problem)
                check("Theorem 4, Alg. 3, corrected", value, corrected, best)
                printed = theorem_4_random_greedy_as_printed(problem)
                check("Theorem 4, Alg. 3, printed", value, printed, best)
    for name in sorted(tried):
        print(f"{name}: fails on {failed[name]} of {tried[name]}")


if __name__ == "__main__":
    main()
