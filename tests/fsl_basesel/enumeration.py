"""The objective written down plainly, and every subset of a small instance tried."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from fsl_basesel import SelectionProblem


def plain_value(
    similarity: np.ndarray,
    chosen: tuple[int, ...],
    *,
    m: int,
    k: int,
    lam: float = 0.0,
    selected: tuple[int, ...] = (),
    cost: np.ndarray | None = None,
    mu: float = 0.0,
    floor: float | None = None,
) -> float:
    """Eq. 3 with the cost term, straight from the paper (and the floor from the notes)."""
    matrix = np.asarray(similarity, np.float64)
    missing = min(0.0, matrix.min()) if floor is None else floor
    base = list(selected) + list(chosen)
    total = 0.0
    for row in matrix:
        best = sorted((row[u] for u in base), reverse=True)[:k]
        best += [missing] * (k - len(best))
        total += sum(best) / k
        if base:
            total -= lam / max(1, len(selected) + m) * sum(row[u] for u in base)
    total /= len(matrix)
    return total - (mu * sum(cost[u] for u in chosen) if cost is not None else 0.0)


def all_choices(problem: SelectionProblem) -> list[tuple[int, ...]]:
    """Every subset of B_u of size m."""
    return list(combinations(problem.unselected.tolist(), problem.m))


def optimum(problem: SelectionProblem) -> float:
    """The best value of all subsets."""
    return max(problem.value(choice) for choice in all_choices(problem))


def greedy_after(problem: SelectionProblem, start: list[int], count: int) -> list[int]:
    """`count` picks after `start`, each the one of largest gain, ties to the lowest index.

    Without lam and cost, K grows by one wherever no class has a gain, up to |B|.
    """
    picks: list[int] = []
    k = problem.k
    for _ in range(count):
        gains = problem.replace(k=k).gains(start + picks)
        while not problem.modular.any() and gains.max() == 0 and k < problem.n_candidates:
            k += 1
            gains = problem.replace(k=k).gains(start + picks)
        picks.append(int(gains.argmax()))
    return picks


def random_problem(
    seed: int, *, general: bool = False, signed: bool = False, **settings: object
) -> SelectionProblem:
    """A small random instance from clustered features; settings not given are drawn."""
    rng = np.random.default_rng(seed)
    n_candidates, n_novel, d = int(rng.integers(4, 10)), int(rng.integers(1, 7)), 4
    centres = rng.standard_normal((3, d))
    draw = lambda count: centres[rng.integers(0, 3, count)] + rng.standard_normal((count, d))  # noqa: E731
    candidates, novel = draw(n_candidates), draw(n_novel)
    if not signed:
        candidates, novel = np.abs(candidates), np.abs(novel)
    selected = rng.permutation(n_candidates)[: int(rng.integers(0, 3))].tolist()
    chosen = {
        "k": int(rng.integers(1, 5)),
        "lam": float(rng.choice([0.0, 0.2, 0.5])),
        "selected": selected,
        "cost": rng.random(n_candidates),
        "mu": float(rng.choice([0.0, 0.1])),
    } | settings
    if not chosen["mu"]:
        chosen["cost"] = None
    free = n_candidates - len(chosen["selected"])  # type: ignore[arg-type]
    chosen.setdefault("m", int(rng.integers(0, free + 1)))
    target = None if general else novel
    return SelectionProblem.from_centroids(candidates, target, similarity="cosine", **chosen)  # type: ignore[arg-type]
