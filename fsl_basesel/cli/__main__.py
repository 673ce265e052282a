"""`python -m fsl_basesel.cli`, the same as `fsl-basesel`."""

import sys

from fsl_basesel.cli import main

if __name__ == "__main__":
    sys.exit(main())
