"""`fsl-basesel demo`: a real selection on embedded data, every algorithm, and the reasons."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from rich.text import Text
from torch.nn import functional

import fsl_basesel as fb
from fsl_basesel.cli import compare, output, tables
from fsl_basesel.data import ImageSet, glyphs
from fsl_basesel.data.glyphs import DOMAINS

ORIENTATIONS = 8
CELLS = 4
BATCH = 2048

EXAMPLES = """\
examples:
  fsl-basesel demo
  fsl-basesel demo --domain fine -m 20 --lam 0.2
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = (
        "Choose base classes among written characters for a task of other characters:\n"
        "every algorithm on the same problem, and why the best set was chosen. The images\n"
        "are made on the spot from fonts, so nothing is downloaded."
    )
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--domain",
        choices=DOMAINS,
        default="plain",
        help="novel characters at random (plain), of scripts that no candidate has (transfer), or "
        "accented Latin letters (fine)",
    )
    parser.add_argument("--candidates", type=int, default=400, help="candidate classes (400)")
    parser.add_argument("--novel", type=int, default=100, help="novel classes (100)")
    parser.add_argument("-m", type=int, default=100, help="how many classes to choose (100)")
    parser.add_argument(
        "-k", type=int, default=3, help="nearest base classes that count for a novel class (3)"
    )
    parser.add_argument("--lam", type=float, default=0.0, help="weight of the diversity term (0)")
    parser.add_argument("--seed", type=int, default=0, help="seed of split and methods (0)")
    parser.add_argument(
        "--out", default="runs/demo", metavar="DIR", help="where to save the result (runs/demo)"
    )


def run(args: argparse.Namespace) -> int:
    """Draw the images, compare the algorithms, explain the best, save it."""
    folder = Path(args.out)
    saved, table = folder / "selection.json", folder / "comparison.csv"
    output.check_out(str(saved))
    screen = output.PlainConsole()
    start = time.perf_counter()
    with output.working("Drawing characters"):
        pool, task = glyphs(args.domain, args.candidates, args.novel, seed=args.seed)
        previews, support = pool.preview_set(), task.support_set()
        candidates, novel = centroids(previews), centroids(support)
    centre = candidates.mean(axis=0)
    problem = fb.SelectionProblem.from_centroids(
        candidates - centre,
        novel - centre,
        m=args.m,
        k=args.k,
        lam=args.lam,
        names=pool.names,
        novel_names=task.names,
    )
    screen.print(
        Text(
            f"Characters as classes ({args.domain}): {len(previews)} preview images of "
            f"{len(pool)} candidates and {len(support)} support images of {len(task)} novel "
            f"classes, drawn and compared by their edges in "
            f"{tables.seconds(time.perf_counter() - start)}.\n"
        )
    )
    outcomes = compare.compare(problem, fb.methods(), args.seed)
    tables.print_comparison(screen, problem, outcomes)
    best = max((outcome.selection for outcome in outcomes), key=lambda found: found.value)
    print_reasons(screen, best)
    output.save_text(saved, best.to_json() + "\n")
    output.save_text(table, compare.to_csv(problem, outcomes))
    screen.print(Text(f"\nSaved {saved} and {table}", style="dim"), soft_wrap=True)
    return 0


def print_reasons(screen: output.PlainConsole, selection: fb.Selection, count: int = 3) -> None:
    """Why the most useful classes were chosen, and what some novel classes got."""
    reasons = selection.explain()
    screen.print(Text(f"\nWhy these classes ({selection.method})?", style="bold"))
    for row in sorted(reasons.chosen, key=lambda row: (-row.loss, row.index))[:count]:
        names = ", ".join(short(name) for name in row.serves[:3])
        more = f" and {len(row.serves) - 3} more" if len(row.serves) > 3 else ""
        screen.print(
            Text.assemble(
                (short(row.name), "cyan"),
                f" is among the nearest base classes of {names}{more}. "
                f"Without it the value would fall by {row.loss:.5f}.",
            )
        )
    screen.print(Text("\nWhat do the novel classes get?", style="bold"))
    ranked = sorted(reasons.novel, key=lambda served: -sum(value for _, value in served.neighbours))
    for title, served in zip(
        ("best served", "typical", "worst served"),
        (ranked[0], ranked[len(ranked) // 2], ranked[-1]),
        strict=True,
    ):
        near = ", ".join(f"{short(name)} ({value:.2f})" for name, value in served.neighbours)
        screen.print(
            Text.assemble((short(served.name), "cyan"), f" ({title}) is nearest to {near}.")
        )


def short(name: str) -> str:
    """A class name without its group, in small letters.

    Example:
        >>> short("Cyrillic: Ж CYRILLIC CAPITAL LETTER ZHE")
        'Ж cyrillic capital letter zhe'
    """
    glyph, _, words = name.partition(": ")[2].partition(" ")
    return f"{glyph} {words.lower()}"


def centroids(images: ImageSet) -> np.ndarray:
    """Mean edge histogram of each class, `[classes, CELLS * CELLS * ORIENTATIONS]` float64."""
    numbers = np.arange(len(images))
    pieces = [images.batch(numbers[i : i + BATCH]) for i in range(0, len(images), BATCH)]
    features = torch.cat([edge_histograms(drawn) for drawn, _ in pieces])
    return fb.class_centroids(features, torch.cat([labels for _, labels in pieces]).numpy())


def edge_histograms(images: torch.Tensor) -> torch.Tensor:
    """A fixed description of shapes, nothing learnt: how strong edges of each direction are, where.

    Args:
        images: `[B, 1, H, W]`.

    Returns:
        `[B, CELLS * CELLS * ORIENTATIONS]`, rows of length one (zero for an even image).

    Example:
        >>> bars = torch.zeros(2, 1, 28, 28)
        >>> bars[0, 0, :, 10:14] = 1  # a vertical and
        >>> bars[1, 0, 10:14, :] = 1  # a horizontal bar have no edge direction in common
        >>> float(edge_histograms(bars)[0] @ edge_histograms(bars)[1]) < 0.1
        True
    """
    padded = functional.pad(images, (1, 1, 1, 1), mode="replicate")
    across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    strength = torch.sqrt(across**2 + down**2)
    # An edge has a direction but no sign: the angle counts modulo half a turn.
    turn = torch.atan2(down, across) / torch.pi % 1.0 * ORIENTATIONS
    bins = torch.arange(ORIENTATIONS).reshape(1, -1, 1, 1)
    distance = (turn - bins).abs()
    distance = torch.minimum(distance, ORIENTATIONS - distance)
    share = (1.0 - distance).clamp(min=0.0)  # each edge goes to its two nearest bins
    pooled = functional.adaptive_avg_pool2d(strength * share, CELLS)
    return functional.normalize(pooled.flatten(1).sqrt(), dim=1)
