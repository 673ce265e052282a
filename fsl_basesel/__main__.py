"""`python -m fsl_basesel`, the same as `fsl-basesel`; torchrun needs a module."""

import sys

from fsl_basesel.cli import main

if __name__ == "__main__":
    sys.exit(main())
