"""Where results go: stdout in three formats, files written atomically, progress on stderr."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import progress

from fsl_basesel import checks
from fsl_basesel.cli.screen import PlainConsole
from fsl_basesel.distributed import is_first
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import csv_text, write_text
from fsl_basesel.progress import listening

if TYPE_CHECKING:
    from fsl_basesel.report.run import Run

FORMATS = ("json", "csv")


def add_output_arguments(
    parser: argparse.ArgumentParser, what: str, formats: tuple[str, ...] = FORMATS
) -> argparse._ArgumentGroup:
    """`--out` and `--format`."""
    group = parser.add_argument_group("output")
    endings = " or ".join(f".{one}" for one in formats)
    out = f"also write {what} to FILE ({endings} by its ending)"
    group.add_argument("--out", metavar="FILE", help=out)
    shown = ("table", *formats)
    group.add_argument("--format", choices=shown, default="table", help="what to print (table)")
    return group


def numbers(text: str | None, kind: type, flag: str) -> list[Any] | None:
    """A list of numbers with commas between; None if the flag was not given."""
    try:
        return None if text is None else [kind(word) for word in text.split(",")]
    except ValueError:
        raise InputError(f"Expected {flag} to be numbers as in 1,3,5 but got '{text}'") from None


def listed(text: str, known: Sequence[str], flag: str) -> list[str]:
    """Different words with commas between, each one of `known`."""
    words = list(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        checks.one_of(word, known, flag)
    return words


def check_out(
    text: str | None, formats: tuple[str, ...] = FORMATS, flag: str = "--out"
) -> Path | None:
    """The path of `--out`, refused before the work rather than after it if it cannot be written."""
    if text is None:
        return None
    path = Path(text)
    if formats and path.suffix.lower()[1:] not in formats:
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
    """Make a folder, and refuse one that cannot be written; `path` is what goes there."""
    with writing(path or folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "the folder is read-only")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A file or folder that cannot be written is an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"Expected to write {path} but got '{error.strerror}'; name a place that can be written"
        ) from error


def save_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with writing(path):
        write_text(path, text)


def save_page(folder: Path, target: Path | None = None) -> tuple[Path, Run]:
    """Write the page of a run to its folder, or elsewhere; the file and the run."""
    from fsl_basesel.report.page import html_page
    from fsl_basesel.report.run import read_run

    found, page = read_run(folder), target or folder / "report.html"
    with working("Drawing the page"):
        text = html_page(found)
    save_text(page, text)
    return page, found


def deliver(
    args: argparse.Namespace,
    text: Callable[[str], str],
    table: Callable[[PlainConsole], None],
    others: Iterable[str] = (),
) -> None:
    """Write `--out` and print: `text` gives a format, `table` is for people.

    The table ends with a line about each file. `others` yields those of further files, which may
    be written while it is iterated: `--out` is safe by then. Of several processes the first writes.
    """
    written = []
    if args.out is not None and is_first():
        out = Path(args.out)
        save_text(out, text(out.suffix.lower()[1:]))
        written.append(f"Saved to {out}")
    written += others
    if args.format != "table":
        if isinstance(sys.stdout, io.TextIOWrapper):  # for programs, whatever the terminal speaks
            sys.stdout.reconfigure(encoding="utf-8", errors="strict")
        sys.stdout.write(text(args.format))
        return
    console = PlainConsole()
    table(console)
    for line in written:
        console.print(line, style="dim", soft_wrap=True)


def as_text(
    format: str, rows: Iterable[Mapping[str, object]], document: Mapping[str, object]
) -> str:
    """The rows as CSV, or the document as JSON."""
    if format == "csv":
        return csv_text(rows)
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def note(lines: Iterable[str]) -> None:
    """Notes on stderr, after what stdout got."""
    sys.stdout.flush()
    for line in lines:
        print(f"note: {line}", file=sys.stderr)


@contextmanager
def working(task: str) -> Iterator[None]:
    """Show on stderr, if it is a terminal, what is under way, how far it is and for how long."""
    # Asked of the stream: FORCE_COLOR makes no terminal of a file.
    if not sys.stderr.isatty() or not is_first():
        yield
        return
    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=20),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[pace]}"),
    )
    console = PlainConsole(stderr=True)
    with progress.Progress(*columns, console=console, transient=True) as bar:
        shown = bar.add_task(task, total=None, pace="")

        def show(part: str, done: int, total: int) -> None:
            images = part.startswith("images")
            title = part if images else f"{task}: {part}"
            if bar.tasks[0].description != title:  # another pace
                bar.reset(shown, description=title, pace="")
            bar.update(shown, completed=done, total=total)
            elapsed = bar.tasks[0].elapsed
            if images and done and elapsed:
                left = timedelta(seconds=int((total - done) * elapsed / done))
                bar.update(shown, pace=f"{done / elapsed:.0f} images/s, {left} left")

        with listening(show):
            yield
