"""`fsl-basesel bench`: run a benchmark of `fsl_basesel.bench` by its name."""

from __future__ import annotations

import argparse

from fsl_basesel.cli import CommandParser, bench_names

PURPOSES = {
    "select": "the greedy selection against submodlib and apricot on the same matrix",
    "gradient": "the exact gradient of the multilinear extension, every backend",
    "episodes": "few-shot episodes against learn2learn's and easyfsl's, on cached features",
    "fit": "choosing classes inside trainer.fit against plain Lightning on a static data set",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One word for each benchmark that is there; its own arguments are its own business."""
    parser.description = "Measure speed on this machine."
    commands = parser.add_subparsers(metavar="NAME", required=True, parser_class=CommandParser)
    for name in bench_names():
        commands.add_parser(name, help=PURPOSES[name], module=f"fsl_basesel.bench.{name}")
