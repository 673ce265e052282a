"""`fsl-basesel report`: one HTML page from the folder of a run, and its figures as files."""

from __future__ import annotations

import argparse
from pathlib import Path

from fsl_basesel.cli import output

EXAMPLES = """\
examples:
  fsl-basesel report runs/glyphs-cold-start --out page.html --figures figures

The page needs no network and no other file. It shows what the folder of a run
holds (docs/report.md); for what is absent it says what would produce it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("run_dir", metavar="RUN_DIR", help="folder of a run")
    parser.add_argument("--out", metavar="FILE", help="where the page goes (RUN_DIR/report.html)")
    parser.add_argument("--figures", metavar="DIR", help="also each figure, as PNG and SVG")


def run(args: argparse.Namespace) -> int:
    """Read the folder, write the page and the figures."""
    out = output.check_out(args.out, ())
    page, found = output.save_page(Path(args.run_dir), out)
    print(f"Report: {page} ({page.stat().st_size / 2**20:.1f} MB)")
    if args.figures is not None:
        from fsl_basesel.report.figures import save_figures

        folder = Path(args.figures)
        output.check_folder(folder)
        with output.working("Drawing figures"):
            written = save_figures(found, folder)
        print(f"Figures: {len(written)} files in {folder}")
    return 0
