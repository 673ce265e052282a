"""`fsl-basesel report`: one HTML page from the folder of a run, and its figures as files."""

from __future__ import annotations

import argparse
from pathlib import Path

from fsl_basesel.cli import output
from fsl_basesel.errors import InputError

EXAMPLES = """\
examples:
  the page beside the run:
    fsl-basesel report runs/glyphs-cold-start
  elsewhere, and the figures for a paper as PNG and SVG:
    fsl-basesel report runs/glyphs-cold-start --out page.html --figures figures

The page needs no network and no other file. It shows what the folder holds:
selection-stage-i.json, classes-stage-i.npz and pictures.npz (written by the
selection callbacks), novel_*.csv (NovelEvaluation), results.csv (reproduce, demo)
and the settings. For what is absent it says what would produce it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.description = "Make one self-contained HTML page with the results of a run."
    parser.epilog = EXAMPLES
    parser.add_argument("run_dir", metavar="RUN_DIR", help="folder of a run")
    parser.add_argument(
        "--out", metavar="FILE", help="where to write the page (RUN_DIR/report.html)"
    )
    parser.add_argument(
        "--figures", metavar="DIR", help="also write each figure there, as PNG and SVG"
    )


def run(args: argparse.Namespace) -> int:
    """Read the folder, write the page and the figures."""
    from fsl_basesel.cli.screen import PlainConsole
    from fsl_basesel.report.page import html_page
    from fsl_basesel.report.run import read_run

    found = read_run(args.run_dir)
    target = Path(args.out) if args.out else Path(args.run_dir) / "report.html"
    if target.is_dir():
        raise InputError(f"Expected --out to be a file but got the folder {target}; add a name")
    _make_folder(target.parent)
    with output.working("Drawing the page"):
        page = html_page(found)
    output.save_text(target, page)
    screen = PlainConsole()
    screen.print(f"Report: {target} ({len(page.encode()) / 2**20:.1f} MB)", soft_wrap=True)
    if args.figures is not None:
        from fsl_basesel.report.figures import save_figures

        folder = Path(args.figures)
        _make_folder(folder)
        with output.working("Drawing figures"):
            written = save_figures(found, folder)
        screen.print(f"Figures: {len(written)} files in {folder}", soft_wrap=True)
    return 0


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output.cannot_write(folder, error) from error
