"""Where results go: stdout in three formats, files written atomically, progress on stderr."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fsl_basesel.errors import InputError

FORMATS = ("json", "csv")


def add_output_arguments(
    parser: argparse.ArgumentParser, what: str, formats: tuple[str, ...] = FORMATS
) -> argparse._ArgumentGroup:
    """`--out` and `--format`."""
    group = parser.add_argument_group("output")
    endings = " or ".join(f".{one}" for one in formats)
    group.add_argument(
        "--out", metavar="FILE", help=f"also write {what} to FILE ({endings} by its ending)"
    )
    group.add_argument(
        "--format",
        choices=("table", *formats),
        default="table",
        help="what to print on stdout (table)",
    )
    return group


def row_count(text: str) -> int:
    """A number of rows for argparse.

    Raises:
        argparse.ArgumentTypeError: It is no number, or below 0.
    """
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0 but got '{text}'")
    return int(text)


def check_out(
    text: str | None, formats: tuple[str, ...] = FORMATS, flag: str = "--out"
) -> Path | None:
    """The path of `--out`, refused before the work rather than after it if it cannot be written.

    Raises:
        InputError: Another ending, a folder, or a place that cannot be written.
    """
    if text is None:
        return None
    path = Path(text)
    if path.suffix.lower()[1:] not in formats:
        endings = " or ".join(f".{one}" for one in formats)
        raise InputError(
            f"Expected {flag} to end in {endings} but got '{text}'; rename it, as in "
            f"result.{formats[0]}"
        )
    if path.is_dir():
        raise InputError(f"Expected {flag} to be a file but got the folder {path}; add a file name")
    check_folder(path.parent, path)
    return path


def check_folder(folder: Path, path: Path | None = None) -> None:
    """Make a folder, and refuse one that cannot be written; `path` is what goes there.

    Raises:
        InputError: As above.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path or folder, error) from error
    if not os.access(folder, os.W_OK):
        raise cannot_write(path or folder, PermissionError(13, "the folder is read-only"))


def cannot_write(path: Path, error: OSError) -> InputError:
    """The error for an output that cannot be written."""
    return InputError(
        f"Expected to write {path} but got '{error.strerror}'; name a place that can be written"
    )


def save_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        InputError: It cannot be written.
    """
    from fsl_basesel.files.writing import write_text

    try:
        write_text(path, text)
    except OSError as error:
        raise cannot_write(path, error) from error


def note(lines: Iterable[str]) -> None:
    """Notes on stderr, after what stdout got."""
    sys.stdout.flush()
    for line in lines:
        print(f"note: {line}", file=sys.stderr)


def print_text(text: str) -> None:
    """Machine-readable text to stdout, in UTF-8 whatever the terminal speaks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="strict")
    sys.stdout.write(text)


@contextmanager
def working(task: str) -> Iterator[None]:
    """Show on stderr, if it is a terminal, what is under way, how far it is and for how long."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from fsl_basesel.cli.screen import PlainConsole
    from fsl_basesel.progress import listening

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
    )
    quiet = not sys.stderr.isatty()  # asked of the stream: FORCE_COLOR makes no terminal of a file
    with Progress(
        *columns, console=PlainConsole(stderr=True), transient=True, disable=quiet
    ) as bar:
        shown = bar.add_task(task, total=None)

        def show(part: str, done: int, total: int) -> None:
            bar.update(shown, description=f"{task}: {part}", completed=done, total=total)

        with listening(show):
            yield
