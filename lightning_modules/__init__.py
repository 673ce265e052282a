"""Few-shot training on selected base classes with Lightning and learn2learn.

The packages are one-way: `lightning_modules` calls `fsl_basesel`, never the other way round.
"""

from lightning_modules.requirements import require_learn2learn

__all__ = ["require_learn2learn"]
