"""`fsl-basesel fit`: train on base classes that are chosen during the run.

Only the command's own flags are here, so that `--help` needs no library; Lightning's are behind
`--help-all`.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import time

from fsl_basesel.cli import CommandParser
from fsl_basesel.errors import InputError

EXIT_WAITING = 75
"""Chosen classes have no labels yet; run the same command again when they have."""

LIGHTNING = ("--data", "--model", "--trainer", "--print_config", "--seed_everything")
"""How the options begin that are passed on to Lightning."""

EXAMPLES = """\
examples:
  the paper's cold start on your photographs, one folder for each class:
    fsl-basesel fit photos/pool --novel photos/task
  choose 20 classes with a pre-trained network, then fine-tune it on them:
    fsl-basesel fit photos/pool --novel photos/task \\
      --backbone efficientnet-lite0 -m 20
  everything from a YAML file:
    fsl-basesel fit --config configs/glyphs-cold-start.yaml

The same command, run again, continues the run. Flags override the YAML file,
which overrides what is derived from images and machine. Options of the data, the
model and the Trainer are given as --data.batch_size=32, --model.lr=0.05 or
--trainer.precision=bf16-mixed; `fit --help-all` lists them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take every word; `run` separates the command's own flags from Lightning's."""
    parser.prefix_chars = "\0"  # no word is an option here, not even --help
    parser.add_argument("words", nargs=argparse.REMAINDER)


def flags() -> CommandParser:
    """The parser of the command's own flags."""
    parser = CommandParser(
        prog="fsl-basesel fit",
        usage="fsl-basesel fit POOL [--novel TASK] [flags]\n"
        "       fsl-basesel fit --config FILE [flags]",
        description="Train on base classes that are chosen during the run.",
        epilog=EXAMPLES,
    )
    add = parser.add_argument
    add("pool", nargs="?", metavar="POOL", help="folder with a folder of pictures for each class")
    add("--novel", metavar="TASK", help="the same for the task; without it the task is unknown")
    add("--run", metavar="DIR", help="folder of the run (runs/fit)")
    add("-m", type=int, metavar="N", help="base classes in the end (100, or half of a small pool)")
    nearest = "nearest base classes that count for a novel class (3; --backbone without --novel: 1)"
    add("-k", type=int, metavar="K", help=nearest)
    compared = "cosine, centred or whitened (as in `select`; in a cold start cosine is the default)"
    add("--similarity", metavar="NAME", help=compared)
    stages = "base classes in each stage of the cold start (doubled up to -m: 6,12,25,50,100)"
    add("--schedule", metavar="N,N,...", help=stages)
    add("--epochs", type=int, metavar="N", help="epochs of each stage")
    add("--backbone", metavar="NAME", help="choose once, with this network (see embed --help)")
    add(
        "--train",
        choices=("finetune", "scratch", "frozen"),
        help="with --backbone: go on training it (finetune, the default), train a new network "
        "(scratch), or only use its features (frozen)",
    )
    add("--size", type=int, metavar="PX", help="side of the training images")
    add("--shots", type=int, metavar="N", help="pictures of each class of the task to learn from")
    second = "train a second network on random classes with as many images"
    add("--control", choices=("random",), help=second)
    waiting = "POOL has a few pictures of each class; people put those of chosen classes into DIR"
    add("--label", metavar="DIR", help=waiting)
    add("--needed", type=int, metavar="N", help="with --label: pictures of a class to wait for (1)")
    add("--seed", type=int, metavar="N", help="seed of everything that is drawn (0)")
    add("--config", action="append", metavar="FILE", help="YAML file with further settings")
    resumed = "checkpoint to resume from; `last` is the run's own, `none` starts anew (last)"
    add("--ckpt-path", metavar="FILE", help=resumed)
    add("--help-all", action="store_true", help="also list the options of Lightning")
    return parser


def parse(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The command's own flags, with the time it began, and the words that are Lightning's."""
    began = time.perf_counter()
    parser = flags()
    mine: list[str] = []
    rest: list[str] = []
    value_follows = False
    for word in words:
        ours = not word.startswith(LIGHTNING) and not (value_follows and word[:1] != "-")
        (mine if ours else rest).append(word)
        value_follows = word.startswith(LIGHTNING) and "=" not in word
    asked, unknown = parser.parse_known_args(mine)
    asked.began = began
    if unknown:
        name = unknown[0].partition("=")[0]
        known = [option for action in parser._actions for option in action.option_strings]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else "see fsl-basesel fit --help."
        raise InputError(f"Expected a flag of `fit` but got {name!r}; {hint}")
    told = asked.pool or asked.config or asked.help_all
    if not told and not any(word.startswith(("--data", "--print")) for word in rest):
        raise InputError(
            "Expected a folder of pictures or --config with a YAML file but got neither; "
            "fsl-basesel fit --help shows both."
        )
    return asked, rest


def run(args: argparse.Namespace) -> int:
    """Train; a run that must wait for labels is no fault."""
    asked, rest = parse(args.words)
    from fsl_basesel.data import LabelsPending
    from lightning_modules.cli import fit_command

    try:
        fit_command(asked, rest)
    except LabelsPending as waiting:
        print(f"fsl-basesel: {waiting}", file=sys.stderr)
        return EXIT_WAITING
    return 0
