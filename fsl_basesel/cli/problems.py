"""The arguments that describe a selection problem, and the problem made from them."""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from fsl_basesel.errors import InputError
from fsl_basesel.files.classes import read_classes, read_similarity
from fsl_basesel.files.lists import numbers, read_names, read_values
from fsl_basesel.problem import SelectionProblem
from fsl_basesel.similarity import CENTRES, SIMILARITIES

FILES = """\
files:
  CANDIDATES and NOVEL are .npz, .npy, .pt, .safetensors, .csv or .parquet, with
  one row per class (centroids), or one row per sample and labels (centroids are
  computed). Keys are features, labels and names; FILE:KEY names other features,
  FILE:features=KEY,labels=KEY,names=KEY any of them. See docs/cli.md."""


def add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    """What to choose from, for whom, and by which objective."""
    files = parser.add_argument_group("input")
    files.add_argument("candidates", nargs="?", metavar="CANDIDATES", help="candidate base classes")
    files.add_argument(
        "--novel",
        metavar="NOVEL",
        help="novel classes of the task; without it the candidates stand for all classes to come",
    )
    files.add_argument(
        "--similarity",
        metavar="NAME|FILE",
        help="how classes are compared: cosine (the paper, the default), centred or whitened; or, "
        "instead of both files, a matrix of similarities, rows novel classes, columns candidates "
        "(./whitened names a file)",
    )
    files.add_argument(
        "--centre",
        choices=CENTRES,
        default="candidates",
        help="for centred and whitened: the candidates' mean is subtracted from both sides "
        "(candidates), or each side's own mean, if they come from different sources (each)",
    )
    files.add_argument(
        "--selected",
        metavar="FILE",
        action="append",
        default=[],
        help="classes already in the base set: a saved selection (.json) or a list of names "
        "(.txt, or .csv with a column name); may be given several times",
    )
    files.add_argument(
        "--cost",
        metavar="FILE",
        help="cost of each candidate: a .csv with the columns name,cost, or an array (.npy)",
    )
    objective = parser.add_argument_group("objective")
    objective.add_argument(
        "-m", type=int, default=100, help="how many classes to choose (%(default)s)"
    )
    objective.add_argument(
        "-k", type=int, help="how many nearest base classes count for a novel class (3)"
    )
    objective.add_argument(
        "--lam", type=float, metavar="X", help="weight of the diversity term (0)"
    )
    objective.add_argument(
        "--suggestion",
        metavar="FILE",
        help="take k and lam from what `fsl-basesel suggest --out` saved, where they are not given",
    )
    objective.add_argument(
        "--mu", type=float, metavar="X", help="weight of the cost; required with --cost"
    )


def build_problem(args: argparse.Namespace) -> SelectionProblem:
    """Read the files and make the problem.

    Raises:
        InputError: An argument or a file cannot be used.
    """
    if (args.cost is None) != (args.mu is None):
        given, missing = ("--cost", "--mu") if args.mu is None else ("--mu", "--cost")
        raise InputError(f"Expected --cost and --mu together but got {given} alone; add {missing}")
    if args.similarity is not None and args.similarity not in SIMILARITIES:
        if args.candidates is not None or args.novel is not None:
            raise InputError(
                "Expected either a matrix of --similarity or CANDIDATES (with --novel) but got "
                f"both; leave one out, or name a similarity: {', '.join(SIMILARITIES)}"
            )
        matrix = read_similarity(args.similarity)
        names = matrix.names or tuple(str(i) for i in range(matrix.values.shape[1]))
        return SelectionProblem(
            matrix.values, names=names, novel_names=matrix.novel_names, **_settings(args, names)
        )
    if args.candidates is None:
        raise InputError(
            "Expected a file of CANDIDATES or --similarity FILE but got neither; name the file "
            "first, as in: fsl-basesel select pool.npz --novel task.npz"
        )
    candidates = read_classes(args.candidates)
    novel = None if args.novel is None else read_classes(args.novel)
    if novel is not None:
        _note_shared(candidates.names, novel.names)
    return SelectionProblem.from_centroids(
        candidates.values,
        None if novel is None else novel.values,
        names=candidates.names,
        novel_names=None if novel is None else novel.names,
        similarity=args.similarity or "cosine",
        centre=args.centre,
        **_settings(args, candidates.names),
    )


def weights(args: argparse.Namespace) -> tuple[int, float]:
    """k and lam: what was typed, else what was suggested, else 3 and 0.

    A suggested lam belongs to its k: with another k typed, it is the one the study found for that.

    Raises:
        InputError: The file is no suggestion, or the study has not looked at the k typed.
    """
    if args.suggestion is None:
        return (3 if args.k is None else args.k), (0.0 if args.lam is None else args.lam)
    from fsl_basesel.study import Suggestion

    suggestion = Suggestion.load(args.suggestion)
    k = suggestion.k if args.k is None else args.k
    return k, (suggestion.lam_at(k) if args.lam is None else args.lam)


def _note_shared(candidates: tuple[str, ...], novel: tuple[str, ...]) -> None:
    """Say so if the task is in the pool: its classes would then serve themselves."""
    known = set(candidates)
    shared = [name for name in novel if name in known]
    # Files without names number their classes, and numbers that agree mean nothing.
    if shared and not all(name.isdigit() for name in shared):
        warnings.warn(
            f"{len(shared)} of the {len(novel)} novel classes are candidates too (first: "
            f"'{shared[0]}'); leave them out of the pool unless they may be chosen",
            stacklevel=3,
        )


def _settings(args: argparse.Namespace, names: tuple[str, ...]) -> dict:
    selected: list[int] = []
    for path in args.selected:
        for index in read_names(path, names):
            if index in selected:
                raise InputError(
                    f"Expected the --selected files to name different classes but got "
                    f"'{names[index]}' again in {path}; remove it from one of them"
                )
            selected.append(index)
    k, lam = weights(args)
    cost: np.ndarray | None = None
    if args.cost is not None:
        cost = numbers(read_values(args.cost, names, "cost"), names, "cost")
    return {
        "m": args.m,
        "k": k,
        "lam": lam,
        "selected": selected,
        "cost": cost,
        "mu": args.mu or 0.0,
    }
