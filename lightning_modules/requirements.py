"""Import learn2learn, or say how to install it."""

from __future__ import annotations

import importlib
from types import ModuleType

INSTALL_LEARN2LEARN = (
    "pip install gym requests tqdm && pip install --no-deps --use-pep517 "
    "--config-settings=--build-option=build_ext learn2learn==0.2.0"
)


def require_learn2learn() -> ModuleType:
    """Import learn2learn, which is optional: `pip install` alone cannot build it on Python >= 3.11.

    Returns:
        The module `learn2learn`.

    Raises:
        ImportError: learn2learn, or something it imports, is not installed; the message gives the
            commands that install both.
    """
    try:
        return importlib.import_module("learn2learn")
    except ImportError as error:
        raise ImportError(
            f"Expected learn2learn 0.2.0 to be installed but importing it failed ({error}); "
            f"install it with: {INSTALL_LEARN2LEARN}",
            name=error.name,
        ) from error
