"""A whole run from one YAML file, with Lightning's command line.

    python examples/lightning_cli.py
    python examples/lightning_cli.py --model.init_args.lr=0.05 --run=runs/other

The file `cold_start.yaml` beside this one has the settings; any of them can be given on the command
line. The same command, run again, resumes where it was stopped. `fsl-basesel fit` is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_modules.cli import FitCLI, cli_main


def main(argv: Sequence[str] | None = None) -> FitCLI:
    """Run the file with the words of the command line."""
    words = sys.argv[1:] if argv is None else list(argv)
    return cli_main(["--config", str(Path(__file__).with_name("cold_start.yaml")), *words])


if __name__ == "__main__":
    main()
