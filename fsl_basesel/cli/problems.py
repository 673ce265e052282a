"""The arguments that describe a selection problem, and the problem made from them."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsl_basesel.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from fsl_basesel.photographs import EmbeddingJob
    from fsl_basesel.problem import SelectionProblem
    from fsl_basesel.selection import Selection
    from fsl_basesel.similarity import ClassCentroids

FILES = """\
input:
  CANDIDATES and NOVEL are folders with one folder of pictures for each class, or
  files of features: .npz, .npy, .pt, .safetensors, .csv or .parquet, with one row
  per class (centroids), or one row per sample and labels. Keys are features,
  labels and names; FILE:KEY names other features, FILE:features=KEY,labels=KEY
  any of them. See docs/cli.md."""

DEFAULT_M, DEFAULT_K = 100, 3


def add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    """What to choose from, for whom, and by which objective."""
    files = parser.add_argument_group("input")
    files.add_argument("candidates", nargs="?", metavar="CANDIDATES", help="candidate base classes")
    files.add_argument(
        "--novel",
        metavar="NOVEL",
        help="novel classes of the task; without it the candidates stand for all classes to come. "
        "With a backbone that knows text, also a list of class names (.txt)",
    )
    files.add_argument(
        "--similarity",
        metavar="NAME|FILE",
        help="how classes are compared: cosine (the paper, the default), centred or whitened; or, "
        "instead of CANDIDATES and NOVEL, a matrix of similarities, rows novel classes, columns "
        "candidates (./whitened names a file)",
    )
    files.add_argument(
        "--centre",
        choices=("candidates", "each"),
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
        "--weights",
        metavar="FILE",
        help="how much each novel class counts: a .csv with the columns name,weight, or an array "
        "(.npy); by default the key `weights` of NOVEL, else all the same",
    )
    add_picture_arguments(parser)
    add_limit_arguments(parser)
    objective = parser.add_argument_group("objective")
    objective.add_argument("-m", type=int, help=f"how many classes to choose ({DEFAULT_M})")
    objective.add_argument(
        "-k", type=int, help=f"how many nearest base classes count for a novel class ({DEFAULT_K})"
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
        "--mu", type=float, metavar="X", help="weight of the cost in the objective (0)"
    )


def add_limit_arguments(parser: argparse.ArgumentParser) -> None:
    """What a choice has to keep to."""
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--budget", type=float, metavar="X", help="what the chosen classes may cost together"
    )
    group.add_argument(
        "--cost",
        metavar="FILE",
        help="cost of each candidate: a .csv with the columns name,cost, or an array (.npy); by "
        "default 1 each",
    )
    group.add_argument(
        "--images-per-class",
        type=int,
        metavar="N",
        help="instead: a class costs what it lacks to N images",
    )
    group.add_argument("--exclude", metavar="FILE", help="classes that cannot be had (.txt, .csv)")
    group.add_argument("--include", metavar="FILE", help="classes that must be in (.txt, .csv)")
    group.add_argument(
        "--groups",
        metavar="FILE",
        help="a .csv with the columns name,group; by default the key `groups` of CANDIDATES",
    )
    group.add_argument("--at-most", type=int, metavar="N", help="most classes of a group")
    group.add_argument("--at-least", type=int, metavar="N", help="fewest classes of a group")
    group.add_argument(
        "--limits",
        metavar="FILE",
        help="a .json with all of these, as the report saves it; options win (docs/budgets.md)",
    )


def add_picture_arguments(parser: argparse.ArgumentParser) -> None:
    """How folders of pictures become features."""
    group = parser.add_argument_group("folders of pictures")
    group.add_argument(
        "--backbone",
        metavar="NAME",
        help="the network: efficientnet-lite0 (the default, trained on ImageNet), "
        "torchvision:NAME[@WEIGHTS], timm:NAME[@FILE], open_clip:NAME@TAG, RUN.ckpt or "
        "package.module:function; WEIGHTS may be a file",
    )
    group.add_argument(
        "--per-class", type=int, metavar="N", help="images looked at of each class (50)"
    )
    group.add_argument("--size", type=int, metavar="PX", help="side of the images (the network's)")
    group.add_argument(
        "--normalize",
        choices=("imagenet", "half", "none"),
        help="how pixels are scaled, where the weights do not say",
    )
    group.add_argument(
        "--download", action="store_true", help="weights that are not here may be fetched"
    )
    group.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="where the network runs, and the climb of double-greedy: cpu, cuda or auto "
        "(%(default)s)",
    )
    group.add_argument(
        "--precision", choices=("float32", "bfloat16"), help="numbers of the network (float32)"
    )
    group.add_argument("--workers", type=int, metavar="N", help="processes that read images")
    group.add_argument(
        "--skip-damaged", action="store_true", help="leave images out that cannot be read"
    )


@dataclass(frozen=True)
class Inputs:
    """A problem, and where it came from.

    Attributes:
        problem: The problem.
        candidates: The candidates' centroids; None with a matrix of similarities.
        novel: The novel classes' centroids, if there are any.
        pictures: The embeddings of the folders of pictures among the inputs, by "candidates" and
            "novel".
    """

    problem: SelectionProblem
    candidates: ClassCentroids | None = None
    novel: ClassCentroids | None = None
    pictures: dict[str, EmbeddingJob] | None = None

    @property
    def groups(self) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """Groups of the candidates and of the novel classes, where they are known."""
        one, two = self.candidates, self.novel
        return None if one is None else one.groups, None if two is None else two.groups

    @property
    def trained(self) -> bool:
        """False if a network with random weights made the features."""
        return all(job.backbone.trained for job in (self.pictures or {}).values())


def picture_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `EmbeddingJob` that were given."""
    names = ("per_class", "size", "normalize", "device", "precision", "workers")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    skip = {"on_corrupt": "skip"} if args.skip_damaged else {}
    return {**given, **skip, "download": args.download, "seed": getattr(args, "seed", 0)}


def embedding_jobs(args: argparse.Namespace) -> dict[str, EmbeddingJob]:
    """An embedding for each of CANDIDATES and NOVEL that is a folder; one network for both.

    Raises:
        InputError: A folder or the network cannot be used, or its options are given without one.
    """
    sides = {"candidates": args.candidates, "novel": args.novel}
    folders = {side: path for side, path in sides.items() if path and Path(path).is_dir()}
    if not folders:
        if args.backbone and not _is_names(args.novel):
            raise InputError(
                "Expected a folder of pictures as CANDIDATES or NOVEL for --backbone but got files "
                "of features; leave --backbone out"
            )
        return {}
    from fsl_basesel.backbones import DEFAULT, load_backbone
    from fsl_basesel.photographs import EmbeddingJob

    options = picture_options(args)
    network = load_backbone(
        args.backbone or DEFAULT,
        **{name: options.pop(name, None) for name in ("size", "normalize")},
        download=options.pop("download"),
    )
    return {
        side: EmbeddingJob(path, network, title=f"images of {path}", **options)
        for side, path in folders.items()
    }


def _is_names(novel: str | None) -> bool:
    return novel is not None and novel.lower().endswith(".txt")


def build_inputs(args: argparse.Namespace) -> Inputs:
    """Read what was named and make the problem.

    Raises:
        InputError: An argument or a file cannot be used.
    """
    from fsl_basesel.distributed import all_or_none, launched
    from fsl_basesel.files.classes import read_similarity
    from fsl_basesel.problem import SelectionProblem
    from fsl_basesel.similarity import SIMILARITIES

    if args.similarity is not None and args.similarity not in SIMILARITIES:
        if args.candidates is not None or args.novel is not None:
            raise InputError(
                "Expected either a matrix of --similarity or CANDIDATES (with --novel) but got "
                f"both; leave one out, or name a similarity: {', '.join(SIMILARITIES)}"
            )
        matrix = all_or_none(lambda: read_similarity(args.similarity))
        rows, columns = matrix.values.shape
        names = matrix.names or tuple(str(i) for i in range(columns))
        novel_names = matrix.novel_names or tuple(str(i) for i in range(rows))
        settings = all_or_none(lambda: _settings(args, names, novel_names) | limits_of(args, names))
        whole = SelectionProblem(matrix.values, names=names, novel_names=novel_names, **settings)
        return Inputs(whole.shard() if launched() else whole)
    if args.candidates is None:
        raise InputError(
            "Expected a file or folder of CANDIDATES or --similarity FILE but got neither; name it "
            "first, as in: fsl-basesel select pool.npz --novel task.npz"
        )
    jobs = all_or_none(lambda: embedding_jobs(args))
    candidates = all_or_none(lambda: _classes(args.candidates, jobs.get("candidates"), args))
    novel = None
    if args.novel is not None:
        novel = all_or_none(lambda: _classes(args.novel, jobs.get("novel"), args))
    if novel is not None:
        _note_shared(candidates.names, novel.names)
    task = candidates if novel is None else novel
    problem = SelectionProblem.from_centroids(
        candidates,
        novel,
        similarity=args.similarity or "cosine",
        centre=args.centre,
        spread=launched(),
        **all_or_none(
            lambda: (
                _settings(args, candidates.names, task.names)
                | limits_of(args, candidates.names, candidates, jobs.get("candidates"))
            )
        ),
    )
    return Inputs(problem, candidates, novel, jobs)


def _classes(path: str, job: EmbeddingJob | None, args: argparse.Namespace) -> ClassCentroids:
    if job is not None:
        try:
            return job.centroids()
        except (RuntimeError, AssertionError) as error:
            if args.size is None:
                raise
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"Expected {job.backbone.name} to take images of {args.size} pixels but it cannot "
                f"({reason}); leave --size out"
            ) from error
    if _is_names(path) and args.backbone:
        from fsl_basesel.photographs import embed_texts

        lines = (line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines())
        return embed_texts([line for line in lines if line], args.backbone, download=args.download)
    from fsl_basesel.files.classes import read_classes

    return read_classes(path)


def weights(args: argparse.Namespace) -> tuple[int, float]:
    """k and lam: what was typed, else what was suggested, else 3 and 0.

    A suggested lam belongs to its k: with another k typed, it is the one the study found for that.

    Raises:
        InputError: The file is no suggestion, or the study has not looked at the k typed.
    """
    if args.suggestion is None:
        return (DEFAULT_K if args.k is None else args.k), (0.0 if args.lam is None else args.lam)
    from fsl_basesel.study.suggestion import Suggestion

    suggestion = Suggestion.load(args.suggestion)
    k = suggestion.k if args.k is None else args.k
    return k, (suggestion.lam_at(k) if args.lam is None else args.lam)


def defaults(args: argparse.Namespace) -> list[str]:
    """A note on which of m and k were not given: they decide the choice."""
    names = []
    if args.m is None and args.budget is None and args.limits is None:
        names.append(f"m = {DEFAULT_M}")
    if args.k is None and args.suggestion is None:
        names.append(f"k = {DEFAULT_K}")
    return [f"{' and '.join(names)} by default; give -m and -k to choose"] if names else []


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


def _settings(
    args: argparse.Namespace, names: tuple[str, ...], novel_names: tuple[str, ...]
) -> dict[str, Any]:
    from fsl_basesel.files.lists import numbers, read_names, read_values

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
    settings: dict[str, Any] = {"k": k, "lam": lam, "selected": selected}
    if args.weights is not None:
        listed = read_values(args.weights, novel_names, "weight")
        settings["weights"] = numbers(listed, novel_names, "weight")
    return settings


LIMITS_FORMAT = "fsl-basesel limits 1"


def limits_of(
    args: argparse.Namespace,
    names: tuple[str, ...],
    candidates: ClassCentroids | None = None,
    job: EmbeddingJob | None = None,
) -> dict[str, Any]:
    """m, mu, costs and limits of the problem: from options, else from `--limits`.

    Args:
        args: The options.
        names: Names of the candidates.
        candidates: The candidates, for their groups and numbers of images.
        job: Their embedding, where they are a folder.

    Raises:
        InputError: A file cannot be used, or options contradict each other.
    """
    from fsl_basesel.files.classes import named_in
    from fsl_basesel.files.lists import by_name, numbers, positions, read_names, read_values

    found: dict[str, Any] = {}
    if args.limits is not None:
        limits = _read_limits(args.limits)
        with named_in(args.limits):
            for key in ("m", "budget", "at_most", "at_least"):
                if limits.get(key) is not None:
                    found[key] = limits[key]
            for key in ("exclude", "include"):
                if limits.get(key):
                    found[key] = positions(limits[key], names)
            if limits.get("groups") is not None:
                found["groups"] = by_name(limits["groups"], names, "group")
            if limits.get("cost") is not None:
                found["cost"] = numbers(by_name(limits["cost"], names, "cost"), names, "cost")
    for key in ("m", "mu", "budget", "at_most", "at_least"):
        if getattr(args, key) is not None:
            found[key] = getattr(args, key)
    for key in ("exclude", "include"):
        if getattr(args, key) is not None:
            found[key] = read_names(getattr(args, key), names)
    if args.groups is not None:
        found["groups"] = read_values(args.groups, names, "group")
    elif "groups" not in found and candidates is not None and {"at_most", "at_least"} & set(found):
        found["groups"] = candidates.groups
    if args.images_per_class is not None:
        if args.cost is not None:
            raise InputError("Expected --cost or --images-per-class but got both; leave one out")
        found["cost"] = _missing_images(args.images_per_class, candidates, job)
    elif args.cost is not None:
        found["cost"] = numbers(read_values(args.cost, names, "cost"), names, "cost")
    if "cost" in found and not {"mu", "budget"} & set(found):
        raise InputError("Expected --budget or --mu with a cost but got neither; add one of them")
    if "mu" in found and "cost" not in found:
        raise InputError("Expected --cost with --mu but got none; add --cost")
    return found


def _read_limits(path: str) -> dict[str, Any]:
    from fsl_basesel.files.writing import load_json

    known = {"m", "budget", "cost", "exclude", "include", "groups", "at_most", "at_least"}
    limits = load_json(path, LIMITS_FORMAT, what=f"limits of the format {LIMITS_FORMAT!r}")
    unknown = sorted(set(limits) - known - {"classes"})
    if unknown:
        raise InputError(
            f"Expected {path} to hold some of {', '.join(sorted(known))} but got '{unknown[0]}'; "
            "see docs/budgets.md"
        )
    return limits


def _missing_images(
    count: int, candidates: ClassCentroids | None, job: EmbeddingJob | None
) -> np.ndarray:
    """How many images each class lacks to `count`."""
    import numpy as np

    there = None if candidates is None else candidates.images
    if job is not None:
        there = job.images.source.sizes
    if there is None:
        raise InputError(
            "Expected candidates with a number of images each (a folder, or a file with the key "
            "`images`) for --images-per-class; give --cost instead"
        )
    return np.maximum(0, count - np.asarray(there)).astype(np.float64)


def improved_by_page(
    args: argparse.Namespace, problem: SelectionProblem, selection: Selection
) -> Selection:
    """The selection, or the classes that the page chose (`classes` of `--limits`) if better."""
    import dataclasses

    from fsl_basesel.files.lists import positions
    from fsl_basesel.selection import Selection

    classes = _read_limits(args.limits).get("classes") if args.limits else None
    if not classes:
        return selection
    try:
        other = Selection.of(problem, list(positions(classes, problem.names)), method="page")
    except InputError as error:
        warnings.warn(f"the choice saved in {args.limits} is left out: {error}", stacklevel=2)
        return selection
    if other.value <= selection.value:
        return selection
    other = dataclasses.replace(other, seed=selection.seed, nu=selection.nu)
    return other if selection.upper_bound is None else other.certified(selection.upper_bound)
