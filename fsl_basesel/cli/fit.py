"""`fsl-basesel fit`: train on base classes chosen during the run, from a YAML file."""

from __future__ import annotations

import argparse
import sys

from fsl_basesel.data import LabelsPending

EXIT_WAITING = 75
"""Chosen classes wait for their labels; the same command goes on when they are there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Hand every word on: the command's arguments come from the classes it builds."""
    parser.prefix_chars = "\0"  # no word is an option here, not even --help
    parser.add_argument("words", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> int:
    """Train; a run that must wait for labels is no fault."""
    from lightning_modules.cli import cli_main

    try:
        cli_main(args.words)
    except LabelsPending as waiting:
        print(f"fsl-basesel: {waiting}", file=sys.stderr)
        return EXIT_WAITING
    return 0
