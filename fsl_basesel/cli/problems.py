"""The arguments that describe a selection problem, and the problem made from them."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsl_basesel.distributed import all_or_none, launched
from fsl_basesel.errors import InputError

if TYPE_CHECKING:
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

DEFAULT_M = 100
LIMITS_FORMAT = "fsl-basesel limits 1"
LIMITS = ("at_least", "at_most", "budget", "classes", "cost", "exclude", "groups", "include", "m")


def add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    """Candidates, novel classes and objective."""
    add = parser.add_argument_group("input").add_argument
    add("candidates", nargs="?", metavar="CANDIDATES", help="candidate base classes")
    task = "novel classes; without them the candidates stand for the unknown task"
    add("--novel", metavar="NOVEL", help=task)
    add(
        "--similarity",
        metavar="NAME|FILE",
        help="how classes are compared: cosine (the paper, the default), centred or whitened (the "
        "default without --novel if K is 1); or, instead of CANDIDATES and NOVEL, a matrix of "
        "similarities, rows novel classes, columns candidates (./whitened names a file)",
    )
    mean = "centred, whitened: subtract the candidates' mean, or from each side its own (each)"
    add("--centre", choices=("candidates", "each"), default="candidates", help=mean)
    selected = "classes already in the base set (.json, .txt, .csv); may be given several times"
    add("--selected", metavar="FILE", action="append", default=[], help=selected)
    add("--weights", metavar="FILE", help="how much each novel class counts (.csv: name,weight)")
    add_picture_arguments(parser)
    group = parser.add_argument_group("limits")
    add = group.add_argument
    add("--budget", type=float, metavar="X", help="what the chosen classes may cost together")
    price = group.add_mutually_exclusive_group().add_argument
    price("--cost", metavar="FILE", help="cost of each candidate (.csv: name,cost), else 1")
    price("--images-per-class", type=int, metavar="N", help="cost of a class: N minus its images")
    add("--exclude", metavar="FILE", help="classes that must not be chosen (.txt, .csv)")
    add("--include", metavar="FILE", help="classes that must be chosen (.txt, .csv)")
    add("--groups", metavar="FILE", help="groups (.csv: name,group), if CANDIDATES has none")
    add("--at-most", type=int, metavar="N", help="most classes of a group")
    add("--at-least", type=int, metavar="N", help="fewest classes of a group")
    add("--limits", metavar="FILE", help="all of these, as the page saves them; options win")
    add = parser.add_argument_group("objective").add_argument
    add("-m", type=int, help=f"how many classes to choose ({DEFAULT_M})")
    nearest = "how many nearest base classes count for a novel class (3, without --novel 1)"
    add("-k", type=int, help=nearest)
    add("--lam", type=float, metavar="X", help="weight of the diversity term (0)")
    add("--suggestion", metavar="FILE", help="k and lam as `fsl-basesel suggest --out` saved them")
    add("--mu", type=float, metavar="X", help="weight of the cost in the objective (0)")


def add_picture_arguments(parser: argparse.ArgumentParser) -> None:
    """How folders of pictures become features."""
    add = parser.add_argument_group("folders of pictures").add_argument
    add(
        "--backbone",
        metavar="NAME",
        help="the network: efficientnet-lite0 (the default, trained on ImageNet), "
        "torchvision:NAME[@WEIGHTS], timm:NAME[@FILE], open_clip:NAME@TAG, RUN.ckpt or "
        "package.module:function; WEIGHTS may be a file",
    )
    add("--per-class", type=int, metavar="N", help="images looked at of each class (50)")
    add("--size", type=int, metavar="PX", help="side of the images (the network's)")
    pixels = "pixel normalisation, if the weights define none"
    add("--normalize", choices=("imagenet", "half", "none"), help=pixels)
    add("--download", action="store_true", help="weights not on this machine may be downloaded")
    device = "device of the network and of double-greedy: cpu, cuda or auto"
    add("--device", default="auto", metavar="NAME", help=device)
    precision = "numbers of the network (float32); bfloat16 does not always choose the same classes"
    add("--precision", choices=("float32", "bfloat16"), help=precision)
    add("--workers", type=int, metavar="N", help="processes that read images")
    add("--skip-damaged", action="store_true", help="skip unreadable images")


@dataclass(frozen=True)
class Inputs:
    """A problem, and where it came from; with a matrix of similarities there are no centroids.

    `pictures` has the embeddings of folders among the inputs, by "candidates" and "novel", and
    `page_classes` the names that a page chose (`classes` of `--limits`).
    """

    problem: SelectionProblem
    candidates: ClassCentroids | None = None
    novel: ClassCentroids | None = None
    pictures: dict[str, EmbeddingJob] = field(default_factory=dict)
    page_classes: Sequence[str] = ()

    @property
    def groups(self) -> tuple[Sequence[str | None] | None, Sequence[str | None] | None]:
        """Groups of the candidates and of the novel classes, where they are known."""
        own, novel = (getattr(side, "groups", None) for side in (self.candidates, self.novel))
        return self.problem.groups or own, novel

    @property
    def trained(self) -> bool:
        """False if a network with random weights made the features."""
        return all(job.backbone.trained for job in self.pictures.values())


def picture_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `EmbeddingJob` that were given."""
    names = ("per_class", "size", "normalize", "device", "precision", "workers")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    skip = {"on_corrupt": "skip"} if args.skip_damaged else {}
    return {**given, **skip, "download": args.download, "seed": args.seed}


def embedding_jobs(args: argparse.Namespace) -> dict[str, EmbeddingJob]:
    """An embedding for each of CANDIDATES and NOVEL that is a folder; one network for both."""
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
        **{name: options.pop(name, None) for name in ("size", "normalize", "download")},
    )
    return {
        side: EmbeddingJob(path, network, title=f"images of {path}", **options)
        for side, path in folders.items()
    }


def _is_names(novel: str | None) -> bool:
    return novel is not None and novel.lower().endswith(".txt")


def build_inputs(args: argparse.Namespace) -> Inputs:
    """Read what was named and make the problem."""
    from fsl_basesel.files.classes import read_similarity
    from fsl_basesel.problem import SelectionProblem
    from fsl_basesel.similarity import SIMILARITIES

    if args.similarity is not None and args.similarity not in SIMILARITIES:
        if args.candidates is not None or args.novel is not None:
            raise InputError(
                "Expected either a matrix of --similarity or CANDIDATES (with --novel) but got "
                f"both; leave one out, or name a similarity: {', '.join(SIMILARITIES)}"
            )
        if args.centre != "candidates":
            raise InputError(
                "Expected --centre with CANDIDATES whose centroids are compared but got a matrix "
                "of --similarity; leave --centre out"
            )
        matrix = all_or_none(lambda: read_similarity(args.similarity))
        named: dict[str, Any] = {"names": matrix.names, "novel_names": matrix.novel_names}
        settings, page_classes = all_or_none(lambda: _settings(args, **named))
        settings = {"weights": matrix.weights} | settings
        problem = SelectionProblem(matrix.values, **named, **settings)
        problem = problem.shard() if launched() else problem
        return Inputs(problem, page_classes=page_classes)
    if args.candidates is None:
        raise InputError(
            "Expected a file or folder of CANDIDATES or --similarity FILE but got neither; name it "
            "first, as in: fsl-basesel select pool.npz --novel task.npz"
        )
    jobs = all_or_none(lambda: embedding_jobs(args))
    job = jobs.get("candidates")
    candidates = all_or_none(lambda: _classes(args.candidates, job, args))
    novel = None
    if args.novel is not None:
        novel = all_or_none(lambda: _classes(args.novel, jobs.get("novel"), args))
        _note_shared(candidates.names, novel.names)
    novel_names = (novel or candidates).names
    images = candidates.images if job is None else job.images.source.sizes
    settings, page_classes = all_or_none(
        lambda: _settings(args, candidates.names, novel_names, candidates.groups, images)
    )
    if getattr(args, "method", None) == "paper":  # as the paper has it, with and without a task
        settings = {"k": 3, "similarity": args.similarity or "cosine"} | settings
    problem = SelectionProblem.from_centroids(
        candidates,
        novel,
        centre=args.centre,
        spread=launched(),
        **{"similarity": args.similarity} | settings,
    )
    return Inputs(problem, candidates, novel, jobs, page_classes)


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
        from fsl_basesel.cli.lists import read_list
        from fsl_basesel.photographs import embed_texts

        return embed_texts(read_list(path), args.backbone, download=args.download)
    from fsl_basesel.files.classes import read_classes

    return read_classes(path)


def defaults(args: argparse.Namespace, problem: SelectionProblem) -> list[str]:
    """A note on which of m and k were not given: they decide the choice."""
    names = []
    if args.m is None and args.budget is None and args.limits is None:
        names.append(f"m = {DEFAULT_M}")
    if args.k is None and args.suggestion is None:
        names.append(f"k = {problem.k}")
    return [f"{' and '.join(names)} by default; give -m and -k to choose"] if names else []


def _note_shared(candidates: tuple[str, ...], novel: tuple[str, ...]) -> None:
    """Say so if the task is in the pool: its classes would then serve themselves."""
    # Files without names number their classes, and numbers that agree mean nothing.
    known = {name for name in candidates if not name.isdigit()}
    shared = [name for name in novel if name in known]
    if shared:
        warnings.warn(
            f"{len(shared)} of the {len(novel)} novel classes are candidates too (first: "
            f"'{shared[0]}'); leave them out of the pool unless they may be chosen",
            stacklevel=3,
        )


def _settings(
    args: argparse.Namespace,
    names: tuple[str, ...],
    novel_names: tuple[str, ...],
    groups: tuple[str, ...] | None = None,
    images: Iterable[int] | None = None,
) -> tuple[dict[str, Any], Sequence[str]]:
    """Objective and limits as `SelectionProblem` takes them, and the classes that a page chose.

    `groups` and numbers of `images` are those that the candidates came with.
    """
    from fsl_basesel.cli.lists import read_names, read_numbers, read_values

    selected: list[int] = []
    for path in args.selected:
        for index in read_names(path, names):
            if index in selected:
                raise InputError(
                    f"Expected the --selected files to name different classes but got "
                    f"'{names[index]}' again in {path}; remove it from one of them"
                )
            selected.append(index)
    found = {} if args.limits is None else _limits_in(args.limits, names)
    page_classes = found.pop("classes", ())
    given = {key: value for key, value in vars(args).items() if value is not None}
    if "suggestion" in given:
        from fsl_basesel.study.suggestion import Suggestion

        suggestion = Suggestion.load(args.suggestion)
        found["k"] = given.get("k", suggestion.k)
        if "lam" not in given:
            found["lam"] = suggestion.lam_at(found["k"])  # a lam belongs to its k
    numeric = ("m", "k", "lam", "mu", "budget", "at_most", "at_least")
    found |= {key: given[key] for key in numeric if key in given}
    found |= {key: read_names(given[key], names) for key in ("exclude", "include") if key in given}
    if "weights" in given:
        found["weights"] = read_numbers(args.weights, novel_names, "weight")
    if "groups" in given:
        found["groups"] = read_values(args.groups, names, "group")
    elif groups is not None and {"at_most", "at_least"} & set(found):
        found.setdefault("groups", groups)
    if "cost" in given:
        found["cost"] = read_numbers(args.cost, names, "cost")
    if "images_per_class" in given:
        if images is None:
            raise InputError(
                "Expected candidates with a number of images each (a folder, or a file with the "
                "key `images`) for --images-per-class; give --cost instead"
            )
        found["cost"] = [max(0, args.images_per_class - count) for count in images]
    if "mu" in found and "cost" not in found:
        raise InputError("Expected --cost with --mu but got none; add --cost")
    return {"selected": selected, **found}, page_classes


def _limits_in(path: str, names: tuple[str, ...]) -> dict[str, Any]:
    """The limits of a file, with numbers of classes in place of their names, and `classes`."""
    from fsl_basesel.cli.lists import by_name, numbers, positions
    from fsl_basesel.files.classes import named_in
    from fsl_basesel.files.writing import load_json

    limits = load_json(path, LIMITS_FORMAT, what=f"limits of the format {LIMITS_FORMAT!r}")
    unknown = sorted(set(limits) - set(LIMITS))
    if unknown:
        raise InputError(
            f"Expected {path} to hold some of {', '.join(LIMITS)} but got '{unknown[0]}'; see "
            "docs/budgets.md"
        )
    found = {key: value for key, value in limits.items() if value not in (None, [])}
    with named_in(path):
        for key in {"exclude", "include"} & set(found):
            found[key] = positions(found[key], names)
        for key in {"groups", "cost"} & set(found):
            found[key] = by_name(found[key], names, key.removesuffix("s"))
        if "cost" in found:
            found["cost"] = numbers(found["cost"], names, "cost")
    return found


def improved_by_page(inputs: Inputs, selection: Selection) -> Selection:
    """The selection, or the classes that the page chose if they are better."""
    from fsl_basesel.cli.lists import positions
    from fsl_basesel.selection import Selection

    problem, classes = inputs.problem, inputs.page_classes
    if not classes:
        return selection
    try:
        other = Selection.of(problem, list(positions(classes, problem.names)), method="page")
    except InputError as error:
        warnings.warn(f"the choice saved in --limits is left out: {error}", stacklevel=2)
        return selection
    if other.value <= selection.value:
        return selection
    other = replace(other, seed=selection.seed, nu=selection.nu)
    return other if selection.upper_bound is None else other.certified(selection.upper_bound)
