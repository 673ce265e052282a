"""Imported by the process that runs are forked from: what a first run loads is loaded there."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.lightning_modules.runs import Plan, run

with tempfile.TemporaryDirectory() as folder:
    run(Plan(Path(folder), trainer={"limit_train_batches": 1}))
