"""`fsl-basesel fit`: train on base classes chosen during the run, from a YAML file."""

from __future__ import annotations

import argparse
import sys

EXIT_WAITING = 75
"""Chosen classes wait for their labels; the same command goes on when they are there."""

DESCRIPTION = (
    "Train on base classes that are chosen during the run. The settings come from a YAML\n"
    "file and from options; the same command, run again, resumes the run."
)
FLAGS = {
    "--run": ("runs/fit", "folder of the run"),
    "--ckpt-path": (
        "last",
        "checkpoint to resume from; `last` is the last one of the run, if there is one, and "
        "`none` starts anew",
    ),
}
"""Flags that are not Lightning's, with their defaults; `lightning_modules.cli` adds them."""
EXAMPLES = """\
settings of the model, the data and the trainer, in the file or as options:
  --model.NAME VALUE    arguments of the model (BaseClassifier)
  --data.NAME VALUE     arguments of the data module
  --trainer.NAME VALUE  arguments of Lightning's Trainer, its callbacks among them
  --seed_everything N   seed of everything random (0)

examples:
  a cold start on the embedded glyphs:
    fsl-basesel fit --config configs/glyphs-cold-start.yaml
  the same with other stages, into another folder:
    fsl-basesel fit --config configs/glyphs-cold-start.yaml --run runs/other \\
      --trainer.callbacks.schedule=[10,20,40]

`fsl-basesel fit --help-all` lists every option of the model, the data module and
Lightning. See docs/lightning.md."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Hand every word on: the command's arguments come from the classes it builds."""
    parser.prefix_chars = "\0"  # no word is an option here, not even --help
    parser.add_argument("words", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> int:
    """Train; a run that must wait for labels is no fault."""
    if {"-h", "--help"} & set(args.words):
        help_parser().print_help()
        return 0
    from fsl_basesel.data import LabelsPending
    from lightning_modules.cli import cli_main

    try:
        cli_main(["--help" if word == "--help-all" else word for word in args.words])
    except LabelsPending as waiting:
        print(f"fsl-basesel: {waiting}", file=sys.stderr)
        return EXIT_WAITING
    return 0


def help_parser() -> argparse.ArgumentParser:
    """A parser that knows the command's own flags, for its help."""
    parser = argparse.ArgumentParser(
        prog="fsl-basesel fit",
        usage="fsl-basesel fit [--help] [--help-all] --config FILE [options]",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--help-all", action="store_true", help="every option there is")
    parser.add_argument("--config", metavar="FILE", help="a YAML file; may be given several times")
    for flag, (default, text) in FLAGS.items():
        parser.add_argument(flag, metavar="X", help=f"{text} ({default})")
    return parser
