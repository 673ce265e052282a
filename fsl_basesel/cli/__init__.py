"""The command line `fsl-basesel`: parsing, exit codes, and errors in one line."""

from __future__ import annotations

import argparse
import functools
import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import fsl_basesel
from fsl_basesel.errors import InputError, ProcessError
from fsl_basesel.memory import free_bytes, gigabytes

COMMANDS = {
    "select": "choose the base classes for a task and say how good the choice provably is",
    "embed": "class centroids of a folder of pictures, as a file for `select`",
    "compare": "run several methods on the same problem: value, share of the bound, seconds",
    "frontier": "value and bound against the budget, or the number of classes",
    "suggest": "k and lam for `select` from the accuracies of models on random base sets",
    "demo": "train networks on the classes of every method, compare them, write a report",
    "fit": "train on base classes that are chosen during the run, on folders of pictures",
    "report": "one HTML page with the results of a run, and figures for papers",
    "reproduce": "run the experiments of the paper, on its data or on embedded data",
}
"""Commands and what they do; each is a module here with `EXAMPLES`, `add_arguments` and `run`."""

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class CommandParser(argparse.ArgumentParser):
    """A parser that keeps the lines of its texts and reports bad usage in one line."""

    def __init__(self, **options: Any) -> None:
        options["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """One line on stderr and exit code 2."""
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def build_parser(words: Sequence[str]) -> CommandParser:
    """The parser of `fsl-basesel`; of the commands only those among the words are imported."""
    parser = CommandParser(
        prog="fsl-basesel",
        description="Choose the base classes worth labelling for few-shot learning,\n"
        "and prove how good the choice is.",
        epilog="examples:\n"
        "  fsl-basesel demo\n"
        "  fsl-basesel select photos/pool --novel photos/task -m 10 -k 1 --report chosen\n"
        "  fsl-basesel select pool.npz --novel task.npz -m 100 -k 3 --out chosen.json\n"
        "  fsl-basesel compare pool.npz --novel task.npz -m 100 -k 3\n\n"
        "Run `fsl-basesel COMMAND --help` for details.",
    )
    version = f"fsl-basesel {fsl_basesel.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        if name in words:
            module = importlib.import_module(f"{__name__}.{name}")
            command.epilog = module.EXAMPLES
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, by default that of the process, and return its exit code.

    0: done. 1: it failed: out of memory, or a process or the training of a network failed. 2: bad
    usage or bad input, with one line on stderr. 75: `fit` waits until people have labelled the
    chosen classes. 130: interrupted by Ctrl-C. 141: the reader of the output closed it.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a name shows "?"
            stream.reconfigure(errors="replace")
    with warnings.catch_warnings():
        warnings.showwarning = functools.partial(_show_note, warnings.showwarning)
        try:
            return _run(argv)
        except KeyboardInterrupt:
            print("fsl-basesel: interrupted", file=sys.stderr)
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            # Python flushes stdout once more at exit; let that go nowhere instead of complaining.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_BROKEN_PIPE


def _run(argv: Sequence[str] | None) -> int:
    try:
        words = sys.argv[1:] if argv is None else argv
        args = build_parser(words).parse_args(words)
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except SystemExit as leaving:  # argparse after --help (0) or bad usage (2)
        sys.stdout.flush()
        return leaving.code if isinstance(leaving.code, int) else EXIT_BAD_INPUT
    except (InputError, ProcessError, MemoryError) as error:
        line, ours = " ".join(str(error).split()), isinstance(error, InputError)
        if isinstance(error, MemoryError):
            asked = line or "more was requested than is available"
            line = f"out of memory: {asked}; {gigabytes(free_bytes())} are free"
        if not ours or os.environ.get("RANK", "0") == "0":  # bad input is bad in all processes
            print(f"fsl-basesel: error: {line}", file=sys.stderr)
        return EXIT_BAD_INPUT if ours else EXIT_FAILED


def _show_note(
    show: Any, message: Any, category: type[Warning], filename: str, *rest: Any, **more: Any
) -> None:
    """Our own warnings as one line `note: ...`; those of libraries as Python shows them."""
    if category is UserWarning and f"{os.sep}fsl_basesel{os.sep}" in filename:
        print(f"note: {message}", file=sys.stderr)
    else:
        show(message, category, filename, *rest, **more)
